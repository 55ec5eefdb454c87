/*
 * nvabi-devmem.h: the interface of plugins that bring devices to nvabi's device memory.
 *
 * A plugin is a shared library that exports one function:
 *
 *     const nvabi_devmem_driver *nvabi_devmem_driver_v1(void);
 *
 * What it returns lives as long as the library is loaded. Any function of it may be called from any
 * thread, and several at once. A function that returns int gives 0 or a positive result, or an error
 * number of errno.h, negated. Whatever a pointer argument leads to is the caller's and is not kept.
 * Fields called reserved are zero.
 *
 * A manifest makes a plugin known: a file NAME.json in /usr/share/nvabi/devmem.d,
 * /etc/nvabi/devmem.d or $XDG_DATA_HOME/nvabi/devmem.d that says
 *
 *     { "file_format_version": "1.0.0", "devmem": { "library_path": "libexample.so" } }
 */
#ifndef NVABI_DEVMEM_H
#define NVABI_DEVMEM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. */
#define NVABI_DEVMEM_VERSION 1

/* The longest name of a device and the longest path of its node, with the zero byte. */
#define NVABI_DEVMEM_NAME 64
#define NVABI_DEVMEM_NODE 128

/* What a device does with memory. */
#define NVABI_DEVMEM_CPU_READ 1
#define NVABI_DEVMEM_CPU_WRITE 2
#define NVABI_DEVMEM_TEXTURE 3
#define NVABI_DEVMEM_RENDER 4
#define NVABI_DEVMEM_SCANOUT 5
#define NVABI_DEVMEM_CAPTURE 6
#define NVABI_DEVMEM_ENCODE 7
#define NVABI_DEVMEM_DECODE 8
#define NVABI_DEVMEM_COPY 9
#define NVABI_DEVMEM_CONVERT_READ 10
#define NVABI_DEVMEM_CONVERT_WRITE 11

/* Names of constraints. Values are in bytes where nothing else is said. */
#define NVABI_DEVMEM_ADDRESS_ALIGNMENT 0
#define NVABI_DEVMEM_PITCH_ALIGNMENT 1          /* 32 bits */
#define NVABI_DEVMEM_MAX_PITCH 2                /* 32 bits */
#define NVABI_DEVMEM_OFFSET_ALIGNMENT 0x6e760000
#define NVABI_DEVMEM_SIZE_ALIGNMENT 0x6e760001
#define NVABI_DEVMEM_ROW_PADDING 0x6e760002
#define NVABI_DEVMEM_SIZE_PADDING 0x6e760003
#define NVABI_DEVMEM_CONTIGUOUS 0x6e760004      /* 1: in one piece */
#define NVABI_DEVMEM_ADDRESS_BITS 0x6e760005    /* bits */
#define NVABI_DEVMEM_PAGE_SIZE 0x6e760006
#define NVABI_DEVMEM_PLACEMENT 0x6e760007       /* NVABI_DEVMEM_IN_* */
#define NVABI_DEVMEM_COHERENCY 0x6e760008       /* NVABI_DEVMEM_SEEN_* */
#define NVABI_DEVMEM_MAX_SIZE 0x6e760009
#define NVABI_DEVMEM_ROW_ALIGNMENT 0x6e76000a   /* rows */
#define NVABI_DEVMEM_MADE_BY 0x6e76000b         /* st_rdev of the only device whose memory is taken */
#define NVABI_DEVMEM_FILES 0x6e76000c           /* 1, or one for each plane */

/* Heaps that memory may be in. */
#define NVABI_DEVMEM_IN_SYSTEM 1
#define NVABI_DEVMEM_IN_CONTIGUOUS 2
#define NVABI_DEVMEM_IN_LOCAL 4
#define NVABI_DEVMEM_IN_CARVEOUT 8
#define NVABI_DEVMEM_IN_PROTECTED 16

/* How the CPU may see memory. */
#define NVABI_DEVMEM_SEEN_CACHED 1
#define NVABI_DEVMEM_SEEN_WRITE_COMBINED 2
#define NVABI_DEVMEM_SEEN_UNCACHED 4

