/* Alignment beyond that of the type, on members and on records. */
#pragma once
#include "types.h"

typedef struct {
    NvU32 first;
    NV_DECLARE_ALIGNED(NvU64 second, 8);
    NvU32 third NV_ALIGN_BYTES(8);
    NvU32 fourth;
} NVT_ALIGNED_MEMBER;

typedef struct {
    NvU8 one;
    NV_DECLARE_ALIGNED(NvU8 sixteenth, 16);
} NVT_ALIGNED_SIXTEEN;

typedef struct {
    NvU8 bytes[3];
} NV_ALIGN_BYTES(32) NVT_ALIGNED_RECORD;

typedef struct {
    NvU32 before;
    NVT_ALIGNED_RECORD inner;
    NvU32 after;
} NVT_HOLDS_ALIGNED;

typedef NvU64 NvU64_ALIGN4 NV_ALIGN_BYTES(4);

typedef struct {
    NvU32 before;
    NvU64_ALIGN4 value;
} NVT_ALIGNED_LESS;
