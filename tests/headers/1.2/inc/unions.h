/* Unions, and members without a name. */
#pragma once
#include "types.h"

typedef union {
    NvU8 bytes[12];
    NvU64 word;
    NvHandle handle;
} NVT_UNION;

typedef struct {
    NvU32 kind;
    union {
        NvU32 number;
        struct {
            NvU16 low;
            NvU16 high;
        };
        struct {
            NvU8 a, b, c, d;
        } letters;
    };
    struct {
        NvU64 tail;
    };
} NVT_ANONYMOUS;

typedef struct {
    NvU32 kind;
    union {
        struct {
            NvP64 pointer;
            NvU32 length;
        } buffer;
        NVT_UNION shared;
    } data;
} NVT_UNION_MEMBER;
