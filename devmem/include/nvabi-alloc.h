/*
 * nvabi-alloc.h: device memory for applications: one buffer that several devices of this machine use.
 *
 *     nvabi_alloc *alloc = nvabi_alloc_open();
 *     nvabi_alloc_use uses[] = { { "drm:card0", NVABI_DEVMEM_SCANOUT }, { "cpu", NVABI_DEVMEM_CPU_WRITE } };
 *     nvabi_devmem_image image = { 1280, 720, 0x34325258, 0 };
 *     nvabi_alloc_buffer buffer = { .struct_size = sizeof buffer };
 *     if (nvabi_alloc_make(alloc, &image, uses, 2, NULL, 0, &buffer) < 0)
 *         fprintf(stderr, "%s\n", nvabi_alloc_error());
 *
 * A function that returns int gives 0, a count or a file descriptor, or an error number of errno.h, negated;
 * nvabi_alloc_error then says why, in the same thread. Any function may be called from any thread, and several at once.
 * Whatever a pointer argument leads to is the caller's and is not kept. Fields called reserved are zero.
 */
#ifndef NVABI_ALLOC_H
#define NVABI_ALLOC_H

#include "nvabi-devmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface, which the library's name ends with: what is compiled for it runs with any library of
 * that name. */
#define NVABI_ALLOC_VERSION 1

/* The most planes of an image. */
#define NVABI_DEVMEM_PLANES 4

/* The devices of this machine, as they are when it is opened. */
typedef struct nvabi_alloc nvabi_alloc;

/* What one device does with memory. */
typedef struct nvabi_alloc_use {
    const char *device;             /* its name */
    uint32_t operation;             /* NVABI_DEVMEM_TEXTURE, ... */
    uint32_t detail_count;
    const nvabi_devmem_detail *details; /* what else is asked of the device; it refuses what it does not know */
} nvabi_alloc_use;

/* All that is to be done with memory. What is asked of the image every device that uses it must know, or it refuses. */
typedef struct nvabi_alloc_usage {
    uint32_t struct_size;           /* the caller's sizeof this: what is behind the fields that are known here is zero */
    uint32_t use_count;
    uint32_t detail_count;
    uint32_t reserved;
    nvabi_devmem_image image;
    const nvabi_alloc_use *uses;
    const nvabi_devmem_detail *details; /* what else is asked of the image, whoever uses it */
} nvabi_alloc_usage;

/* Memory that was made. */
typedef struct nvabi_alloc_buffer {
    uint32_t struct_size;           /* the caller's sizeof this: no more is written, so that fields can be added */
    uint32_t plane_count;
    uint64_t modifier;              /* DRM format modifier */
    uint64_t size;                  /* bytes of all planes */
    nvabi_devmem_plane planes[NVABI_DEVMEM_PLANES]; /* offsets are in the file of the plane's descriptor */
    int32_t fds[NVABI_DEVMEM_PLANES]; /* one for each plane, to be closed by the caller; others are -1 */
    char allocator[NVABI_DEVMEM_NAME]; /* the device that made it */
} nvabi_alloc_buffer;

/* The NVABI_ALLOC_VERSION of the library. */
uint32_t nvabi_alloc_version(void);

/* Null when something is badly wrong; what cannot be asked nvabi_alloc_problem tells. */
nvabi_alloc *nvabi_alloc_open(void);
void nvabi_alloc_close(nvabi_alloc *alloc);

/* Why devices that may be there are not among these: a driver or plugin and what it said, by index from 0; null when
 * there are no more. It is there until it is closed. */
const char *nvabi_alloc_problem(const nvabi_alloc *alloc, uint32_t index);

/* Asks these devices for memory first, in this order, and others by their costs. It is called before others use
 * alloc. -ENODEV: there is no such device, and nothing has changed. */
int nvabi_alloc_prefer(nvabi_alloc *alloc, const char *const *devices, uint32_t device_count);

/* Why the last function that was called in this thread failed; empty when none did. It is there until the next
 * call of this thread. */
const char *nvabi_alloc_error(void);

/* Describes the device of this index. -ENODEV: there are no more. */
int nvabi_alloc_device(const nvabi_alloc *alloc, uint32_t index, nvabi_devmem_device *device);

/* Describes the device whose file a descriptor is of, or one of the same hardware: of a card its render node.
 * -ENODEV: none of these. */
