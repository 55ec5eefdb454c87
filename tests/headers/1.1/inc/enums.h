/* Enums of every size and sign. */
#pragma once
#include "types.h"

typedef enum { NVT_PLAIN_A, NVT_PLAIN_B, NVT_PLAIN_Z = 25 } NVT_PLAIN;

typedef enum { NVT_NEGATIVE_ONE = -1, NVT_NEGATIVE_MIN = -2147483647 - 1 } NVT_NEGATIVE;

typedef enum {
    NVT_LARGE_TOP = 0xffffffff,
} NVT_LARGE;

typedef enum { NVT_HUGE_ONE = 1, NVT_HUGE_TOP = 0x100000000ULL } NVT_HUGE;

enum nvt_tagged { NVT_TAGGED_ONE = 1 };

typedef enum { NVT_SMALL_ONE = 1 } __attribute__((packed)) NVT_SMALL;

enum { NVT_UNNAMED_FIVE = 5, NVT_UNNAMED_MINUS = -6 };

typedef struct {
    NVT_PLAIN plain;
    NVT_NEGATIVE negative;
    NVT_HUGE huge;
    NVT_SMALL small;
    enum { NVT_MODE_OFF, NVT_MODE_ON } mode;
    enum nvt_tagged tagged[2];
} NVT_ENUMS;
