/* Pointers of every kind, and the integers whose size is the machine's. */
#pragma once
#include "types.h"
#include <stddef.h>
#include <stdint.h>

typedef void (*NvtCallback)(NvU32 code, void *context);

typedef struct {
    NvP64 address;
    void *raw;
    const char *name;
    NvU8 **table;
    NvtCallback callback;
    NvU32 (*inline_callback)(struct nvt_later *self);
    NvtCallback callbacks[2];
    char *names[3];
    NvU32 (*rows)[4];
    NvU32 (*pages[2])[4];
} NVT_POINTERS;

typedef struct {
    long signed_long;
    unsigned long unsigned_long;
    unsigned long longs[2];
    char letter;
    char text[8];
    _Bool yes;
    size_t size;
    uint32_t fixed;
    uintptr_t word;
    float single;
    double twice;
} NVT_MACHINE;
