/* Arrays of more than one dimension, of records without a name of their own. */
#pragma once
#include "types.h"

#define NVT_ROWS 2

typedef NvU8 NvtMac[6];

typedef struct {
    NvU16 grid[2][3];
    NvU8 cube[2][3][4];
    struct {
        NvU32 id;
        NvU8 flags;
    } cell[NVT_ROWS][3];
    NvtMac mac;
    NvtMac macs[NVT_ROWS];
    NvHandle handles[3];
    NvProcessorUuid uuids[2];
} NVT_ARRAYS;