int nvabi_alloc_device_of_fd(const nvabi_alloc *alloc, int fd, nvabi_devmem_device *device);

/* The formats that a device takes for an operation, as DRM numbers them: their count. No more than capacity are
 * written. */
int nvabi_alloc_formats(const nvabi_alloc *alloc, const nvabi_alloc_use *use, uint32_t *formats,
                        uint32_t capacity);

/* The largest image of a format that a device takes for an operation, in pixels. -ENOTSUP: it does not take the
 * format. */
int nvabi_alloc_max_size(const nvabi_alloc *alloc, const nvabi_alloc_use *use, uint32_t format, uint32_t *width,
                         uint32_t *height);

/* The modifiers with which all can use the image: their count. No more than capacity are written. -ENODEV: a device is
 * not there. */
int nvabi_alloc_modifiers(const nvabi_alloc *alloc, const nvabi_devmem_image *image, const nvabi_alloc_use *uses,
                          uint32_t use_count, uint64_t *modifiers, uint32_t capacity);

/* Makes memory that all take; with one of these modifiers, where there are any. -ENODEV: a device is not there. */
int nvabi_alloc_make(const nvabi_alloc *alloc, const nvabi_devmem_image *image, const nvabi_alloc_use *uses,
                     uint32_t use_count, const uint64_t *modifiers, uint32_t modifier_count,
                     nvabi_alloc_buffer *buffer);

/* The same two, with what is asked of the image besides. */
int nvabi_alloc_modifiers_for(const nvabi_alloc *alloc, const nvabi_alloc_usage *usage, uint64_t *modifiers,
                              uint32_t capacity);
int nvabi_alloc_make_for(const nvabi_alloc *alloc, const nvabi_alloc_usage *usage, const uint64_t *modifiers,
                         uint32_t modifier_count, nvabi_alloc_buffer *buffer);

/* Memory as this process uses it. */
typedef struct nvabi_alloc_memory nvabi_alloc_memory;

/* Takes memory that nvabi_alloc_make made, or that another process or library handed on with its modifier, planes and
 * file descriptors; size and allocator are not looked at. Planes that have no room for the image or are outside of
 * their files are refused. The descriptors stay the caller's. */
int nvabi_alloc_take(const nvabi_devmem_image *image, const nvabi_alloc_buffer *buffer, nvabi_alloc_memory **memory);
/* Ends an access that was not ended. Nobody uses the memory meanwhile. */
void nvabi_alloc_release(nvabi_alloc_memory *memory);

/* Begins to use memory with the CPU, to read (NVABI_DEVMEM_CPU_READ) or to write and read (NVABI_DEVMEM_CPU_WRITE):
 * waits for devices that use it, and sees to it that the CPU sees what they wrote. Writes where each plane begins: the
 * count of planes, of which no more than capacity are written. The places are good until the access ends.
 * A memfd is sealed against getting smaller; what is neither a dma-buf nor can be sealed is refused. While one thread
 * waits here, others wait for it. -EBUSY: an access has begun and not ended. */
int nvabi_alloc_begin(nvabi_alloc_memory *memory, uint32_t operation, void **planes, uint32_t capacity);
/* Ends the access: devices see what was written. -EINVAL: none has begun. */
int nvabi_alloc_end(nvabi_alloc_memory *memory);

/* Waits until devices that use the memory are finished, as NVABI_DEVMEM_CPU_READ or NVABI_DEVMEM_CPU_WRITE needs it.
 * -ETIMEDOUT: they are not, after so many milliseconds. */
int nvabi_alloc_wait(const nvabi_alloc_memory *memory, uint32_t operation, uint32_t milliseconds);
/* A sync file of what must be waited for, for a device that waits explicitly; the caller closes it. Memory that is no
 * dma-buf has none. Linux 6.0. */
int nvabi_alloc_export_fence(const nvabi_alloc_memory *memory, uint32_t operation);
/* Lets others wait for a sync file, of work that reads the memory or writes it. Linux 6.0. */
int nvabi_alloc_import_fence(const nvabi_alloc_memory *memory, uint32_t operation, int fence);
/* Waits for a sync file. -ETIMEDOUT: after so many milliseconds. -ENOTTY: it is none, such as another file under a
 * number that was closed. */
int nvabi_alloc_wait_fence(int fence, uint32_t milliseconds);

#ifdef __cplusplus
}
#endif

#endif
