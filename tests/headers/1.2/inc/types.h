/* The scalars that every header builds on, named as the driver names them. */
#pragma once

typedef unsigned char NvU8;
typedef signed char NvS8;
typedef unsigned short NvU16;
typedef short NvS16;
typedef unsigned int NvU32;
typedef int NvS32;
typedef unsigned long long NvU64;
typedef long long NvS64;
typedef unsigned char NvBool;

typedef NvU32 NvHandle;
typedef void *NvP64;
typedef struct nv_processor_uuid {
    NvU8 uuid[16];
} NvProcessorUuid;

#define NV_ALIGN_BYTES(size) __attribute__((aligned(size)))
#define NV_DECLARE_ALIGNED(field, size) field NV_ALIGN_BYTES(size)
