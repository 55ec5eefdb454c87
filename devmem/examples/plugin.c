/*
 * A plugin in C: a device "c-codec" that encodes from and decodes into linear memory of its own
 * making. Its memory is a memfd's, as no hardware is behind it.
 *
 *     cc -shared -fPIC -Iinclude -o libdevmem_plugin_c.so examples/plugin.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvabi-devmem.h"

static atomic_uint_fast64_t imported;

static int codec_device(uint32_t index, nvabi_devmem_device *device)
{
    if (index != 0)
        return -ENODEV;
    memset(device, 0, sizeof *device);
    strcpy(device->name, "c-codec");
    device->operations = 1u << NVABI_DEVMEM_ENCODE | 1u << NVABI_DEVMEM_DECODE;
    device->flags = NVABI_DEVMEM_ALLOCATES | NVABI_DEVMEM_IMPORTS;
    return 0;
}

static int codec_sets(uint32_t index, const nvabi_devmem_image *image, uint32_t operation,
                      const nvabi_devmem_sink *sink)
{
    const nvabi_devmem_constraint constraints[] = {
        { .name = NVABI_DEVMEM_PITCH_ALIGNMENT, .value = 64 },
        { .name = NVABI_DEVMEM_ROW_ALIGNMENT, .value = 16 },
    };
    const uint32_t size[] = { 32, 64 };
    const nvabi_devmem_capability tiled = { .vendor = 0x10de, .name = 1, .words = 2, .payload = size };
    const nvabi_devmem_capability linear = { .vendor = NVABI_DEVMEM_VENDOR_BASE,
                                             .name = NVABI_DEVMEM_BASE_PITCH_LINEAR };
    const nvabi_devmem_set sets[] = {
        { .capability_count = 1, .capabilities = &tiled },
        { .constraint_count = 2, .constraints = constraints,
          .capability_count = 1, .capabilities = &linear },
    };

    (void)index;
    if (operation != NVABI_DEVMEM_ENCODE && operation != NVABI_DEVMEM_DECODE)
        return 0;
    if (image->width > 4096 || image->height > 4096)
        return 0;
    sink->add(sink->context, &sets[0]);
    sink->add(sink->context, &sets[1]);
    return 0;
}

/* The codec turns what it decodes by half, and knows nothing else that could be asked for. */
static int codec_sets_for(uint32_t index, const nvabi_devmem_use *use, const nvabi_devmem_sink *sink)
{
    const uint32_t known = NVABI_DEVMEM_ROTATE_0 | NVABI_DEVMEM_ROTATE_180;

    for (uint32_t i = 0; i < use->detail_count; i++) {
        const nvabi_devmem_detail *detail = &use->details[i];

        if (detail->vendor != NVABI_DEVMEM_VENDOR_BASE || detail->name != NVABI_DEVMEM_BASE_TRANSFORM ||
            detail->words != 1)
            return -ENOTSUP;
        if (use->operation != NVABI_DEVMEM_DECODE || detail->payload[0] & ~known)
            return 0;
    }
    return codec_sets(index, &use->image, use->operation, sink);
}

static int codec_hints(uint32_t index, uint32_t operation, nvabi_devmem_hint *hints, uint32_t capacity)
{
    const uint32_t formats[] = { 0x3231564e /* NV12 */, 0x34325258 /* XR24 */ };
    const int count = sizeof formats / sizeof *formats;

    (void)index;
    if (operation != NVABI_DEVMEM_ENCODE && operation != NVABI_DEVMEM_DECODE)
        return 0;
    for (int i = 0; i < count && (uint32_t)i < capacity; i++)
        hints[i] = (nvabi_devmem_hint){ formats[i], 4096, 4096, 0 };
    return count;
}

static uint64_t codec_cost(uint32_t index, const nvabi_devmem_set *set)
{
    (void)index;
    return set->capabilities[0].vendor == 0x10de ? 1 : 2;
}

/* Pages of 4 KiB from anywhere, which the CPU caches: what asks for more is not to be had here. */
static int codec_keeps(const nvabi_devmem_constraint *asked, uint64_t size)
{
    switch (asked->name) {
    case NVABI_DEVMEM_CONTIGUOUS:
        return asked->value == 0 || size <= 4096;
    case NVABI_DEVMEM_PAGE_SIZE:
    case NVABI_DEVMEM_ADDRESS_ALIGNMENT:
        return asked->value == 0 || 4096 % asked->value == 0;
    case NVABI_DEVMEM_PLACEMENT:
        return (asked->value & NVABI_DEVMEM_IN_SYSTEM) != 0;
    case NVABI_DEVMEM_COHERENCY:
        return (asked->value & NVABI_DEVMEM_SEEN_CACHED) != 0;
    default:
        return 1;
    }
}

static int codec_allocate(uint32_t index, const nvabi_devmem_memory *memory)
{
    int fd, error;
    uint32_t at;

    (void)index;
    if (memory->plane_count == 0 || memory->size == 0)
        return -EINVAL;
    for (at = 0; at < memory->set.constraint_count; at++)
        if (!codec_keeps(&memory->set.constraints[at], memory->size))
            return -ENOTSUP;
    fd = memfd_create("c-codec", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)memory->size) != 0) {
        error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

static int codec_import(uint32_t index, int fd, const nvabi_devmem_memory *memory, uint64_t *handle)
{
    struct stat stat;

    (void)index;
    if (fstat(fd, &stat) != 0)
        return -errno;
    if ((uint64_t)stat.st_size < memory->size)
        return -EINVAL;
    *handle = 100 + atomic_fetch_add(&imported, 1);
    return 0;
}

/* Memory in several files: each must have room for the planes that begin in it. */
static int codec_import_files(uint32_t index, const int32_t *fds, uint32_t fd_count,
                              const nvabi_devmem_memory *memory, uint64_t *handle)
{
    uint64_t end = 0;
    struct stat stat;

    (void)index;
    for (uint32_t i = 0; i < fd_count; i++) {
        if (fstat(fds[i], &stat) != 0)
            return -errno;
        end = (end + 4095) / 4096 * 4096 + (uint64_t)stat.st_size;
    }
    if (end < memory->size)
        return -EINVAL;
    *handle = 100 + atomic_fetch_add(&imported, 1);
    return 0;
}

static void codec_release(uint32_t index, uint64_t handle)
{
    (void)index;
    (void)handle;
    atomic_fetch_sub(&imported, 1);
}

static int codec_transition(uint32_t index, uint32_t from, uint32_t to,
                            nvabi_devmem_transition *transition)
{
    (void)index;
    /* The codec looks into the CPU's caches: nothing is written back or dropped. */
    memset(transition, 0, sizeof *transition);
    transition->wait = from != NVABI_DEVMEM_CPU_READ && from != NVABI_DEVMEM_CPU_WRITE && from != to
                           ? NVABI_DEVMEM_WAIT_FENCES : NVABI_DEVMEM_WAIT_NOTHING;
    return 0;
}

const nvabi_devmem_driver *nvabi_devmem_driver_v1(void)
{
    static const nvabi_devmem_driver driver = {
        .version = NVABI_DEVMEM_VERSION,
        .size = sizeof driver,
        .name = "c-codec",
        .device = codec_device,
        .sets = codec_sets,
        .cost = codec_cost,
        .allocate = codec_allocate,
        .import = codec_import,
        .release = codec_release,
        .transition = codec_transition,
        .sets_for = codec_sets_for,
        .hints = codec_hints,
        .import_files = codec_import_files,
    };
    return &driver;
}
