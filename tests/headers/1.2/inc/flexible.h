/* Arrays of no stated length at the end. */
#pragma once
#include "types.h"

typedef struct {
    NvU32 count;
    NvU16 kind;
    NvU8 data[];
} NVT_FLEXIBLE;

typedef struct {
    NvU64 count;
    NvU32 entries[0];
} NVT_FLEXIBLE_ZERO;

typedef struct {
    NvU32 id;
    struct {
        NvU64 base;
        NvU32 size;
    } ranges[];
} NVT_FLEXIBLE_RECORD;
