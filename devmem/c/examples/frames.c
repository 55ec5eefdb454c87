/*
 * Two ends of a pipe for frames: one makes memory and draws, the other takes what was handed on and looks at it.
 *
 *     cc frames.c $(pkg-config --cflags --libs nvabi-alloc)
 */
#define _GNU_SOURCE /* F_GET_SEALS */
#include <nvabi-alloc.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WIDTH 320
#define HEIGHT 240

static const nvabi_devmem_image image = { WIDTH, HEIGHT, 0x3231564e /* NV12 */, 0 };

static int failed(const char *what, int result) {
    printf("%s: %d: %s\n", what, result, nvabi_alloc_error());
    return EXIT_FAILURE;
}

/* Memory of which the CPU is both ends. */
static int make(nvabi_alloc_buffer *buffer) {
    nvabi_alloc *alloc = nvabi_alloc_open();
    nvabi_alloc_use uses[] = { { "cpu", NVABI_DEVMEM_CPU_WRITE, 0, NULL }, { "cpu", NVABI_DEVMEM_CPU_READ, 0, NULL } };
    int result = nvabi_alloc_make(alloc, &image, uses, 2, NULL, 0, buffer);
    nvabi_alloc_close(alloc);
    return result;
}

/* Grey, and in each row of the first plane its number. */
static int draw(nvabi_alloc_memory *memory, const nvabi_alloc_buffer *buffer) {
    void *planes[NVABI_DEVMEM_PLANES];
    int count = nvabi_alloc_begin(memory, NVABI_DEVMEM_CPU_WRITE, planes, NVABI_DEVMEM_PLANES);
    if (count < 0)
        return count;
    for (size_t row = 0; row < HEIGHT; row++)
        memset((char *)planes[0] + row * buffer->planes[0].pitch, (int)row, WIDTH);
    for (size_t row = 0; row < HEIGHT / 2; row++)
        memset((char *)planes[1] + row * buffer->planes[1].pitch, 128, WIDTH);
    return nvabi_alloc_end(memory);
}

static int is_right(nvabi_alloc_memory *memory, const nvabi_alloc_buffer *buffer) {
    void *planes[NVABI_DEVMEM_PLANES];
    int right = 1;
    if (nvabi_alloc_begin(memory, NVABI_DEVMEM_CPU_READ, planes, NVABI_DEVMEM_PLANES) < 0)
        return 0;
    for (size_t row = 0; row < HEIGHT; row++)
        right &= ((unsigned char *)planes[0])[row * buffer->planes[0].pitch + WIDTH - 1] == (unsigned char)row;
    right &= ((unsigned char *)planes[1])[(HEIGHT / 2 - 1) * buffer->planes[1].pitch + WIDTH - 1] == 128;
    return nvabi_alloc_end(memory) == 0 && right;
}

/* A device that waits explicitly is handed what must be waited for; memory that is no dma-buf has no fences. */
static int hand_on_fences(const nvabi_alloc_memory *memory) {
    int fence = nvabi_alloc_export_fence(memory, NVABI_DEVMEM_CPU_WRITE);
    if (fence < 0)
        return fence;
    int result = nvabi_alloc_wait_fence(fence, 1000);
    if (result == 0)
        result = nvabi_alloc_import_fence(memory, NVABI_DEVMEM_CPU_READ, fence);
    close(fence);
    return result;
}

int main(void) {
    nvabi_alloc_buffer made = { .struct_size = sizeof made };
    nvabi_alloc_memory *ours, *theirs;
    void *planes[NVABI_DEVMEM_PLANES];
    int result = make(&made);
    if (result < 0)
        return failed("make", result);
    if ((result = nvabi_alloc_take(&image, &made, &ours)) < 0 || (result = draw(ours, &made)) < 0)
        return failed("draw", result);
    /* What another process has is the descriptors and where the planes are. */
    nvabi_alloc_buffer sent = { .struct_size = sizeof sent, .plane_count = made.plane_count, .modifier = made.modifier };
    memcpy(sent.planes, made.planes, sizeof sent.planes);
    memcpy(sent.fds, made.fds, sizeof sent.fds);
    if ((result = nvabi_alloc_take(&image, &sent, &theirs)) < 0)
        return failed("take", result);
    result = nvabi_alloc_wait(theirs, NVABI_DEVMEM_CPU_READ, 1000);
    printf("waited: %d\n%s\n", result, is_right(theirs, &sent) ? "the frame has arrived" : "another frame");
    /* A memfd has seals, a dma-buf has fences. */
    int is_dma_buf = fcntl(made.fds[0], F_GET_SEALS) < 0;
    result = hand_on_fences(theirs);
    printf("%s\n", result == (is_dma_buf ? 0 : -ENOTTY) ? "fences where they are" : nvabi_alloc_error());

    /* What is wrong is told. */
    result = nvabi_alloc_end(theirs);
    printf("%d: %s\n", result, nvabi_alloc_error());
    nvabi_alloc_begin(theirs, NVABI_DEVMEM_CPU_READ, planes, 1);
    result = nvabi_alloc_begin(theirs, NVABI_DEVMEM_CPU_READ, planes, 1);
    printf("%d: %s\n", result, nvabi_alloc_error());
    nvabi_alloc_release(theirs); /* with an access that has not ended */
    theirs = NULL;
    result = nvabi_alloc_begin(ours, NVABI_DEVMEM_SCANOUT, planes, 1);
    printf("%d: %s\n", result, nvabi_alloc_error());
    sent.planes[1].offset = made.planes[1].offset + 65536;
    result = nvabi_alloc_take(&image, &sent, &theirs);
    printf("%d: a plane %s\n", result, strstr(nvabi_alloc_error(), "of its file") ? "behind its file" : "?");
    sent.planes[1] = made.planes[1];
    sent.planes[0].pitch = 64;
    result = nvabi_alloc_take(&image, &sent, &theirs);
    printf("%d: %s\n", result, nvabi_alloc_error());
    sent.planes[0] = made.planes[0];
    sent.fds[1] = -1;
    result = nvabi_alloc_take(&image, &sent, &theirs);
    printf("%d: %s\n", result, nvabi_alloc_error());
    sent.plane_count = NVABI_DEVMEM_PLANES + 1;
    result = nvabi_alloc_take(&image, &sent, &theirs);
    printf("%d: %s\n", result, nvabi_alloc_error());
    sent.plane_count = 1;
    result = nvabi_alloc_take(&image, &sent, &theirs);
    printf("%d: %s\n", result, nvabi_alloc_error());
    int fence = eventfd(1, EFD_CLOEXEC); /* it can be waited for, and is no sync file */
    result = nvabi_alloc_wait_fence(fence, 1000);
    printf("%d: %s\n", result, nvabi_alloc_error());
    close(fence);
    result = nvabi_alloc_wait_fence(-1, 0);
    printf("%d: %s\n", result, nvabi_alloc_error());
    nvabi_alloc_release(ours);
    nvabi_alloc_release(theirs);
    for (uint32_t plane = 0; plane < made.plane_count; plane++)
        close(made.fds[plane]);
    return EXIT_SUCCESS;
}
