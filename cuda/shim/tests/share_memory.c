// Processes that share memory of the device, by handles that go through pipes.
//
//     share_memory share       memory and an event that a second process opens
//     share_memory refused     what is not shared, and what is not opened
//     share_memory ordered     streams that an event of two processes orders
//     share_memory unordered   the same with an event of one process
//
// Prints what came of each step; a step that fails ends it with the number of its line.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[64]; } Handle;
typedef unsigned long long Address;
int cuInit(unsigned); int cuMemAlloc_v2(Address *, size_t); int cuMemFree_v2(Address);
int cuMemAllocManaged(Address *, size_t, unsigned); int cuMemAllocHost_v2(void **, size_t);
int cuMemAllocAsync(Address *, size_t, void *);
int cuMemcpyHtoD_v2(Address, const void *, size_t); int cuMemcpyDtoH_v2(void *, Address, size_t);
int cuMemsetD32_v2(Address, unsigned, size_t); int cuMemsetD32Async(Address, unsigned, size_t, void *);
int cuModuleLoadData(void **, const void *); int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamCreate(void **, unsigned); int cuStreamSynchronize(void *); int cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned); int cuEventRecord(void *, void *); int cuEventSynchronize(void *);
int cuEventQuery(void *); int cuEventDestroy_v2(void *); int cuEventElapsedTime(float *, void *, void *);
int cuIpcGetMemHandle(Handle *, Address); int cuIpcOpenMemHandle_v2(Address *, Handle, unsigned);
int cuIpcCloseMemHandle(Address); int cuIpcGetEventHandle(Handle *, void *); int cuIpcOpenEventHandle(void **, Handle);

#define DO(call) do { int code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)
#define SAY(call) printf("%s: %d\n", #call, (call))

// A few bytes, which lie beside other allocations, and more than a page of its own.
enum { SMALL = 40, LARGE = 1 << 20, INTERPROCESS = 6 };
typedef struct { Handle small, large, event; } Handles;

// Doubles ten words.
static const char PTX[] = ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".visible .entry twice(.param .u64 data) { .reg .b32 %r<3>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [data];"
    "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;"
    "ld.global.u32 %r2, [%rd3]; shl.b32 %r2, %r2, 1; st.global.u32 [%rd3], %r2; ret; }";

static void twice(Address data, void *stream) {
    void *module, *kernel, *arguments[] = {&data};
    DO(cuModuleLoadData(&module, PTX));
    DO(cuModuleGetFunction(&kernel, module, "twice"));
    DO(cuLaunchKernel(kernel, 1, 1, 1, 10, 1, 1, 0, stream, arguments, 0));
}

static unsigned word(Address at) {
    unsigned value;
    DO(cuMemcpyDtoH_v2(&value, at, 4));
    return value;
}

static void send(int file, const void *bytes, size_t size) { DO(write(file, bytes, size) != size); }
static void receive(int file, void *bytes, size_t size) { DO(read(file, bytes, size) != size); }

// Starts this program again: what it reads and writes by the files 3 and 4.
static pid_t start(char *role, int *to, int *from) {
    int down[2], up[2];
    DO(pipe(down) || pipe(up));
    fflush(stdout);
    pid_t pid = fork();
    if (pid) {
        close(down[0]), close(up[1]);
        *to = down[1], *from = up[0];
        return pid;
    }
    dup2(down[0], 10), dup2(up[1], 11), dup2(10, 3), dup2(11, 4);
    execl("/proc/self/exe", "share_memory", role, (char *)0);
    _exit(9);
}

static void finish(pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    if (status) { printf("the other process ends with %#x\n", status); exit(1); }
}

static Handles export(Address small, Address large, void *event) {
    Handles handles;
    DO(cuIpcGetMemHandle(&handles.small, small));
    DO(cuIpcGetMemHandle(&handles.large, large));
    DO(cuIpcGetEventHandle(&handles.event, event));
    return handles;
}

