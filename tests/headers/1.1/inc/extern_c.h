/* Declared for C as well as for C++. */
#pragma once
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef NvU32 NvtExternAlias;

typedef struct {
    NvtExternAlias value;
} NVT_EXTERN_C;

#define NVT_EXTERN_CONSTANT 7

#ifdef __cplusplus
}
#endif
