/*
 * An allocator as a compositor has it: for a size, a format and the modifiers that the renderer takes, a dma-buf
 * with its attributes.
 *
 *     cc compositor.c $(pkg-config --cflags --libs nvabi-alloc)
 */
#include <nvabi-alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XRGB8888 0x34325258

/* What a display takes to show a buffer. */
struct dmabuf_attributes {
    int32_t width, height;
    uint32_t format;
    uint64_t modifier;
    int n_planes;
    uint32_t offset[NVABI_DEVMEM_PLANES];
    uint32_t stride[NVABI_DEVMEM_PLANES];
    int fd[NVABI_DEVMEM_PLANES];
};

struct allocator {
    nvabi_alloc *alloc;
    nvabi_alloc_use uses[2];
    uint32_t use_count;
};

/* The display that is there, or none on a machine without one; and the CPU, which draws. */
static int allocator_create(struct allocator *allocator) {
    static nvabi_devmem_device device;
    memset(allocator, 0, sizeof *allocator);
    allocator->alloc = nvabi_alloc_open();
    if (!allocator->alloc)
        return -1;
    const char *problem;
    for (uint32_t i = 0; (problem = nvabi_alloc_problem(allocator->alloc, i)); i++)
        fprintf(stderr, "not asked: %s\n", problem);
    allocator->uses[allocator->use_count++] = (nvabi_alloc_use){ "cpu", NVABI_DEVMEM_CPU_WRITE, 0, NULL };
    for (uint32_t i = 0; nvabi_alloc_device(allocator->alloc, i, &device) == 0; i++) {
        if (device.operations & 1u << NVABI_DEVMEM_SCANOUT) {
            allocator->uses[allocator->use_count++] = (nvabi_alloc_use){ device.name, NVABI_DEVMEM_SCANOUT, 0, NULL };
            break;
        }
    }
    return 0;
}

static int create_buffer(struct allocator *allocator, int32_t width, int32_t height, uint32_t format,
                         const uint64_t *modifiers, uint32_t modifier_count, struct dmabuf_attributes *out) {
    nvabi_devmem_image image = { (uint32_t)width, (uint32_t)height, format, 0 };
    nvabi_alloc_buffer made = { .struct_size = sizeof made };
    int result = nvabi_alloc_make(allocator->alloc, &image, allocator->uses, allocator->use_count, modifiers,
                                  modifier_count, &made);
    if (result < 0)
        return result;
    memset(out, 0, sizeof *out);
    out->width = width;
    out->height = height;
    out->format = format;
    out->modifier = made.modifier;
    out->n_planes = (int)made.plane_count;
    for (uint32_t i = 0; i < made.plane_count; i++) {
        out->offset[i] = (uint32_t)made.planes[i].offset;
        out->stride[i] = (uint32_t)made.planes[i].pitch;
        out->fd[i] = made.fds[i];
    }
    return 0;
}

int main(void) {
    struct allocator allocator;
    struct dmabuf_attributes buffer;
    const uint64_t linear = 0, tiled = 0x0100000000000001;
    if (allocator_create(&allocator) < 0)
        return EXIT_FAILURE;
    if (create_buffer(&allocator, 640, 480, XRGB8888, &linear, 1, &buffer) < 0) {
        fprintf(stderr, "%s\n", nvabi_alloc_error());
        return EXIT_FAILURE;
    }
    printf("%dx%d, modifier %#llx, %d plane, stride %u\n", buffer.width, buffer.height,
           (unsigned long long)buffer.modifier, buffer.n_planes, buffer.stride[0]);
    if (pwrite(buffer.fd[0], "frame", 5, 0) < 0)
        perror("pwrite"); /* a dma-buf is mapped instead */
    for (int i = 0; i < buffer.n_planes; i++)
        close(buffer.fd[i]);
    /* The CPU takes no tiles: the error says what all take. */
    int refused = create_buffer(&allocator, 640, 480, XRGB8888, &tiled, 1, &buffer);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    nvabi_alloc_close(allocator.alloc);
    return EXIT_SUCCESS;
}
