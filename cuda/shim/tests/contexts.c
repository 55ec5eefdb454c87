// Two devices by the driver's functions: contexts, access of peers and of pools, and memory that processes share.
//
//     contexts           all of it
//     contexts open      the second process: handles come by file 3
//     contexts peer      a copy between devices, which their streams wait for and it for them
//     contexts async     the same copy in a stream, which nothing orders
//     contexts dtod      one that the default stream does, which is in turn as the first is
//     contexts wait      a device that waits for its own streams alone
//     contexts defaults  default streams of two devices, in no order
//     contexts of        what is launched on the device that it is of, and what is of another one
//     contexts failed    a device with an error of a kernel beside one without
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[64]; } Handle;
typedef unsigned long long Address;
int cuInit(unsigned); int cuDeviceGetCount(int *); int cuDeviceGet(int *, int); int cuDeviceGetUuid_v2(char *, int);
int cuDeviceGetByPCIBusId(int *, const char *);
int cuDeviceGetP2PAttribute(int *, int, int, int); int cuDeviceCanAccessPeer(int *, int, int);
int cuDevicePrimaryCtxRetain(void **, int); int cuCtxCreate_v2(void **, unsigned, int); int cuCtxDestroy_v2(void *);
int cuCtxSetCurrent(void *); int cuCtxGetCurrent(void **); int cuCtxGetDevice(int *);
int cuCtxPushCurrent_v2(void *); int cuCtxPopCurrent_v2(void **); int cuCtxSynchronize(void);
int cuCtxEnablePeerAccess(void *, unsigned); int cuCtxDisablePeerAccess(void *);
int cuMemAlloc_v2(Address *, size_t); int cuMemFree_v2(Address); int cuMemsetD32_v2(Address, unsigned, size_t);
int cuMemcpyDtoH_v2(void *, Address, size_t); int cuMemcpyDtoD_v2(Address, Address, size_t); int cuMemcpyPeer(Address, void *, Address, void *, size_t);
int cuMemcpyPeerAsync(Address, void *, Address, void *, size_t, void *);
int cuPointerGetAttribute(void *, int, Address); int cuMemAllocFromPoolAsync(Address *, size_t, void *, void *);
int cuDeviceGetDefaultMemPool(void **, int); int cuMemPoolSetAccess(void *, const int *, size_t);
int cuMemPoolGetAccess(int *, void *, const int *); int cuDeviceSetMemPool(int, void *);
int cuStreamCreate(void **, unsigned); int cuMemsetD32Async(Address, unsigned, size_t, void *);
int cuModuleLoadData(void **, const void *); int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamGetDevice(void *, int *); int cuStreamSynchronize(void *); int cuStreamQuery(void *); int cuStreamDestroy_v2(void *);
int cuEventCreate(void **, unsigned); int cuEventRecord(void *, void *); int cuEventQuery(void *);
int cuEventDestroy_v2(void *); int cuMemGetInfo_v2(size_t *, size_t *); int cuDevicePrimaryCtxReset_v2(int);
int cuGraphCreate(void **, unsigned); int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphAddKernelNode_v2(void **, void *, void *, size_t, const void *); int cuGraphLaunch(void *, void *);
int cuGraphExecKernelNodeSetParams_v2(void *, void *, const void *);
int cuLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
int cuLibraryGetKernel(void **, void *, const char *); int cuLibraryGetGlobal(Address *, size_t *, void *, const char *);
int cuLibraryUnload(void *); int cuGraphAddMemAllocNode(void **, void *, void *, size_t, void *);
int cuGraphKernelNodeSetParams_v2(void *, const void *); int cuGraphExecUpdate_v2(void *, void *, void *);
int cuIpcGetMemHandle(Handle *, Address); int cuIpcOpenMemHandle_v2(Address *, Handle, unsigned);
int cuIpcCloseMemHandle(Address);

#define DO(call) do { int code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)
#define SAY(call) printf("%s: %d\n", #call, (call))

static const char PTX[] = ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".visible .global .align 4 .u32 own;"
    ".visible .entry twice(.param .u64 data) { .reg .b32 %r<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [data];"
    "ld.global.u32 %r1, [%rd1]; shl.b32 %r2, %r1, 1; st.global.u32 [%rd1], %r2; ret; }"
    ".visible .entry wrong() { trap; ret; }";

static void *kernel_of(const char *name) {
    void *module, *kernel;
    DO(cuModuleLoadData(&module, PTX));
    DO(cuModuleGetFunction(&kernel, module, name));
    return kernel;
}