/* Vendors of capabilities that are no PCI vendors, and their names. */
#define NVABI_DEVMEM_VENDOR_BASE 0
#define NVABI_DEVMEM_BASE_PITCH_LINEAR 0        /* no payload */
#define NVABI_DEVMEM_VENDOR_DRM 0x004d5244
#define NVABI_DEVMEM_DRM_MODIFIER 1             /* payload: low and high half; never 0, which is pitch-linear */
#define NVABI_DEVMEM_DRM_IMPLICIT 2             /* payload: two words that no other device has */

/* The detail of NVABI_DEVMEM_VENDOR_BASE that says how an image is turned: one word, of these bits. */
#define NVABI_DEVMEM_BASE_TRANSFORM 0
#define NVABI_DEVMEM_ROTATE_0 1
#define NVABI_DEVMEM_ROTATE_90 2                /* against the clock */
#define NVABI_DEVMEM_ROTATE_180 4
#define NVABI_DEVMEM_ROTATE_270 8
#define NVABI_DEVMEM_REFLECT_X 16               /* left and right change places */
#define NVABI_DEVMEM_REFLECT_Y 32

/* What can be done with a device. */
#define NVABI_DEVMEM_ALLOCATES 1
#define NVABI_DEVMEM_IMPORTS 2

/* What to wait for in a transition. */
#define NVABI_DEVMEM_WAIT_NOTHING 0
#define NVABI_DEVMEM_WAIT_FENCES 1              /* those of the dma-buf */
#define NVABI_DEVMEM_WAIT_DEVICE 2              /* the device's own interface says when */

/* A device. Texts end with a zero byte. */
typedef struct nvabi_devmem_device {
    char name[NVABI_DEVMEM_NAME];   /* unlike that of any other on this machine */
    char node[NVABI_DEVMEM_NODE];   /* its file, or empty */
    uint32_t operations;            /* bit n: it does the operation of number n */
    uint32_t flags;                 /* NVABI_DEVMEM_ALLOCATES, NVABI_DEVMEM_IMPORTS */
} nvabi_devmem_device;

typedef struct nvabi_devmem_image {
    uint32_t width;                 /* pixels */
    uint32_t height;                /* pixels */
    uint32_t format;                /* DRM fourcc */
    uint32_t reserved;
} nvabi_devmem_image;

typedef struct nvabi_devmem_constraint {
    uint32_t name;
    uint32_t reserved;
    uint64_t value;
} nvabi_devmem_constraint;

typedef struct nvabi_devmem_capability {
    uint32_t vendor;
    uint16_t name;
    uint16_t words;                 /* of the payload */
    uint32_t required;              /* 0 or 1 */
    uint32_t reserved;
    const uint32_t *payload;        /* unused bytes of it are zero */
} nvabi_devmem_capability;

typedef struct nvabi_devmem_set {
    uint32_t constraint_count;
    uint32_t capability_count;
    const nvabi_devmem_constraint *constraints;
    const nvabi_devmem_capability *capabilities;
} nvabi_devmem_set;

/* What is asked for besides an operation: what a vendor defines, or how the image is turned. */
typedef struct nvabi_devmem_detail {
    uint32_t vendor;
    uint16_t name;
    uint16_t words;                 /* of the payload */
    const uint32_t *payload;
} nvabi_devmem_detail;

/* All that is asked of a device. */
typedef struct nvabi_devmem_use {
    nvabi_devmem_image image;
    uint32_t operation;
    uint32_t detail_count;
    const nvabi_devmem_detail *details;
} nvabi_devmem_use;

/* A format that a device takes, and its largest image in pixels. */
typedef struct nvabi_devmem_hint {
    uint32_t format;                /* DRM fourcc */
    uint32_t max_width;
    uint32_t max_height;
    uint32_t reserved;
} nvabi_devmem_hint;

/* In bytes. Files of memory are one behind the other, each from the next page of the machine on: offsets are from the
 * start of the first. */
