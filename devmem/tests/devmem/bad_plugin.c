/* Plugins that do not keep to the interface, one for each CASE. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "nvabi-devmem.h"

#define NO_DRIVER 1
#define OTHER_VERSION 2
#define SHORT 3
#define NO_NAME 4
#define NO_FUNCTIONS 5
#define ENDLESS 6
#define UNNAMED_DEVICE 7
#define UNENDING_NAME 8
#define NULL_SETS 9
#define REFUSES 10
#define SMALL_MEMORY 11
/* No mistake: a driver from before sets_for, whose struct ends there. */
#define OLD 12
/* Says that it has more formats than there are. */
#define HINTS 13
/* Makes a file for the first plane alone, and says that it has made all. */
#define ONE_FILE 14
/* A name that colours what is behind it. */
#define COLOURED 15
/* Does not end by ENODEV. */
#define BROKEN_END 16

#if CASE == SMALL_MEMORY || CASE == ONE_FILE
#include <sys/mman.h>
int memfd_create(const char *name, unsigned flags);
#endif

static int device(uint32_t index, nvabi_devmem_device *device)
{
    /* Behind a device without a name there is another. */
    if (CASE != ENDLESS && index > (CASE == UNNAMED_DEVICE || CASE == UNENDING_NAME))
        return CASE == BROKEN_END ? -EIO : -ENODEV;
    memset(device, 0, sizeof *device);
    strcpy(device->name, CASE == UNNAMED_DEVICE && index == 0 ? "" : "bad");
    if (CASE == UNENDING_NAME && index == 0)
        memset(device->name, 'x', sizeof device->name);
    device->operations = 1u << NVABI_DEVMEM_COPY;
    return 0;
}

static int sets(uint32_t index, const nvabi_devmem_image *image, uint32_t operation,
                const nvabi_devmem_sink *sink)
{
    const nvabi_devmem_set set = { .constraint_count = 3 };

    (void)index, (void)image, (void)operation;
    if (CASE == REFUSES)
        return -EBUSY;
    sink->add(sink->context, &set);
    return 0;
}

static int allocate(uint32_t index, const nvabi_devmem_memory *memory)
{
    (void)index, (void)memory;
#if CASE == SMALL_MEMORY
    return memfd_create("small", 0);
#else
    return -ENOMEM;
#endif
}

static int allocate_files(uint32_t index, const nvabi_devmem_memory *memory, int32_t *fds)
{
    (void)index, (void)memory;
#if CASE == ONE_FILE
    fds[0] = memfd_create("one-of-two", 0);
#else
    (void)fds;
#endif
    return 0;
}

static int hints(uint32_t index, uint32_t operation, nvabi_devmem_hint *hints, uint32_t capacity)
{
    (void)index, (void)operation, (void)hints, (void)capacity;
    return 1 << 20;
}

const nvabi_devmem_driver *nvabi_devmem_driver_v1(void)
{
    static const nvabi_devmem_driver driver = {
        .version = CASE == OTHER_VERSION ? 2 : NVABI_DEVMEM_VERSION,
        .size = CASE == SHORT ? 16 : CASE == OLD ? offsetof(nvabi_devmem_driver, sets_for) : sizeof driver,
        .name = CASE == NO_NAME ? 0 : CASE == COLOURED ? "bad\033[31m" : "bad",
        .device = CASE == NO_FUNCTIONS ? 0 : device,
        .sets = sets,
        .allocate = allocate,
        /* Of an old driver nobody looks there. */
        .allocate_files = CASE == ONE_FILE ? allocate_files : 0,
        .hints = CASE == HINTS || CASE == OLD ? hints : 0,
    };
    return CASE == NO_DRIVER ? 0 : &driver;
}
