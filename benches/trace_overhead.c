/* Runs the twelve kernels of cuda/kernels/classic.cu from PTX, recording if they are instrumented.
 *
 *     trace_overhead PTX SAMPLE_EVERY SCALE RUNS
 *
 * SAMPLE_EVERY is 0 where another recorder is preloaded.
 *
 * A line for each: its name, a hash of what it computed, the median of its milliseconds, and how many
 * words of events did not fit.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../trace/include/nvabi_trace.h"

typedef uint64_t Address;
int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuModuleGetGlobal_v2(Address *, size_t *, void *, const char *);
int cuMemAlloc_v2(Address *, size_t), cuMemsetD8_v2(Address, unsigned char, size_t);
int cuMemcpyHtoD_v2(Address, const void *, size_t), cuMemcpyDtoH_v2(void *, Address, size_t);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventSynchronize(void *);
int cuEventElapsedTime(float *, void *, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                   void **);

#define CHECK(call) check(call, #call)
static void check(int code, const char *call) {
    if (code) {
        fprintf(stderr, "trace_overhead: %s: error %d\n", call, code);
        exit(1);
    }
}

static Address device(const void *from, size_t size) {
    Address to;
    CHECK(cuMemAlloc_v2(&to, size));
    CHECK(from ? cuMemcpyHtoD_v2(to, from, size) : cuMemsetD8_v2(to, 0, size));
    return to;
}

static void *host(size_t size) {
    void *memory = malloc(size);
    if (!memory) check(1, "malloc");
    return memory;
}

static uint32_t noise(void) {
    static uint32_t state = 1;
    state = state * 747796405u + 2891336453u;
    return (state >> 16) ^ (state << 9);
}

static uint64_t hash(uint64_t hash, Address from, size_t size) {
    unsigned char *bytes = host(size);
    CHECK(cuMemcpyDtoH_v2(bytes, from, size));
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3;
    free(bytes);
    return hash;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static char *text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) perror(path), exit(1);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    char *text = host(size + 1);
    text[fread(text, 1, size, file)] = 0;
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 5) return fputs("usage: trace_overhead PTX SAMPLE_EVERY SCALE RUNS\n", stderr), 2;
    unsigned every = atoi(argv[2]), scale = atoi(argv[3]), runs = atoi(argv[4]);
    void *context, *module, *start, *end;
    int number;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&number, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, number));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, text(argv[1])));
    CHECK(cuEventCreate(&start, 0));
    CHECK(cuEventCreate(&end, 0));

    /* n elements, n rows of up to 15 entries, a plane of 256 columns, matrices of m by m, b bodies. */
    unsigned n = 16384 * scale, h = n / 256, m = scale == 1 ? 64 : 1024, b = scale == 1 ? 256 : 4096;
    int *ints = host(n * 4), *depths = host(n * 4), *rows = host(n * 4 + 4), *edges = host(n * 64);
    float *floats = host(n * 64);
    rows[0] = 0;
    for (unsigned i = 0; i < n; i++) {
        ints[i] = (int)(noise() % 93) - 3;
        depths[i] = i % 4 ? -1 : 0;
        rows[i + 1] = rows[i] + noise() % 16;
    }
    for (unsigned i = 0; i < n * 16; i++) {
        edges[i] = noise() % n;
        floats[i] = (float)(noise() % 2001) / 1000 - 1;
    }
    Address in = device(ints, n * 4), row = device(rows, n * 4 + 4), edge = device(edges, n * 64);
    Address real = device(floats, n * 64), state = device(ints, n * 4), out = device(0, n * 16), flag = device(0, 4);

    struct {
        const char *name;
        unsigned grid[2], block[2];
        uint64_t args[6];
    } kernels[] = {
        {"reduction", {n / 1024, 1}, {256, 1}, {in, out, n}},
        {"matmul", {m / 16, m / 16}, {16, 16}, {real, real, out, m}},
        {"histogram", {n / 1024, 1}, {256, 1}, {in, out, n}},
        {"bfs", {n / 128, 1}, {128, 1}, {row, edge, state, 0, flag, n}},
        {"scan", {n / 256, 1}, {256, 1}, {in, out, n}},
        {"stencil", {8, h / 8}, {32, 8}, {real, out, 256, h}},
        {"bitonic", {n / 256, 1}, {256, 1}, {state}},
        {"divergent", {n / 128, 1}, {128, 1}, {in, out, n}},
        {"spmv", {n / 64, 1}, {64, 1}, {row, edge, real, real, out, n / 32}},
        {"nbody", {b / 64, 1}, {64, 1}, {real, out, b}},
        {"mandelbrot", {2, h}, {128, 1}, {out, 256, h, 64}},
        {"softmax", {n / 512, 1}, {128, 1}, {real, out, 512}},
    };
    Address variable;
    size_t size;
    const unsigned capacity = scale == 1 ? 4096 : 8192;
    int recorded = every > 0 && cuModuleGetGlobal_v2(&variable, &size, module, "__nvabi_trace") == 0;
    struct nvabi_trace_buffer buffer = {.capacity = capacity, .sample_every = every};
    const unsigned most = recorded ? n / 16 / every + 1 : 0, stride = capacity + NVABI_TRACE_SLACK;
    if (recorded) {
        buffer.warps = device(0, most * sizeof(struct nvabi_trace_warp));
        buffer.events = device(0, (size_t)most * stride * 8);
    }
    for (unsigned k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        const char *name = kernels[k].name;
        unsigned *grid = kernels[k].grid, *block = kernels[k].block;
        unsigned warps = grid[0] * grid[1] * ((block[0] * block[1] + 31) / 32);
        if (recorded) buffer.regions = (warps + every - 1) / every;
        void *function, *args[6];
        for (int i = 0; i < 6; i++) args[i] = &kernels[k].args[i];
        CHECK(cuModuleGetFunction(&function, module, name));
        float *times = host(runs * sizeof *times);
        for (unsigned run = 0; run < runs; run++) {
            CHECK(cuMemcpyHtoD_v2(state, strcmp(name, "bfs") ? ints : depths, n * 4));
            CHECK(cuMemsetD8_v2(out, 0, n * 16));
            if (recorded) {
                CHECK(cuMemsetD8_v2(buffer.warps, 0, most * sizeof(struct nvabi_trace_warp)));
                CHECK(cuMemcpyHtoD_v2(variable, &buffer, sizeof buffer));
            }
            CHECK(cuEventRecord(start, 0));
            CHECK(cuLaunchKernel(function, grid[0], grid[1], 1, block[0], block[1], 1, 0, 0, args, 0));
            CHECK(cuEventRecord(end, 0));
            CHECK(cuEventSynchronize(end));
            CHECK(cuEventElapsedTime(&times[run], start, end));
        }
        qsort(times, runs, sizeof *times, ascending);
        uint64_t lost = 0;
        struct nvabi_trace_warp *headers = host((most + 1) * sizeof *headers);
        if (recorded) CHECK(cuMemcpyDtoH_v2(headers, buffer.warps, most * sizeof *headers));
        for (uint64_t i = 0; recorded && i < buffer.regions; i++) {
            uint64_t last = i * stride * 2 + capacity * 2;
            if (headers[i].words > last) lost += (headers[i].words - last) / 2;
        }
        uint64_t result = hash(hash(0xcbf29ce484222325, state, n * 4), out, n * 16);
        printf("%s %016llx %.4f %llu\n", name, (unsigned long long)result, times[runs / 2], (unsigned long long)lost);
        free(headers);
        free(times);
    }
    return 0;
}