typedef struct nvabi_devmem_plane {
    uint64_t offset;
    uint64_t pitch;
    uint64_t size;
} nvabi_devmem_plane;

/* Memory that is wanted, or there. */
typedef struct nvabi_devmem_memory {
    nvabi_devmem_image image;
    nvabi_devmem_set set;
    uint64_t modifier;              /* DRM format modifier */
    uint64_t size;                  /* bytes of all planes */
    uint32_t plane_count;
    uint32_t reserved;
    const nvabi_devmem_plane *planes;
} nvabi_devmem_memory;

typedef struct nvabi_devmem_transition {
    uint32_t wait;                  /* NVABI_DEVMEM_WAIT_* */
    uint32_t write_back;            /* 1: write back what the CPU's caches hold */
    uint32_t invalidate;            /* 1: drop what the CPU's caches hold */
    uint32_t reserved;
} nvabi_devmem_transition;

/* Where the sets of a device go: call add for each; it copies what it is given. */
typedef struct nvabi_devmem_sink {
    void *context;
    void (*add)(void *context, const nvabi_devmem_set *set);
} nvabi_devmem_sink;

/* A driver. Functions from cost on may be null: then costs are 0, and the device has no such
 * operation, or the transition that is always right. A driver may end before sets_for, and say so in its size. */
typedef struct nvabi_devmem_driver {
    uint32_t version;               /* NVABI_DEVMEM_VERSION */
    uint32_t size;                  /* sizeof(nvabi_devmem_driver) */
    const char *name;
    /* Describes the device of this index. -ENODEV: there are no more. */
    int (*device)(uint32_t index, nvabi_devmem_device *device);
    /* Adds each way in which the device can do the operation with the image. */
    int (*sets)(uint32_t index, const nvabi_devmem_image *image, uint32_t operation,
                const nvabi_devmem_sink *sink);
    /* What memory of this kind costs the device; 0 is the best. */
    uint64_t (*cost)(uint32_t index, const nvabi_devmem_set *set);
    /* Makes memory and returns a file descriptor of it, which is the caller's. -ENOTSUP: it cannot keep to a constraint
     * of the set, which nobody else can know (NVABI_DEVMEM_CONTIGUOUS, _PLACEMENT and their like). The CPU maps a
     * dma-buf, or a memfd that can be sealed against getting smaller (MFD_ALLOW_SEALING), and nothing else. */
    int (*allocate)(uint32_t index, const nvabi_devmem_memory *memory);
    /* Takes memory that another made, until it is released. fd stays the caller's. */
    int (*import)(uint32_t index, int fd, const nvabi_devmem_memory *memory, uint64_t *handle);
    /* Lets go of what was imported. */
    void (*release)(uint32_t index, uint64_t handle);
    /* Says what must be done between two operations, of which this device does one at least. */
    int (*transition)(uint32_t index, uint32_t from, uint32_t to,
                      nvabi_devmem_transition *transition);
    /* As sets, with details. -ENOTSUP: the device does not know one of them. Null: it knows none. */
    int (*sets_for)(uint32_t index, const nvabi_devmem_use *use, const nvabi_devmem_sink *sink);
    /* The formats that the device takes for an operation: their count. No more than capacity are written. Null: sets
     * are asked for each format. */
    int (*hints)(uint32_t index, uint32_t operation, nvabi_devmem_hint *hints, uint32_t capacity);
    /* As allocate, with a file for each plane: as many descriptors as planes are written. When it fails it has closed
     * those that it made. Null: allocate is asked for each plane. */
    int (*allocate_files)(uint32_t index, const nvabi_devmem_memory *memory, int32_t *fds);
    /* As import, of memory in several files. Null: the device takes none. */
    int (*import_files)(uint32_t index, const int32_t *fds, uint32_t fd_count, const nvabi_devmem_memory *memory,
                        uint64_t *handle);
} nvabi_devmem_driver;

const nvabi_devmem_driver *nvabi_devmem_driver_v1(void);

#ifdef __cplusplus
}
#endif

#endif
