/* A bit-field of no width ends a unit; whether it aligns the record is the machine's affair. */
#pragma once
#include "types.h"

typedef struct {
    NvU8 a : 3;
    NvU32 : 0;
    NvU8 b : 2;
} NVT_BITS_ZERO_WIDTH;

typedef struct {
    NvU32 a : 3;
    NvU32 : 0;
    NvU32 b : 2;
} NVT_BITS_ZERO_WIDTH_SAME;
