/* Bit-fields: units of every width, signs, a unit that is full, one that starts in padding. */
#pragma once
#include "types.h"

typedef struct {
    NvU32 low : 4;
    NvU32 middle : 12;
    NvU32 high : 16;
} NVT_BITS_ONE_UNIT;

typedef struct {
    NvU32 first : 20;
    NvU32 second : 20;
    NvU32 third : 24;
} NVT_BITS_UNITS;

typedef struct {
    int negative : 5;
    signed char tiny : 3;
    NvS64 wide : 40;
    NvU32 after;
} NVT_BITS_SIGNED;

typedef struct {
    NvU64 crossing_a : 30;
    NvU64 crossing_b : 10;
    NvU64 crossing_c : 24;
    NvU8 tail;
} NVT_BITS_CROSSING;

typedef struct {
    NvU8 head;
    NvU32 inside : 6;
    NvU32 outside : 30;
    NvU16 small : 9;
    NvU16 end;
} NVT_BITS_MIXED;

typedef struct {
    NvU8 before : 3;
    NvU8 : 2;
    NvU8 after : 3;
    NvU8 type : 4;
    NvU8 match : 4;
} NVT_BITS_UNNAMED;

typedef struct {
    NvU8 a : 1;
    NvU64 b : 63;
    NvU8 c;
} NVT_BITS_SIZES;

typedef struct {
    NvU32 a : 12;
    NvU32 b : 24;
    NvU32 c : 28;
} __attribute__((packed)) NVT_BITS_PACKED;

typedef union {
    NvU32 word;
    NvU32 part : 9;
    struct {
        NvU32 lo : 16;
        NvU32 hi : 16;
    } half;
} NVT_BITS_UNION;