// What a forked child frees is its own, and so are the handles that it gives.
static void free_in_child(Address small, Address large, void *event, Handles handles) {
    Handle own;
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return finish(pid);
    DO(cuMemFree_v2(small));
    DO(cuEventDestroy_v2(event));
    DO(cuIpcGetMemHandle(&own, large));
    printf("a child gives the same handle: %d\n", !memcmp(&own, &handles.large, sizeof own));
    SAY(cuIpcGetMemHandle(&own, small));
    _exit(0);
}

static void share(void) {
    Address before, small, behind, large;
    void *event, *stream;
    int to, from;
    char byte;
    DO(cuMemAlloc_v2(&before, SMALL)); DO(cuMemAlloc_v2(&small, SMALL));
    DO(cuMemAlloc_v2(&behind, SMALL)); DO(cuMemAlloc_v2(&large, LARGE));
    DO(cuMemsetD32_v2(before, 1, 10)); DO(cuMemsetD32_v2(small, 2, 10)); DO(cuMemsetD32_v2(behind, 3, 10));
    // Most of it nobody has written.
    DO(cuMemsetD32_v2(large + LARGE - 4, 4, 1));
    DO(cuEventCreate(&event, INTERPROCESS));
    DO(cuStreamCreate(&stream, 0));
    Handles handles = export(small, large, event), again = export(small, large, event);
    printf("the same handles: %d\n", !memcmp(&handles, &again, sizeof handles));
    printf("still there: %u %u %u %u\n", word(before), word(small), word(behind), word(large + LARGE - 4));
    free_in_child(small, large, event, handles);
    pid_t pid = start("open", &to, &from);
    send(to, &handles, sizeof handles);
    receive(from, &byte, 1);
    // The other process looks at it already.
    DO(cuMemsetD32_v2(large, 7, 1));
    receive(from, &byte, 1);
    DO(cuStreamWaitEvent(stream, event, 0));
    twice(small, stream);
    twice(large + 8, stream);
    DO(cuStreamSynchronize(stream));
    printf("doubled by both: %u, beside: %u %u\n", word(small), word(before), word(behind));
    printf("twice what the other wrote: %u\n", word(large + 8));
    finish(pid);
    DO(cuMemFree_v2(small));
    DO(cuEventDestroy_v2(event));
    pid = start("stale", &to, &from);
    send(to, &handles, sizeof handles);
    finish(pid);
    DO(cuMemFree_v2(large)); DO(cuMemFree_v2(before)); DO(cuMemFree_v2(behind));
}

static void open_all(void) {
    Handles handles;
    Address small, large, again;
    void *event;
    receive(3, &handles, sizeof handles);
    SAY(cuIpcOpenMemHandle_v2(&small, handles.small, 0));
    DO(cuIpcOpenMemHandle_v2(&small, handles.small, 1));
    DO(cuIpcOpenMemHandle_v2(&large, handles.large, 1));
    DO(cuIpcOpenMemHandle_v2(&again, handles.large, 1));
    DO(cuIpcOpenEventHandle(&event, handles.event));
    printf("opened twice: %d, with %u %u\n", again == large, word(small), word(large + LARGE - 4));
    send(4, "", 1);
    while (word(large) != 7)
        usleep(1000);
    twice(small, 0);
    DO(cuMemsetD32_v2(large + 8, 9, 10));
    DO(cuEventRecord(event, 0));
    send(4, "", 1);
    SAY(cuMemFree_v2(large));
    DO(cuIpcCloseMemHandle(large));
    printf("opened once more than closed: %u\n", word(large));
    SAY(cuIpcCloseMemHandle(large));
    SAY(cuIpcCloseMemHandle(large));
    SAY(cuIpcCloseMemHandle(small + 4));
    SAY(cuIpcCloseMemHandle(small));
    SAY(cuMemcpyDtoH_v2(&again, small, 4));
    DO(cuEventSynchronize(event));
    DO(cuEventDestroy_v2(event));
}

static void open_stale(void) {
    Handles handles;
    Address memory;
    void *event;
    receive(3, &handles, sizeof handles);
    SAY(cuIpcOpenMemHandle_v2(&memory, handles.small, 1));
    SAY(cuIpcOpenEventHandle(&event, handles.event));
    SAY(cuIpcOpenMemHandle_v2(&memory, handles.large, 1));
}

