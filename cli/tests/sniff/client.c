// A client of a driver, as the tests of `nvabi sniff` watch it on simulated kernels. Layouts are those that
// all tags have; whatever a driver answers is fine, and nothing here looks at it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RM(nr, size) (3u << 30 | (unsigned)(size) << 16 | 'F' << 8 | (nr))

struct alloc { uint32_t root, parent, new_, class; uint64_t params; uint32_t size, status; };
struct control { uint32_t client, object, cmd, flags; uint64_t params; uint32_t size, status; };
struct free_ { uint32_t root, parent, old, status; };
struct carrier { uint32_t cmd, size; uint64_t at; };

static uint32_t allocate(int ctl, uint32_t root, uint32_t parent, uint32_t new_, uint32_t class, void *params) {
    struct alloc alloc = {root, parent, new_, class, (uintptr_t)params, 0, 0};
    ioctl(ctl, RM(0x2b, sizeof(alloc)), &alloc);
    return alloc.new_;
}

static void control(int ctl, uint32_t client, uint32_t object, uint32_t cmd, void *params, uint32_t size) {
    struct control control = {client, object, cmd, 0, (uintptr_t)params, size, 0};
    ioctl(ctl, RM(0x2a, sizeof(control)), &control);
}

static int desktop(void) {
    char version[72] = {0}, device[56] = {0};
    uint32_t ids[32], subdevice = 0;
    memset(ids, 0, sizeof(ids));
    int ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    if (ctl < 0) return 40;
    ioctl(ctl, RM(0xd2, sizeof(version)), version);
    int gpu = open("/dev/nvidia0", O_RDWR);
    ioctl(gpu, RM(0xc9, sizeof(ctl)), &ctl);
    uint32_t root = allocate(ctl, 0, 0, 0, 0x41, NULL);
    allocate(ctl, root, root, 0xcaf00001, 0x80, device);
    allocate(ctl, root, 0xcaf00001, 0xcaf00002, 0x2080, &subdevice);
    allocate(ctl, root, 0xcaf00001, 0xcaf00003, 0x1234, NULL); // no such class
    control(ctl, root, root, 0x201, ids, sizeof(ids));
    control(ctl, root, 0xcaf00002, 0x20800fff, ids, 16); // no such command
    struct free_ gone = {root, root, 0xcaf00002, 0};
    struct carrier carrier = {0x29, sizeof(gone), (uintptr_t)&gone};
    ioctl(ctl, RM(0xd3, sizeof(carrier)), &carrier);
    control(ctl, root, 0xcaf00002, 0x201, ids, sizeof(ids)); // it is not there any more
    ioctl(ctl, RM(0x99, 8), version); // no such call
    close(gpu);
    return 0;
}

static void version(int ctl) {
    char version[72] = {0};
    ioctl(ctl, RM(0xd2, sizeof(version)), version);
}

