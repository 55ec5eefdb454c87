/* What the next version changes. */
#pragma once
#include "types.h"

typedef struct {
    NvU32 first;
    NvU32 second;
} NVT_GROWS;

typedef struct {
    NvU32 status;
    NvU32 size;
    NvU64 address;
} NVT_SWAPS;

typedef struct {
    NvU32 unused;
} NVT_GOES;

#define NVT_LIMIT 16
#define NVT_OLD_NAME 1
