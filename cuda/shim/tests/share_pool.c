// Processes that share a pool of memory, by files that go through a socket.
//
//     share_pool share     a pool that a second process imports
//     share_pool freed     memory that its process frees while another one uses it
//     share_pool refused   what is not exported, and what is not imported
//
// Prints what came of each step; a step that fails ends it with the number of its line.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char bytes[64]; } Handle;
typedef unsigned long long Address;
typedef struct { int kind, handles, location[2]; size_t rest[9]; } Properties;
int cuInit(unsigned); int cuDeviceGetAttribute(int *, int, int); int cuMemAlloc_v2(Address *, size_t);
int cuMemFree_v2(Address); int cuMemFreeAsync(Address, void *); int cuMemsetD32_v2(Address, unsigned, size_t);
int cuMemcpyDtoH_v2(void *, Address, size_t); int cuMemcpy(Address, Address, size_t);
int cuDeviceGetDefaultMemPool(void **, int); int cuDeviceSetMemPool(int, void *);
int cuMemPoolCreate(void **, const Properties *); int cuMemPoolDestroy(void *); int cuMemPoolTrimTo(void *, size_t);
int cuMemPoolGetAttribute(void *, int, void *); int cuMemPoolGetAccess(int *, void *, const int *);
int cuMemPoolSetAccess(void *, const int *, size_t); int cuMemAllocFromPoolAsync(Address *, size_t, void *, void *);
int cuMemPoolExportToShareableHandle(int *, void *, int, unsigned long long);
int cuMemPoolImportFromShareableHandle(void **, void *, int, unsigned long long);
int cuMemPoolExportPointer(Handle *, Address); int cuMemPoolImportPointer(Address *, void *, const Handle *);
int cudaMemPoolExportToShareableHandle(int *, void *, int, unsigned); int cudaFreeAsync(Address, void *);
int cudaMemPoolImportFromShareableHandle(void **, void *, int, unsigned);
int cudaMemPoolExportPointer(Handle *, Address); int cudaMemPoolImportPointer(Address *, void *, const Handle *);
int cuModuleLoadData(void **, const void *); int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuCtxSynchronize(void); int cuDevicePrimaryCtxReset_v2(int);
int cuIpcGetMemHandle(Handle *, Address); int cuIpcOpenMemHandle_v2(Address *, Handle, unsigned);
int cuIpcCloseMemHandle(Address);

#define DO(call) do { int code = (call); if (code) { printf("line %d: %d\n", __LINE__, code); exit(1); } } while (0)
#define SAY(call) printf("%s: %d\n", #call, (call))

enum { SIZE = 1 << 20, DESCRIPTOR = 1 };

static const char PTX[] = ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".visible .entry twice(.param .u64 data) { .reg .b32 %r<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [data];"
    "ld.global.u32 %r1, [%rd1]; shl.b32 %r2, %r1, 1; st.global.u32 [%rd1], %r2; ret; }";

