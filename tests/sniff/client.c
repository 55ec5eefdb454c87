// A client of a driver, as the tests of `nvabi sniff` watch it on simulated kernels. Layouts are those that
// all tags have; whatever a driver answers is fine, and nothing here looks at it.
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
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

int main(int count, char **words) {
    return count > 1 && !strcmp(words[1], "tegra") ? tegra() : desktop();
}
