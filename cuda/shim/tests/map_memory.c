// Memory that the program maps at addresses which it reserves: of two devices, next to each other, and of another process.
//
//     map_memory           all of it
//     map_memory import    the second process: a file comes by inheritance, its number is the next argument
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long Address;
typedef struct { int kind, handles, location[2]; void *unused; unsigned char more[8]; } Properties;
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *); int cuCtxSynchronize(void);
int cuDeviceGetAttribute(int *, int, int); int cuMemAlloc_v2(Address *, size_t); int cuMemFree_v2(Address);
int cuMemsetD32_v2(Address, unsigned, size_t); int cuMemcpyDtoH_v2(void *, Address, size_t);
int cuMemGetInfo_v2(size_t *, size_t *); int cuPointerGetAttribute(void *, int, Address);
int cuMemGetAllocationGranularity(size_t *, const Properties *, int);
int cuMemCreate(Address *, size_t, const Properties *, Address); int cuMemRelease(Address);
int cuMemAddressReserve(Address *, size_t, size_t, Address, Address); int cuMemAddressFree(Address, size_t);
int cuMemMap(Address, size_t, size_t, Address, Address); int cuMemUnmap(Address, size_t);
int cuMemSetAccess(Address, size_t, const int *, size_t); int cuMemGetAccess(Address *, const int *, Address);
int cuMemExportToShareableHandle(int *, Address, int, Address);
int cuMemImportFromShareableHandle(Address *, void *, int); int cuMemRetainAllocationHandle(Address *, Address);
int cuMemGetAllocationPropertiesFromHandle(Properties *, Address);
int cuModuleLoadData(void **, const void *); int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

#define DO(call) do { int code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)
#define SAY(call) printf("%s: %d\n", #call, (call))

enum { SIZE = 2 << 20 };

static const char PTX[] = ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".visible .entry twice(.param .u64 data) { .reg .b32 %r<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [data];"
    "ld.global.u32 %r1, [%rd1]; shl.b32 %r2, %r1, 1; st.global.u32 [%rd1], %r2; ret; }";