static void twice(Address data) {
    void *module, *kernel, *arguments[] = {&data};
    DO(cuModuleLoadData(&module, PTX));
    DO(cuModuleGetFunction(&kernel, module, "twice"));
    DO(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
}

static unsigned word(Address at) {
    unsigned value;
    DO(cuMemcpyDtoH_v2(&value, at, 4));
    return value;
}

// Sends bytes, and a file where there is one.
static void send_all(int socket, const void *bytes, size_t size, int file) {
    char control[CMSG_SPACE(sizeof file)] = {0};
    struct iovec vector = {(void *)bytes, size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control, message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    DO(sendmsg(socket, &message, 0) != size);
}

// What was sent, and the file, or -1.
static int receive_all(int socket, void *bytes, size_t size) {
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {bytes, size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int file = -1;
    DO(recvmsg(socket, &message, 0) != size);
    if (CMSG_FIRSTHDR(&message)) memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

static pid_t start(const char *role, int *socket) {
    int both[2];
    DO(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, both));
    pid_t pid = fork();
    if (!pid) {
        dup2(both[1], 3);
        execl("/proc/self/exe", "share_pool", role, (char *)0);
        _exit(9);
    }
    close(both[1]), *socket = both[0];
    return pid;
}

static void finish(pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    if (status) { printf("the other process ends with %#x\n", status); exit(1); }
}

static void *pool_with(int handles) {
    Properties properties = {1, handles, {1, 0}};
    void *pool;
    DO(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static Address memory_of(void *pool, unsigned value) {
    Address memory;
    DO(cuMemAllocFromPoolAsync(&memory, SIZE, pool, 0));
    DO(cuMemsetD32_v2(memory, value, 1));
    return memory;
}

// Bytes that the file of a pool takes more after memory of it came and went.
static void reuse(void *pool, int file) {
    struct stat before, after;
    int round;
    Address memory;
    DO(fstat(file, &before));
    for (round = 0; round < 100; ++round) {
        DO(cuMemAllocFromPoolAsync(&memory, 1000, pool, 0));
        DO(cuMemsetD32_v2(memory, 1, 250));
        DO(cuMemFreeAsync(memory, 0));
        DO(cuCtxSynchronize());
    }
    DO(fstat(file, &after));
    printf("kept of what is freed: %lld\n", 512ll * (after.st_blocks - before.st_blocks));
}

static void share(void) {
    void *pool = pool_with(DESCRIPTOR), *other = pool_with(DESCRIPTOR);
    Address first = memory_of(pool, 3), second = memory_of(other, 5), later;
    Handle pointers[2], of_later;
    int socket, file, supported;
    char byte;
    DO(cuDeviceGetAttribute(&supported, 119, 0));
    printf("kinds of handles: %d\n", supported);
    pid_t pid = start("import", &socket);
    DO(cuMemPoolExportToShareableHandle(&file, pool, DESCRIPTOR, 0));
    reuse(pool, file);
    DO(cuMemPoolExportPointer(&pointers[0], first));
    DO(cudaMemPoolExportPointer(&pointers[1], second));
    send_all(socket, pointers, sizeof pointers, file);
    close(file);
    DO(cudaMemPoolExportToShareableHandle(&file, other, DESCRIPTOR, 0));
    send_all(socket, "", 1, file);
    // What comes later is in the pool, too.
    later = memory_of(pool, 7);
    DO(cuMemPoolExportPointer(&of_later, later));
    send_all(socket, &of_later, sizeof of_later, -1);
    receive_all(socket, &byte, 1);
    printf("doubled: %u %u %u\n", word(first), word(second), word(later));
    DO(cuMemFreeAsync(first, 0)); DO(cudaFreeAsync(second, 0)); DO(cuMemPoolDestroy(pool)); DO(cuMemFree_v2(later));
    send_all(socket, "", 1, -1);
    finish(pid);
}

static void import(void) {
    Handle pointers[2], of_later;
    Address first, again, second, later, none;
    void *pool, *other;
    unsigned long long used;
    int access[] = {1, 0, 3}, may, file;
    char byte;
    file = receive_all(3, pointers, sizeof pointers);
    DO(cuMemPoolImportFromShareableHandle(&pool, (void *)(size_t)file, DESCRIPTOR, 0));
    close(file);
    file = receive_all(3, &byte, 1);
    DO(cudaMemPoolImportFromShareableHandle(&other, (void *)(size_t)file, DESCRIPTOR, 0));
    DO(cuMemPoolImportPointer(&first, pool, &pointers[0]));
    DO(cuMemPoolImportPointer(&again, pool, &pointers[0]));
    DO(cudaMemPoolImportPointer(&second, other, &pointers[1]));
    receive_all(3, &of_later, sizeof of_later);
    DO(cuMemPoolImportPointer(&later, pool, &of_later));
    printf("imported: %u %u %u, the same: %d\n", word(first), word(second), word(later), again == first);
    twice(first); twice(second); twice(later);
    SAY(cuMemPoolImportPointer(&none, pool, &pointers[1]));
    SAY(cuMemAllocFromPoolAsync(&none, 4, pool, 0));
    SAY(cuDeviceSetMemPool(0, pool));
    SAY(cuMemPoolGetAttribute(pool, 7, &used));
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(cuMemPoolExportToShareableHandle(&file, pool, DESCRIPTOR, 0));
    SAY(cuMemPoolExportPointer(&of_later, first));
    SAY(cuIpcGetMemHandle(&of_later, first));
    DO(cuMemPoolGetAccess(&may, pool, access)); DO(cuMemPoolSetAccess(pool, access, 1));
    printf("access: %d\n", may);
    DO(cuMemFree_v2(first));
    printf("freed once of twice: %u\n", word(first));
    DO(cuMemFreeAsync(first, 0)); DO(cuMemPoolDestroy(pool)); DO(cudaFreeAsync(second, 0)); DO(cuMemFree_v2(later));
    SAY(cuMemcpyDtoH_v2(&may, first, 4));
    send_all(3, "", 1, -1);
    receive_all(3, &byte, 1);
    SAY(cuMemPoolImportPointer(&second, other, &pointers[1]));
}

static void freed(void) {
    void *pool = pool_with(DESCRIPTOR);
    Address pooled = memory_of(pool, 3), memory;
    Handle handles[2];
    int socket, file;
    char byte;
    DO(cuMemAlloc_v2(&memory, SIZE));
    DO(cuMemPoolExportToShareableHandle(&file, pool, DESCRIPTOR, 0));
    DO(cuMemPoolExportPointer(&handles[0], pooled));
    DO(cuIpcGetMemHandle(&handles[1], memory));
    pid_t pid = start("keep", &socket);
    send_all(socket, handles, sizeof handles, file);
    receive_all(socket, &byte, 1);
    DO(cuMemFree_v2(pooled)); DO(cuMemFree_v2(memory));
    send_all(socket, "", 1, -1);
    finish(pid);
}

static void keep(void) {
    Handle handles[2];
    Address pooled, memory;
    void *pool;
    unsigned value;
    int file = receive_all(3, handles, sizeof handles);
    char byte;
    DO(cuMemPoolImportFromShareableHandle(&pool, (void *)(size_t)file, DESCRIPTOR, 0));
    DO(cuMemPoolImportPointer(&pooled, pool, &handles[0]));
    DO(cuIpcOpenMemHandle_v2(&memory, handles[1], 1));
    twice(pooled); twice(memory);
    DO(cuCtxSynchronize());
    send_all(3, "", 1, -1);
    receive_all(3, &byte, 1);
    SAY(cuMemcpyDtoH_v2(&value, pooled, 4));
    SAY(cuMemcpy((Address)&value, memory + 4, 4));
    SAY(cuMemsetD32_v2(memory, 1, 1));
    twice(pooled);
    SAY(cuCtxSynchronize());
    // What ends its use is well, and no other use of it.
    DO(cuDevicePrimaryCtxReset_v2(0));
}

static void let_go(void) {
    Handle handles[2];
    Address pooled, memory;
    void *pool;
    int file = receive_all(3, handles, sizeof handles);
    char byte;
    DO(cuMemPoolImportFromShareableHandle(&pool, (void *)(size_t)file, DESCRIPTOR, 0));
    DO(cuMemPoolImportPointer(&pooled, pool, &handles[0]));
    DO(cuIpcOpenMemHandle_v2(&memory, handles[1], 1));
    send_all(3, "", 1, -1);
    receive_all(3, &byte, 1);
    SAY(cuMemFree_v2(pooled));
    SAY(cuMemFree_v2(pooled));
    SAY(cuIpcCloseMemHandle(memory));
}

static void refused(void) {
    void *pool = pool_with(DESCRIPTOR), *plain = pool_with(0), *own, *made;
    Address memory = memory_of(pool, 1), of_plain = memory_of(plain, 1), other;
    Properties properties = {1, 2, {1, 0}};
    Handle pointer;
    int file, zero = open("/dev/zero", O_RDWR);
    DO(cuMemAlloc_v2(&other, 4)); DO(cuDeviceGetDefaultMemPool(&own, 0));
    SAY(cuMemPoolCreate(&made, &properties));
    SAY(cuMemPoolExportToShareableHandle(&file, pool, DESCRIPTOR, 1));
    SAY(cuMemPoolExportToShareableHandle(&file, pool, 2, 0));
    SAY(cuMemPoolExportToShareableHandle(&file, plain, DESCRIPTOR, 0));
    SAY(cuMemPoolExportToShareableHandle(&file, own, DESCRIPTOR, 0));
    SAY(cuMemPoolExportPointer(&pointer, of_plain));
    SAY(cuMemPoolExportPointer(&pointer, other));
    SAY(cuMemPoolExportPointer(&pointer, memory + 4));
    DO(cuMemPoolExportPointer(&pointer, memory));
    SAY(cuMemPoolImportPointer(&other, pool, &pointer));
    SAY(cuMemPoolImportFromShareableHandle(&made, (void *)(size_t)zero, DESCRIPTOR, 0));
    SAY(cuMemPoolImportFromShareableHandle(&made, (void *)99, DESCRIPTOR, 0));
    SAY(cuMemPoolImportFromShareableHandle(&made, (void *)-1, DESCRIPTOR, 0));
}

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    // What a second process prints comes where it prints it.
    setvbuf(stdout, 0, _IONBF, 0);
    DO(cuInit(0));
    if (!strcmp(role, "share")) share();
    else if (!strcmp(role, "import")) import();
    else if (!strcmp(role, "freed")) freed();
    else if (!strcmp(role, "keep")) getenv("LET_GO") ? let_go() : keep();
    else if (!strcmp(role, "refused")) refused();
    else return 7;
    return 0;
}
