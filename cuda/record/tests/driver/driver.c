/* As much of a CUDA driver as the recorder calls. Memory is the process's; there is one module with one
 * kernel, which does what an instrumented kernel of two warps does. FAIL names a call that fails,
 * STATUS how if not by 2. FAULT is the number of a launch that goes wrong, from 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned Status;
typedef uint64_t Address;

static uint64_t buffer[4]; /* __nvabi_trace */
static struct {
    uint32_t first, count, strings, flags;
    uint64_t key;
    uint32_t file, function, inlined, line, column;
    uint16_t ordinal;
    uint8_t kind, bytes;
    char text[10];
} __attribute__((packed)) sites = {0, 1, 10, 0, 42, 1, 6, 0, 7, 3, 0, 0, 0, "\0k.cu\0run"};

static uint8_t hash[32] = {0xca, 0xfe, [31] = 0x42};

/* A function, and the kernel of a library that it comes of: a driver asks for neither in the place of the other. */
#define FUNCTION (void *)32
#define KERNEL (void *)40

/* Another stream is captured into a graph: 0 says that calls mind it, 2 that they do not. */
static unsigned mode;
#define MINDS_CAPTURES if (mode != 2) return 900

static unsigned launches, faulted;

static Status fails(const char *call) {
    if (faulted) return 700;
    const char *name = getenv("FAIL");
    const char *status = getenv("STATUS");
    return !name || strcmp(name, call) ? 0 : status ? (Status)atoi(status) : 2;
}
#define CALL(name, ...) Status name(__VA_ARGS__)
#define MAY_FAIL do { Status failed = fails(__func__); if (failed) return failed; } while (0)

CALL(cuGetErrorName, Status s, const char **n) { *n = s == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return 0; }
CALL(cuCtxGetCurrent, void **c) { *c = (void *)8; return 0; }
CALL(cuCtxPushCurrent_v2, void *c) { return c != (void *)8; }
CALL(cuCtxPopCurrent_v2, void **c) { *c = (void *)8; return 0; }
CALL(cuCtxGetDevice, int *d) { *d = 0; return 0; }
CALL(cuDeviceGetAttribute, int *v, int a, int d) { *v = a == 75 ? 8 : 6; return d; }
CALL(cuFuncGetModule, void **m, void *f) { MAY_FAIL; if (f != FUNCTION) abort(); *m = (void *)16; return 0; }
CALL(cuLibraryGetKernel, void **k, void *l, const char *n) { *k = KERNEL; return l == 0 || *n == 0; }
CALL(cuKernelGetFunction, void **f, void *k) { if (k != KERNEL) abort(); *f = FUNCTION; return 0; }
CALL(cuFuncGetName, const char **n, void *f) { *n = getenv("NAME") ? getenv("NAME") : "run"; return f == 0; }
CALL(cuModuleGetGlobal_v2, Address *a, size_t *s, void *m, const char *n) {
    (void)m;
    if (strcmp(n, "__nvabi_trace") == 0) { *a = (Address)buffer; *s = sizeof buffer; return 0; }
    if (strcmp(n, "__nvabi_sites") == 0) { *a = (Address)&sites; *s = sizeof sites; return 0; }
    if (strcmp(n, "__nvabi_module_hash") == 0) { *a = (Address)hash; *s = sizeof hash; return 0; }
    return 500;
}
CALL(cuThreadExchangeStreamCaptureMode, unsigned *m) { unsigned was = mode; mode = *m; *m = was; return 0; }
CALL(cuMemAlloc_v2, Address *a, size_t s) { MAY_FAIL; MINDS_CAPTURES; return (*a = (Address)calloc(1, s)) == 0; }
CALL(cuMemFree_v2, Address a) { free((void *)a); return 0; }
CALL(cuMemsetD8Async, Address a, uint8_t v, size_t s, void *q) { MAY_FAIL; (void)q; memset((void *)a, v, s); return 0; }
CALL(cuMemcpyHtoDAsync_v2, Address a, const void *f, size_t s, void *q) { MAY_FAIL; (void)q; memcpy((void *)a, f, s); return 0; }
CALL(cuMemcpyDtoHAsync_v2, void *t, Address a, size_t s, void *q) { MAY_FAIL; (void)q; memcpy(t, (void *)a, s); return 0; }
#ifdef EMULATOR
CALL(nvabi_emu_read, void *t, Address a, size_t s) { memcpy(t, (void *)a, s); return 0; }
#endif
CALL(cuStreamCreate, void **q, unsigned f) { *q = (void *)24; return f != 1; }
CALL(cuStreamWaitEvent, void *q, void *e, unsigned f) { (void)q; (void)e; if (getenv("WAITS")) fputs("waits\n", stderr); return f; }
CALL(cuStreamSynchronize, void *q) { MINDS_CAPTURES; (void)q; return 0; }
CALL(cuStreamIsCapturing, void *q, unsigned *s) { (void)q; *s = getenv("CAPTURING") != 0; return 0; }
CALL(cuEventCreate, void **e, unsigned f) { *e = malloc(1); return f != 2; }
CALL(cuEventRecord, void *e, void *q) { (void)e; (void)q; return 0; }
CALL(cuEventQuery, void *e) { MAY_FAIL; (void)e; return getenv("SLOW") ? 600 : 0; }
CALL(cuEventSynchronize, void *e) { MINDS_CAPTURES; (void)e; return 0; }
CALL(cuEventDestroy_v2, void *e) { free(e); return 0; }

/* Writes 5 while it has regions to write to: what it records is not what it computes. */
CALL(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned s, void *q, void **arguments, void **extra) {
    MAY_FAIL;
    if (mode != 0) return 1;
    (void)f; (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)s; (void)q; (void)extra;
    **(int **)arguments[0] = 5;
    faulted = getenv("FAULT") && ++launches == (unsigned)atoi(getenv("FAULT"));
    if (!buffer[0]) return 0;
    uint32_t capacity = (uint32_t)buffer[2], regions = buffer[2] >> 32;
    for (uint32_t region = 0; region < regions; region++) {
        uint32_t *header = (uint32_t *)(buffer[0] + region * 16);
        uint32_t start = region * (capacity + 3) * 2;
        uint32_t *words = (uint32_t *)buffer[1] + start;
        /* All take it; lanes 0 and 4 do; then, in the second warp, more than fits. */
        uint32_t all[] = {0x08000000, ~0u, 0x18000000, ~0u, 0x11, 0xdeadbeef};
        memcpy(words, all, sizeof all);
        header[0] = region;
        /* The first warp comes to its end; the second one is stopped before it writes its last ballot. */
        if (faulted && region) {
            words[4] = words[5] = 0;
            continue;
        }
        header[1] = start + (region ? capacity * 2 + 12 : 6);
        for (uint32_t at = 3; region && at < capacity; at++) {
            words[at * 2] = 0;
            words[at * 2 + 1] = 1;
        }
    }
    return 0;
}