// Each memory that is shared takes a file.
static void without_files(Address memory) {
    struct rlimit limit, none;
    Handle handle;
    DO(getrlimit(RLIMIT_NOFILE, &limit));
    none = limit, none.rlim_cur = 3;
    DO(setrlimit(RLIMIT_NOFILE, &none));
    SAY(cuIpcGetMemHandle(&handle, memory));
    DO(setrlimit(RLIMIT_NOFILE, &limit));
}

static void refused(void) {
    Address memory, opened;
    void *host, *event, *other;
    Handle handle, no_handle;
    float time;
    int to, from;
    memset(&no_handle, 1, sizeof no_handle);
    DO(cuMemAllocManaged(&memory, SMALL, 1));
    SAY(cuIpcGetMemHandle(&handle, memory));
    DO(cuMemAllocHost_v2(&host, SMALL));
    SAY(cuIpcGetMemHandle(&handle, (Address)host));
    DO(cuMemAllocAsync(&memory, SMALL, 0));
    SAY(cuIpcGetMemHandle(&handle, memory));
    SAY(cuIpcGetMemHandle(&handle, 16));
    SAY(cuEventCreate(&event, 4));
    DO(cuEventCreate(&event, 2));
    SAY(cuIpcGetEventHandle(&handle, event));
    DO(cuEventRecord(event, 0));
    SAY(cuEventElapsedTime(&time, event, event));
    DO(cuMemAlloc_v2(&memory, SMALL));
    without_files(memory);
    DO(cuIpcGetMemHandle(&handle, memory + 4));
    SAY(cuIpcOpenMemHandle_v2(&opened, handle, 1));
    SAY(cuIpcOpenEventHandle(&other, handle));
    SAY(cuIpcOpenMemHandle_v2(&opened, no_handle, 1));
    SAY(cuIpcCloseMemHandle(memory));
    DO(cuMemFree_v2(memory));
    SAY(cuIpcGetMemHandle(&handle, memory));
    // One that is gone.
    pid_t pid = start("export", &to, &from);
    receive(from, &handle, sizeof handle);
    DO(cuIpcOpenMemHandle_v2(&opened, handle, 1));
    kill(pid, SIGKILL);
    waitpid(pid, 0, 0);
    printf("of a process that was killed: %u\n", word(opened));
    twice(opened, 0);
    printf("still mine: %u\n", word(opened));
    DO(cuIpcCloseMemHandle(opened));
    SAY(cuIpcOpenMemHandle_v2(&opened, handle, 1));
}

static void export_one(void) {
    Address memory;
    Handle handle;
    DO(cuMemAlloc_v2(&memory, SMALL));
    DO(cuMemsetD32_v2(memory, 5, 10));
    DO(cuIpcGetMemHandle(&handle, memory));
    send(4, &handle, sizeof handle);
    pause();
}

// Two streams write the same place; that the first is done the program learns from elsewhere.
static void order(int is_shared) {
    Address memory;
    Handle handle;
    void *event, *streams[2];
    DO(cuMemAlloc_v2(&memory, SMALL));
    DO(cuEventCreate(&event, INTERPROCESS));
    if (is_shared) DO(cuIpcGetEventHandle(&handle, event));
    DO(cuStreamCreate(&streams[0], 1)); DO(cuStreamCreate(&streams[1], 1));
    DO(cuMemsetD32Async(memory, 1, 10, streams[0]));
    DO(cuEventRecord(event, streams[0]));
    DO(cuMemsetD32Async(memory, 2, 10, streams[1]));
    DO(cuStreamSynchronize(streams[1]));
    printf("done\n");
}

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    // What a second process prints comes where it prints it.
    setvbuf(stdout, 0, _IONBF, 0);
    DO(cuInit(0));
    if (!strcmp(role, "share")) share();
    else if (!strcmp(role, "open")) open_all();
    else if (!strcmp(role, "stale")) open_stale();
    else if (!strcmp(role, "refused")) refused();
    else if (!strcmp(role, "export")) export_one();
    else if (!strcmp(role, "ordered")) order(1);
    else if (!strcmp(role, "unordered")) order(0);
    else return 7;
    return 0;
}
