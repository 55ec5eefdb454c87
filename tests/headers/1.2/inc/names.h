/* Names that Rust keeps for itself, or that nvabi would make up. */
#pragma once
#include "types.h"

typedef struct {
    NvU32 type;
    NvU32 match;
    NvU32 self;
    NvU32 crate;
    NvU8 _pad0;
    NvU64 bits0;
    NvU32 in : 3;
    NvU32 loop : 5;
    struct {
        NvU32 anon0;
    };
    NvU32 anon0_;
    NvU8 where;
} NVT_NAMES;

typedef struct {
    NvHandle hObject;
    NvP64 pMemory;
    NvProcessorUuid gpuUuid;
    NvBool bFlag;
} NVT_SCALARS;
