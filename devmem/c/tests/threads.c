/*
 * Two threads touch one memory by turns. The ioctl of this program comes before libc's: it answers for a dma-buf,
 * whose beginnings and ends of an access take long, and counts those that meet.
 */
#define _GNU_SOURCE
#include <nvabi-alloc.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* DMA_BUF_IOCTL_SYNC of <linux/dma-buf.h>, and what its flags say. */
#define SYNC 0x40086200ul
#define SYNC_END 4

#define TURNS 100

static const nvabi_devmem_image image = { 64, 64, 0x34325258 /* XR24 */, 0 };

/* Accesses that have begun in the kernel and not ended there, and how often there were two. */
static atomic_int open_accesses, met;
/* Threads that are between begin and end, and how often there were two. */
static atomic_int inside, crowded;

int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (request != SYNC)
        return (int)syscall(SYS_ioctl, fd, request, argument);
    const struct timespec a_while = { .tv_nsec = 200000 };
    if (*(uint64_t *)argument & SYNC_END) {
        nanosleep(&a_while, NULL);
        atomic_fetch_sub(&open_accesses, 1);
    } else if (atomic_fetch_add(&open_accesses, 1) > 0) {
        atomic_fetch_add(&met, 1);
    }
    return 0;
}

static void *touch(void *memory) {
    for (int turn = 0; turn < TURNS;) {
        void *planes[NVABI_DEVMEM_PLANES];
        int result = nvabi_alloc_begin(memory, NVABI_DEVMEM_CPU_WRITE, planes, NVABI_DEVMEM_PLANES);
        if (result == -EBUSY) {
            sched_yield();
            continue;
        }
        if (result < 0)
            return "cannot begin";
        if (atomic_fetch_add(&inside, 1) > 0)
            atomic_fetch_add(&crowded, 1);
        ++*(volatile int *)planes[0];
        atomic_fetch_sub(&inside, 1);
        if (nvabi_alloc_end(memory) < 0)
            return "cannot end";
        turn++;
    }
    return NULL;
}

int main(void) {
    nvabi_alloc_buffer made = { .struct_size = sizeof made };
    nvabi_alloc_use uses[] = { { "cpu", NVABI_DEVMEM_CPU_WRITE, 0, NULL }, { "cpu", NVABI_DEVMEM_CPU_READ, 0, NULL } };
    nvabi_alloc *alloc = nvabi_alloc_open();
    nvabi_alloc_memory *memory;
    void *planes[NVABI_DEVMEM_PLANES], *said;
    pthread_t threads[2];
    if (nvabi_alloc_make(alloc, &image, uses, 2, NULL, 0, &made) < 0 || nvabi_alloc_take(&image, &made, &memory) < 0) {
        printf("no memory: %s\n", nvabi_alloc_error());
        return EXIT_FAILURE;
    }
    for (int at = 0; at < 2; at++)
        pthread_create(&threads[at], NULL, touch, memory);
    for (int at = 0; at < 2; at++) {
        pthread_join(threads[at], &said);
        if (said != NULL)
            printf("%s\n", (const char *)said);
    }
    if (nvabi_alloc_begin(memory, NVABI_DEVMEM_CPU_READ, planes, NVABI_DEVMEM_PLANES) < 0)
        return EXIT_FAILURE;
    printf("%d turns, %d met, %d crowded, %d open\n", *(int *)planes[0], met, crowded, open_accesses);
    nvabi_alloc_end(memory);
    nvabi_alloc_release(memory);
    nvabi_alloc_close(alloc);
    return EXIT_SUCCESS;
}