static int twice(Address data) {
    void *module, *kernel, *arguments[] = {&data};
    DO(cuModuleLoadData(&module, PTX));
    DO(cuModuleGetFunction(&kernel, module, "twice"));
    DO(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
    return cuCtxSynchronize();
}

static unsigned word(Address at) {
    unsigned value;
    DO(cuMemcpyDtoH_v2(&value, at, 4));
    return value;
}

static void import(int file) {
    int access[] = {1, 0, 3};
    Address memory, at;
    DO(cuMemImportFromShareableHandle(&memory, (void *)(size_t)file, 1));
    close(file);
    DO(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
    DO(cuMemMap(at, SIZE, 0, memory, 0));
    DO(cuMemRelease(memory));
    DO(cuMemSetAccess(at, SIZE, access, 1));
    printf("of another process: %u\n", word(at));
    SAY(twice(at));
    DO(cuMemUnmap(at, SIZE)); DO(cuMemAddressFree(at, SIZE));
}

static void share(Address memory) {
    char number[16];
    int file, status;
    DO(cuMemExportToShareableHandle(&file, memory, 1, 0));
    sprintf(number, "%d", file);
    pid_t pid = fork();
    if (!pid) {
        execl("/proc/self/exe", "map_memory", "import", number, (char *)0);
        _exit(9);
    }
    close(file);
    waitpid(pid, &status, 0);
    printf("status: %d\n", status);
}

static void refused(Address memory, Address at) {
    Properties properties = {1, 0, {1, 0}};
    int access[] = {1, 0, 3};
    Address plain, other;
    int file;
    DO(cuMemCreate(&plain, SIZE, &properties, 0));
    SAY(cuMemCreate(&other, SIZE / 2, &properties, 0));
    SAY(cuMemCreate(&other, (size_t)1 << 60, &properties, 0));
    SAY(cuMemExportToShareableHandle(&file, plain, 1, 0));
    SAY(cuMemMap(at, SIZE, 0, memory, 0));
    SAY(cuMemMap(at + 2 * SIZE, 2 * SIZE, 0, memory, 0));
    SAY(cuMemUnmap(at, SIZE / 2));
    SAY(cuMemUnmap(at, 0));
    SAY(cuMemAddressFree(at, 4 * SIZE));
    SAY(cuMemFree_v2(at));
    SAY(cuMemSetAccess(at, 4 * SIZE, access, 1));
    DO(cuMemRelease(plain));
}

int main(int argc, char **argv) {
    void *contexts[2];
    Properties properties = {1, 1, {1, 0}}, known;
    int access[] = {1, 0, 3}, device, supported;
    unsigned words[2] = {0};
    Address at, memory[2], again, may;
    size_t granularity, before, after, total;
    setvbuf(stdout, 0, _IONBF, 0);
    DO(cuInit(0));
    for (device = 2; device--;) {
        DO(cuDevicePrimaryCtxRetain(&contexts[device], device));
        DO(cuCtxSetCurrent(contexts[device]));
    }
    if (argc > 1) return import(atoi(argv[2])), 0;
    DO(cuDeviceGetAttribute(&supported, 102, 0));
    DO(cuMemGetAllocationGranularity(&granularity, &properties, 0));
    printf("supported: %d, by %zu\n", supported, granularity);
    DO(cuMemAddressReserve(&at, 4 * SIZE, 4 * SIZE, 0, 0));
    DO(cuMemGetInfo_v2(&before, &total));
    for (device = 0; device < 2; ++device) {
        properties.location[1] = device;
        DO(cuMemCreate(&memory[device], SIZE, &properties, 0));
        DO(cuMemMap(at + device * SIZE, SIZE, 0, memory[device], 0));
    }
    DO(cuMemGetInfo_v2(&after, &total));
    printf("taken: %zu\n", before - after);
    DO(cuMemSetAccess(at, 2 * SIZE, access, 1));
    DO(cuMemsetD32_v2(at + SIZE - 4, 5, 2));
    DO(cuMemcpyDtoH_v2(words, at + SIZE - 4, 8));
    printf("aligned: %d, over both: %u %u\n", at % (4 * SIZE) == 0, words[0], words[1]);
    SAY(twice(at + SIZE - 4));
    SAY(twice(at + SIZE));
    printf("doubled: %u\n", word(at + SIZE));
    access[1] = 1;
    DO(cuMemGetAccess(&may, access, at));
    DO(cuPointerGetAttribute(&device, 9, at + SIZE));
    DO(cuMemGetAllocationPropertiesFromHandle(&known, memory[1]));
    printf("access of the other: %d, device: %d, of the handle: %d\n", (int)may, device, known.location[1]);
    refused(memory[0], at);
    // The same memory at two places.
    DO(cuMemRetainAllocationHandle(&again, at));
    DO(cuMemMap(at + 2 * SIZE, SIZE, 0, again, 0));
    DO(cuMemRelease(again));
    access[1] = 0;
    DO(cuMemSetAccess(at + 2 * SIZE, SIZE, access, 1));
    DO(cuMemsetD32_v2(at + 2 * SIZE, 9, 1));
    printf("at two places: %u\n", word(at));
    share(memory[0]);
    printf("doubled there: %u\n", word(at));
    DO(cuMemRelease(memory[0])); DO(cuMemRelease(memory[1]));
    printf("released: %u\n", word(at + SIZE));
    DO(cuMemUnmap(at, 2 * SIZE)); DO(cuMemUnmap(at + 2 * SIZE, SIZE));
    SAY(cuMemcpyDtoH_v2(words, at, 4));
    // Not even its own device reaches it.
    properties.location[1] = 0;
    DO(cuMemCreate(&memory[0], SIZE, &properties, 0));
    DO(cuMemMap(at, SIZE, 0, memory[0], 0));
    printf("without access: %d\n", twice(at));
    return 0;
}
