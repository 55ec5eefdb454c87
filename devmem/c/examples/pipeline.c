/*
 * A negotiation as a pipeline of media elements makes it: which formats both elements take, with which modifiers,
 * and a buffer pool of what was agreed.
 *
 *     cc pipeline.c $(pkg-config --cflags --libs nvabi-alloc)
 */
#include <nvabi-alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 256
#define POOL 3

static int takes(const uint32_t *formats, int count, uint32_t format) {
    for (int i = 0; i < count && i < MOST; i++)
        if (formats[i] == format)
            return 1;
    return 0;
}

int main(void) {
    nvabi_alloc *alloc = nvabi_alloc_open();
    if (!alloc)
        return EXIT_FAILURE;
    /* A source and a sink; here the CPU is both. */
    nvabi_alloc_use uses[] = {
        { "cpu", NVABI_DEVMEM_CPU_WRITE, 0, NULL },
        { "cpu", NVABI_DEVMEM_CPU_READ, 0, NULL },
    };
    uint32_t source[MOST], sink[MOST];
    int sources = nvabi_alloc_formats(alloc, &uses[0], source, MOST);
    int sinks = nvabi_alloc_formats(alloc, &uses[1], sink, MOST);
    if (sources < 0 || sinks < 0) {
        fprintf(stderr, "%s\n", nvabi_alloc_error());
        return EXIT_FAILURE;
    }
    const uint32_t nv12 = 0x3231564e;
    printf("NV12: %s\n", takes(source, sources, nv12) && takes(sink, sinks, nv12) ? "both" : "not both");

    nvabi_devmem_image image = { 320, 240, nv12, 0 };
    uint64_t modifiers[MOST];
    int count = nvabi_alloc_modifiers(alloc, &image, uses, 2, modifiers, MOST);
    if (count < 1) {
        fprintf(stderr, "%d: %s\n", count, nvabi_alloc_error());
        return EXIT_FAILURE;
    }
    if (count > MOST)
        count = MOST; /* so many were written */
    printf("%d modifier, the first is %#llx\n", count, (unsigned long long)modifiers[0]);
    for (int i = 0; i < POOL; i++) {
        nvabi_alloc_buffer buffer = { .struct_size = sizeof buffer };
        if (nvabi_alloc_make(alloc, &image, uses, 2, modifiers, (uint32_t)count, &buffer) < 0) {
            fprintf(stderr, "%s\n", nvabi_alloc_error());
            return EXIT_FAILURE;
        }
        printf("%llu bytes in %u planes by %s\n", (unsigned long long)buffer.size, buffer.plane_count,
               buffer.allocator);
        for (uint32_t plane = 0; plane < buffer.plane_count; plane++)
            close(buffer.fds[plane]);
    }

    /* What is wrong is told. */
    nvabi_alloc_use nobody = { "nobody", NVABI_DEVMEM_RENDER, 0, NULL };
    int refused = nvabi_alloc_modifiers(alloc, &image, &nobody, 1, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    nvabi_alloc_buffer buffer = { .struct_size = sizeof buffer };
    refused = nvabi_alloc_make(alloc, &image, &nobody, 1, NULL, 0, &buffer);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    const char *const names[] = { "cpu", "nobody" };
    refused = nvabi_alloc_prefer(alloc, names, 2);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    printf("prefer: %d\n", nvabi_alloc_prefer(alloc, names, 1));
    if (nvabi_alloc_make(alloc, &image, uses, 2, NULL, 0, &buffer) == 0) {
        printf("made with cpu first: %s\n", buffer.allocator);
        for (uint32_t plane = 0; plane < buffer.plane_count; plane++)
            close(buffer.fds[plane]);
    }
    refused = nvabi_alloc_make(alloc, &image, uses, 2, NULL, 0, NULL);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    buffer.struct_size = 8;
    refused = nvabi_alloc_make(alloc, &image, uses, 2, NULL, 0, &buffer);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    printf("version %u, and %s\n", nvabi_alloc_version(),
           nvabi_alloc_version() == NVABI_ALLOC_VERSION ? "the header's" : "not the header's");
    const uint32_t quarter = NVABI_DEVMEM_ROTATE_90, plain = NVABI_DEVMEM_ROTATE_0;
    nvabi_devmem_detail turned = { NVABI_DEVMEM_VENDOR_BASE, NVABI_DEVMEM_BASE_TRANSFORM, 1, &quarter };
    nvabi_alloc_use turning = { "cpu", NVABI_DEVMEM_CPU_READ, 1, &turned };
    refused = nvabi_alloc_modifiers(alloc, &image, &turning, 1, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    turned.payload = &plain;
    printf("as it is: %d\n", nvabi_alloc_modifiers(alloc, &image, &turning, 1, modifiers, MOST));
    turned.payload = NULL;
    refused = nvabi_alloc_modifiers(alloc, &image, &turning, 1, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());

    /* What is asked of the image is asked of all who use it. */
    const uint32_t word = 1;
    nvabi_devmem_detail detail = { 0x10de, 3, 1, &word };
    struct {
        nvabi_alloc_usage usage;
        uint64_t more; /* a field that a later header may have */
    } of_image = { { sizeof of_image, 2, 1, 0, image, uses, &detail }, 0 };
    nvabi_alloc_usage *usage = &of_image.usage;
    buffer.struct_size = sizeof buffer;
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("of the image: %d: %s\n", refused, nvabi_alloc_error());
    refused = nvabi_alloc_make_for(alloc, usage, NULL, 0, &buffer);
    printf("of the image: %d: %s\n", refused, nvabi_alloc_error());
    detail = (nvabi_devmem_detail){ NVABI_DEVMEM_VENDOR_BASE, NVABI_DEVMEM_BASE_TRANSFORM, 1, &plain };
    count = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    if (nvabi_alloc_make_for(alloc, usage, modifiers, 1, &buffer) == 0) {
        printf("of the image as it is: %d, %llu bytes\n", count, (unsigned long long)buffer.size);
        for (uint32_t plane = 0; plane < buffer.plane_count; plane++)
            close(buffer.fds[plane]);
    }
    usage->struct_size = 8;
    refused = nvabi_alloc_make_for(alloc, usage, NULL, 0, &buffer);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->struct_size = sizeof of_image;
    of_image.more = 1;
    refused = nvabi_alloc_make_for(alloc, usage, NULL, 0, &buffer);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->struct_size = UINT32_MAX;
    refused = nvabi_alloc_make_for(alloc, usage, NULL, 0, &buffer);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->struct_size = sizeof *usage;
    usage->reserved = 1;
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->reserved = 0;
    usage->image.reserved = 1;
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->image.reserved = 0;
    usage->image.width = 0;
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->image.width = image.width;
    usage->use_count = UINT32_MAX;
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->use_count = 1;
    usage->uses = (const void *)((const char *)uses + 1);
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    usage->use_count = 0;
    refused = nvabi_alloc_modifiers_for(alloc, usage, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    refused = nvabi_alloc_modifiers_for(alloc, NULL, modifiers, MOST);
    printf("%d: %s\n", refused, nvabi_alloc_error());

    nvabi_devmem_device device;
    refused = nvabi_alloc_device_of_fd(alloc, 0, &device);
    printf("%d: %s\n", refused, nvabi_alloc_error());
    nvabi_alloc_close(alloc);
    return EXIT_SUCCESS;
}
