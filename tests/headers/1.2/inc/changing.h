/* What this version changed. */
#pragma once
#include "types.h"

typedef struct {
    NvU32 first;
    NvU32 between;
    NvU32 second;
} NVT_GROWS;

typedef struct {
    NvU32 size;
    NvU32 status;
    NvU64 address;
} NVT_SWAPS;

typedef struct {
    NvU64 added;
} NVT_COMES;

#define NVT_LIMIT 32
#define NVT_NEW_NAME 1