// Calls of 570.86.15 with one mistake each, for the audit; and some that look like one and are none.
static int wrong(void) {
    struct { uint32_t client, device, memory, pad; uint64_t offset, length, linear; uint32_t status, flags; int32_t fd, end; } map;
    struct { uint32_t words[16]; } dma = {{0}};
    uint32_t ids[32] = {0};
    char device[56] = {0};
    int ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC), gpu = open("/dev/nvidia0", O_RDWR);
    if (ctl < 0 || gpu < 0) return 40;
    version(ctl);
    ioctl(gpu, RM(0xc9, sizeof(ctl)), &ctl);
    uint32_t root = allocate(ctl, 0, 0, 0, 0x41, NULL);
    allocate(ctl, root, root, 0xcaf00001, 0x80, device);
    control(ctl, root, root, 0x201, ids, sizeof(ids));
    // What cannot be allocated may be freed.
    allocate(ctl, root, 0xcaf00001, 0xcaf00003, 0x1234, NULL); // unknown-class
    struct free_ gone = {root, 0xcaf00001, 0xcaf00003, 0};
    ioctl(ctl, RM(0x29, sizeof(gone)), &gone);

    for (int i = 0; i < 3; i++) ioctl(ctl, RM(0x57, sizeof(dma)), &dma); // request-size: of 580
    ioctl(ctl, RM(0x29, 12), &gone); // request-size: of no tag
    ioctl(ctl, 1u << 30 | (RM(0x29, sizeof(gone)) & ~(3u << 30)), &gone); // direction
    control(ctl, root, root, 0x201, ids, 64); // params-size
    int closed = 77;
    ioctl(gpu, RM(0xc9, sizeof(closed)), &closed); // closed-fd
    control(ctl, root, 0xdeadbeef, 0x201, ids, sizeof(ids)); // unknown-handle
    ioctl(ctl, RM(0x99, 8), device); // unknown-ioctl
    struct carrier carrier = {0x98, 8, (uintptr_t)device};
    ioctl(ctl, RM(0xd3, sizeof(carrier)), &carrier); // unknown-ioctl, carried
    control(ctl, root, root, 0x20800fff, ids, 16); // unknown-command
    // hidden-pointer: in a field without a role, and in memory that nobody knows.
    memset(&map, 0, sizeof(map));
    map.client = root;
    map.offset = (uintptr_t)device;
    map.linear = (uintptr_t)ids; // has a role
    map.fd = -1; // none
    ioctl(ctl, RM(0x4e, sizeof(map)), &map);
    uint64_t words[2] = {4096, (uintptr_t)device};
    control(ctl, root, root, 0x20800ffe, words, sizeof(words));
    control(ctl, root, root, 0x3d04, &ctl, sizeof(ctl)); // hidden-fd
    return 0;
}

static int tegra(void) {
    struct { uint32_t size, handle; } create = {4096, 0};
    struct { uint32_t flags_or_fd; int32_t fd; uint64_t rest[2]; } tsg = {0};
    int nvmap = open("/dev/nvmap", O_RDWR | O_CLOEXEC);
    if (nvmap < 0) return 40;
    ioctl(nvmap, 0xc0084e00u, &create);
    int ctrl = open("/dev/nvgpu/igpu0/ctrl", O_RDWR | O_CLOEXEC);
    ioctl(ctrl, 0xc0184709u, &tsg); // NVGPU_GPU_IOCTL_OPEN_TSG
    ioctl((int)tsg.flags_or_fd, 0x5403, 0); // NVGPU_IOCTL_TSG_ENABLE
    ioctl(ctrl, 0xc00847ffu, &create); // no such call
    return 0;
}

// Sends a descriptor, or receives one where there is none.
static int hand(int socket, int fd) {
    char byte = 0;
    struct iovec part = {&byte, 1};
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control.room, .msg_controllen = sizeof(control.room)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (fd < 0) {
        if (recvmsg(socket, &message, 0) != 1) return -1;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
        return fd;
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return sendmsg(socket, &message, 0) == 1 ? fd : -1;
}

// One request on each copy of a descriptor: nine of them.
static int copies(char **words) {
    int sockets[2], ends[2], status;
    if (chdir("/dev")) return 1;
    int ctl = open("nvidiactl", O_RDWR);
    if (ctl < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || pipe(ends)) return 2;
    version(ctl);
    version(dup(ctl));
    version(dup2(ctl, 100));
    version(dup3(ctl, 101, O_CLOEXEC));
    version(fcntl(ctl, F_DUPFD, 200));
    // By fork; and in a child that has none, over a socket.
    pid_t child = fork();
    if (child == 0) {
        version(200);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status) return 3;
    child = fork();
    if (child == 0) {
        for (int i = 3; i < 256; i++) if (i != sockets[1]) close(i);
        version(hand(sockets[1], -1));
        _exit(0);
    }
    if (hand(sockets[0], ctl) < 0 || waitpid(child, &status, 0) != child || status) return 4;
    // Out of another process.
    child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    version((int)syscall(SYS_pidfd_getfd, process, 200, 0));
    close(ends[1]);
    if (waitpid(child, &status, 0) != child || status) return 5;
    execl("/proc/self/exe", words[0], "asks", "200", NULL);
    return 6;
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "copies")) return copies(words);
    if (count > 2 && !strcmp(words[1], "asks")) {
        version(atoi(words[2]));
        return 0;
    }
    if (count > 1 && !strcmp(words[1], "wrong")) return wrong();
    return count > 1 && !strcmp(words[1], "tegra") ? tegra() : desktop();
}
