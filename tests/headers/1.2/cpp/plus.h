/* Parsed as C++. */
#pragma once
#include "types.h"

extern "C" {
typedef struct {
    NvU32 value;
} NVT_PLUS_C;

extern "C" {
typedef NVT_PLUS_C NVT_PLUS_ALIAS;
}
}

enum NvtPlusMode { NVT_PLUS_OFF, NVT_PLUS_ON };

struct NvtPlus {
    NvU32 a;
    NvU64 b;
};

typedef struct {
    NvtPlus plus;
    bool yes;
    NvtPlusMode mode;
} NVT_PLUS;

#define NVT_PLUS_CONSTANT 0x2B
