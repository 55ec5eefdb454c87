/* Packed records, wholly and to two bytes; and records within them that keep an alignment. */
#pragma once
#include "types.h"

typedef struct {
    NvU8 tag;
    NvU32 value;
    NvU64 big;
} __attribute__((packed)) NVT_PACKED;

#pragma pack(push, 2)
typedef struct {
    NvU8 tag;
    NvU32 value;
    NvU64 big;
} NVT_PACKED_TWO;
#pragma pack(pop)

typedef struct {
    NvU32 lo;
    NvU32 hi;
} __attribute__((aligned(8))) NVT_PACKED_INNER;

typedef struct {
    NvU8 tag;
    NVT_PACKED_INNER inner;
    NVT_PACKED_INNER pair[2];
} __attribute__((packed)) NVT_PACKED_HOLDS_ALIGNED;

typedef struct {
    NvU8 tag;
    NVT_PACKED nested;
    NvU16 end;
} NVT_HOLDS_PACKED;

typedef struct {
    NvU8 tag;
    NvU16 value;
} __attribute__((packed, aligned(4))) NVT_PACKED_BUT_ALIGNED;

typedef union {
    NvU8 bytes[5];
    NvU32 value;
} __attribute__((packed)) NVT_PACKED_UNION;