static void twice(Address data) {
    void *kernel = kernel_of("twice"), *arguments[] = {&data};
    DO(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
    DO(cuCtxSynchronize());
}

static unsigned word(Address at) {
    unsigned value;
    DO(cuMemcpyDtoH_v2(&value, at, 4));
    return value;
}

static int ordinal(Address at) {
    int device;
    DO(cuPointerGetAttribute(&device, 9, at));
    return device;
}

static int current(void) {
    int device;
    DO(cuCtxGetDevice(&device));
    return device;
}

// What the other process has on its second device this one reaches from its first, too.
static void open_memory(void) {
    Handle handle, wrong;
    Address memory, again;
    void *contexts[2];
    DO(read(3, &handle, sizeof handle) != sizeof handle);
    DO(cuDevicePrimaryCtxRetain(&contexts[0], 0)); DO(cuDevicePrimaryCtxRetain(&contexts[1], 1));
    // The number of the memory's file.
    wrong = handle, wrong.bytes[32] ^= 1;
    SAY(cuIpcOpenMemHandle_v2(&memory, wrong, 1));
    SAY(cuCtxDisablePeerAccess(contexts[1]));
    DO(cuCtxSetCurrent(contexts[1]));
    DO(cuIpcOpenMemHandle_v2(&memory, handle, 1));
    DO(cuCtxSetCurrent(contexts[0]));
    DO(cuIpcOpenMemHandle_v2(&again, handle, 1));
    printf("opened by device %d: memory of %d, the same: %d\n", current(), ordinal(memory), again == memory);
    twice(memory);
    DO(cuIpcCloseMemHandle(memory)); DO(cuIpcCloseMemHandle(memory));
}

static void share(Address memory) {
    Handle handle;
    int files[2], status;
    DO(cuIpcGetMemHandle(&handle, memory));
    DO(pipe(files));
    DO(write(files[1], &handle, sizeof handle) != sizeof handle);
    pid_t pid = fork();
    if (!pid) {
        dup2(files[0], 3);
        execl("/proc/self/exe", "contexts", "open", (char *)0);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    printf("shared: %u, %d\n", word(memory), status);
}

// An address with and without its domain or its function.
static void addresses(void) {
    const char *ids[] = {
        "0000:01:00.0", "00000000:1:0.0", "01:00.0", "1:0.0", "0000:01:00", "0:1:0", "0:1F:0",
        "01:00", "01:00.1", "01:01.0", "0001:01:00.0", "0:0:1:0.0", "0:1:0.0.0", ":1:0.0", "0:+1:0", "1:0.", "one", "",
    };
    size_t at;
    for (at = 0; at < sizeof ids / sizeof *ids; ++at) {
        int device = -1, code = cuDeviceGetByPCIBusId(&device, ids[at]);
        printf("%s`%s` %d", at ? ", " : "addresses: ", ids[at], code ? code : device);
    }
    printf("\n");
}

// Memory of both devices, and a stream of each that waits for no other; the first device is current.
typedef struct { void *contexts[2], *streams[2]; Address memory[2]; } Devices;

static Devices both(void) {
    Devices both;
    int device;
    for (device = 2; device--;) {
        DO(cuDevicePrimaryCtxRetain(&both.contexts[device], device));
        DO(cuCtxSetCurrent(both.contexts[device]));
        DO(cuMemAlloc_v2(&both.memory[device], 4));
        DO(cuStreamCreate(&both.streams[device], 1));
    }
    return both;
}

static void copy(char how) {
    Devices d = both();
    void *stream;
    DO(cuMemsetD32Async(d.memory[0], 1, 1, d.streams[0]));
    if (how == 'd') DO(cuMemcpyDtoD_v2(d.memory[1], d.memory[0], 4));
    else if (how == 'a') DO(cuMemcpyPeerAsync(d.memory[1], d.contexts[1], d.memory[0], d.contexts[0], 4, 0));
    else DO(cuMemcpyPeer(d.memory[1], d.contexts[1], d.memory[0], d.contexts[0], 4));
    DO(cuMemsetD32Async(d.memory[0], 2, 1, d.streams[0]));
    // A stream that is made later is of the future, too.
    DO(cuCtxSetCurrent(d.contexts[1]));
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemsetD32Async(d.memory[1], 3, 1, stream));
}

static void wait_apart(void) {
    Devices d = both();
    DO(cuMemsetD32Async(d.memory[0], 1, 1, d.streams[0]));
    DO(cuMemsetD32Async(d.memory[1], 1, 1, d.streams[1]));
    DO(cuCtxSynchronize());
    DO(cuMemsetD32_v2(d.memory[0], 2, 1));
    DO(cuMemsetD32_v2(d.memory[1], 2, 1));
}

// Neither waits for the other, and each for the streams of its own device.
static void defaults(void) {
    Devices d = both();
    void *streams[2];
    int device;
    for (device = 0; device < 2; ++device) {
        DO(cuCtxSetCurrent(d.contexts[device]));
        DO(cuMemsetD32Async(d.memory[0], 1, 1, 0));
        DO(cuStreamCreate(&streams[device], 0));
    }
    // Of the first device, as is what is written there first.
    DO(cuMemsetD32Async(d.memory[1], 2, 1, streams[0]));
    DO(cuCtxSetCurrent(d.contexts[0]));
    DO(cuMemsetD32Async(d.memory[1], 3, 1, 0));
}

typedef struct { void *kernel; unsigned grid[3], block[3], shared; void **arguments, **extra, *unused[2]; } Node;

typedef struct { int kind, handles, location[2]; size_t rest[9], access[2], size; Address address; } Memory;

// What NVIDIA's libcuda answers.
static void of_devices(void) {
    Devices d = both();
    void *kernels[2], *events[2], *arguments[] = {&d.memory[1]}, *graph, *node, *exec;
    unsigned long long update[3];
    int device;
    for (device = 2; device--;) {
        DO(cuCtxSetCurrent(d.contexts[device]));
        kernels[device] = kernel_of("twice");
        DO(cuEventCreate(&events[device], 0));
    }
    DO(cuMemsetD32_v2(d.memory[1], 1, 1));
    SAY(cuLaunchKernel(kernels[0], 1, 1, 1, 1, 1, 1, 0, d.streams[1], arguments, 0));
    SAY(cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, d.streams[1], arguments, 0));
    SAY(cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
    SAY(cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, d.streams[0], arguments, 0));
    SAY(cuEventRecord(events[1], d.streams[0]));
    SAY(cuEventRecord(events[1], 0));
    SAY(cuEventRecord(events[1], d.streams[1]));
    Node params = {kernels[1], {1, 1, 1}, {1, 1, 1}, 0, arguments};
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddKernelNode_v2(&node, graph, 0, 0, &params));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, d.streams[0]));
    SAY(cuCtxSynchronize());
    printf("doubled twice: %u\n", word(d.memory[1]));
    params.kernel = kernels[0];
    SAY(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    SAY(cuGraphKernelNodeSetParams_v2(node, &params));
    SAY(cuGraphExecUpdate_v2(exec, graph, update));
    printf("why: %d\n", (int)update[0]);
    Memory memory = {.kind = 1, .location = {1, 1}, .size = 4};
    DO(cuGraphAddMemAllocNode(&node, graph, 0, 0, &memory));
    printf("memory of a node: device %d\n", ordinal(memory.address));
    // A library is every device's.
    void *library, *kernel;
    Address own;
    DO(cuLibraryLoadData(&library, PTX, 0, 0, 0, 0, 0, 0));
    DO(cuLibraryGetKernel(&kernel, library, "twice"));
    for (device = 2; device--;) {
        DO(cuCtxSetCurrent(d.contexts[device]));
        arguments[0] = &d.memory[device];
        DO(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, d.streams[device], arguments, 0));
        DO(cuLibraryGetGlobal(&own, 0, library, "own"));
        printf("of a library: %d, a variable of device %d\n", cuCtxSynchronize(), ordinal(own));
    }
    // It outlives what it has on a device.
    DO(cuDevicePrimaryCtxReset_v2(0));
    DO(cuMemAlloc_v2(&d.memory[0], 4));
    SAY(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
    DO(cuLibraryUnload(library));
    DO(cuStreamGetDevice(d.streams[1], &device));
    printf("a stream of device %d", device);
    DO(cuStreamGetDevice(0, &device));
    printf(", and the default one of %d\n", device);
    SAY(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
}

static void failed(void) {
    Devices d = both();
    void *event, *kernel, *arguments[] = {&d.memory[0]}, *made;
    Address memory;
    size_t free, total;
    int device;
    DO(cuCtxSetCurrent(d.contexts[1]));
    DO(cuEventCreate(&event, 0));
    DO(cuLaunchKernel(kernel_of("wrong"), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    SAY(cuCtxSynchronize());
    SAY(cuMemAlloc_v2(&memory, 4));
    SAY(cuMemGetInfo_v2(&free, &total));
    SAY(cuStreamCreate(&made, 0));
    SAY(cuEventCreate(&made, 0));
    SAY(cuEventQuery(event));
    SAY(cuEventDestroy_v2(event));
    SAY(cuModuleLoadData(&made, PTX));
    DO(cuCtxSetCurrent(d.contexts[0]));
    SAY(cuStreamQuery(d.streams[1]));
    SAY(cuStreamDestroy_v2(d.streams[1]));
    SAY(cuMemcpyDtoH_v2(&device, d.memory[1], 4));
    SAY(cuMemFree_v2(d.memory[1]));
    kernel = kernel_of("twice");
    SAY(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, d.streams[0], arguments, 0));
    SAY(cuCtxSynchronize());
    SAY(cuMemAlloc_v2(&memory, 4));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    DO(cuCtxSetCurrent(d.contexts[1]));
    SAY(cuMemAlloc_v2(&memory, 4));
    SAY(cuDevicePrimaryCtxReset_v2(1));
    SAY(cuMemAlloc_v2(&memory, 4));
}

int main(int argc, char **argv) {
    int count, value, device;
    void *contexts[2], *created, *context, *pool;
    Address memory[2], pooled;
    char ids[2][16];
    setvbuf(stdout, 0, _IONBF, 0);
    DO(cuInit(0));
    if (argc > 1) {
        if (!strcmp(argv[1], "open")) open_memory();
        else if (!strcmp(argv[1], "wait")) wait_apart();
        else if (!strcmp(argv[1], "defaults")) defaults();
        else if (!strcmp(argv[1], "of")) of_devices();
        else if (!strcmp(argv[1], "failed")) failed();
        else copy(*argv[1]);
        return 0;
    }
    DO(cuDeviceGetCount(&count));
    SAY(cuDeviceGet(&device, 2));
    DO(cuDeviceGetUuid_v2(ids[0], 0)); DO(cuDeviceGetUuid_v2(ids[1], 1));
    printf("devices: %d, alike: %d\n", count, !memcmp(ids[0], ids[1], 16));
    addresses();
    for (device = 0; device < 2; ++device) {
        DO(cuDevicePrimaryCtxRetain(&contexts[device], device));
        DO(cuCtxSetCurrent(contexts[device]));
        DO(cuMemAlloc_v2(&memory[device], 4));
        DO(cuMemsetD32_v2(memory[device], 3 + device, 1));
        printf("device %d: memory of %d\n", current(), ordinal(memory[device]));
    }
    // The one that is used, and those before it.
    DO(cuCtxPushCurrent_v2(contexts[0]));
    DO(cuCtxCreate_v2(&created, 0, 1));
    printf("pushed: %d", current());
    DO(cuCtxDestroy_v2(created));
    printf(" %d", current());
    DO(cuCtxPopCurrent_v2(&context));
    printf(" %d, popped the one pushed: %d\n", current(), context == contexts[0]);
    SAY(cuCtxSetCurrent((void *)16));
    DO(cuDeviceGetP2PAttribute(&value, 2, 0, 1));
    printf("access: %d\n", value);
    SAY(cuDeviceGetP2PAttribute(&value, 2, 1, 1));
    DO(cuCtxSetCurrent(contexts[0]));
    SAY(cuCtxEnablePeerAccess(contexts[0], 0));
    SAY(cuCtxDisablePeerAccess(contexts[1]));
    SAY(cuCtxEnablePeerAccess(contexts[1], 0));
    SAY(cuCtxEnablePeerAccess(contexts[1], 0));
    twice(memory[1]);
    SAY(cuCtxDisablePeerAccess(contexts[1]));
    DO(cuMemcpyPeer(memory[0], contexts[0], memory[1], contexts[1], 4));
    DO(cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 4, 0));
    SAY(cuMemcpyPeer(memory[0], 0, memory[1], contexts[1], 4));
    printf("copied: %u %u\n", word(memory[0]), word(memory[1]));
    // A pool that another device may access, what is in it and what comes.
    int access[] = {1, 0, 3}, none[] = {1, 0, 0}, own[] = {1, 1, 0};
    DO(cuDeviceGetDefaultMemPool(&pool, 1));
    DO(cuMemPoolGetAccess(&value, pool, access));
    printf("of the pool: %d", value);
    DO(cuMemPoolGetAccess(&value, pool, own));
    printf(" %d\n", value);
    DO(cuMemAllocFromPoolAsync(&pooled, 4, pool, 0));
    DO(cuMemsetD32_v2(pooled, 7, 1));
    DO(cuMemPoolSetAccess(pool, access, 1));
    twice(pooled);
    printf("pooled: %u of device %d\n", word(pooled), ordinal(pooled));
    DO(cuMemFree_v2(pooled));
    DO(cuMemAllocFromPoolAsync(&pooled, 4, pool, 0));
    twice(pooled);
    SAY(cuMemPoolSetAccess(pool, own, 1));
    SAY(cuDeviceSetMemPool(0, pool));
    share(memory[1]);
    DO(cuMemPoolSetAccess(pool, none, 1));
    // What is in a pool is no peer's.
    DO(cuCtxEnablePeerAccess(contexts[1], 0));
    void *arguments[] = {&pooled};
    DO(cuLaunchKernel(kernel_of("twice"), 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
    SAY(cuCtxSynchronize());
    return 0;
}
