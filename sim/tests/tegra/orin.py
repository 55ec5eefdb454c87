"""A channel as somebody would set it up on an Orin, with ctypes, the kernel's headers and a manual, in the order that
CUDA does. It knows nothing of nvabi.
"""
import ctypes
import fcntl
import mmap
import os
import struct
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]


def request(direction, magic, nr, size):
    return direction << 30 | size << 16 | ord(magic) << 8 | nr


def ioctl(fd, direction, magic, nr, layout, *values):
    argument = bytearray(struct.pack(layout, *values))
    fcntl.ioctl(fd, request(direction, magic, nr, len(argument)), argument)
    return struct.unpack(layout, argument)


W, R, RW = 1, 2, 3
nvmap = os.open("/dev/nvmap", os.O_RDWR | os.O_CLOEXEC)
ctrl = os.open("/dev/nvgpu/igpu0/ctrl", os.O_RDWR | os.O_CLOEXEC)
fences = os.open("/dev/host1x-fence", os.O_RDWR | os.O_CLOEXEC)

# Who are you?
buffer = ctypes.create_string_buffer(328)
size, _ = ioctl(ctrl, RW, "G", 5, "<QQ", 328, ctypes.addressof(buffer))
assert size == 328, size
arch, impl = struct.unpack_from("<II", buffer, 0)
compute, gpfifo_class, _, copy_class = struct.unpack_from("<IIII", buffer, 80)
assert (arch, impl) == (0x170, 0xB), (arch, impl)
assert (compute, gpfifo_class, copy_class) == (0xC7C0, 0xC76F, 0xC7B5)
heaps, = ioctl(nvmap, R, "N", 25, "<Q", 0)
assert heaps & 1 << 30 == 0, hex(heaps)


def allocate(size, flags=1):
    """A buffer: its descriptor and its memory."""
    _, handle = ioctl(nvmap, RW, "N", 0, "<II", size, 0)
    ioctl(nvmap, W, "N", 3, "<IIIIi", handle, 1 << 30, 0x900 << 16 | flags, 4096, -1)
    fd, _ = ioctl(nvmap, RW, "N", 15, "<II", 0, handle)
    fcntl.ioctl(nvmap, request(0, "N", 4, 0), ctypes.c_int(handle).value)
    return fd, mmap.mmap(fd, size)


as_fd = ioctl(ctrl, RW, "G", 8, "<IiIIQQQ24x", 0, 0, 2, 0, 0x200000, 0xFFFFE00000, 0)[1]
for window in 0xFD00000000, 0xFE00000000:
    at = ioctl(as_fd, RW, "A", 6, "<QIIQ8x", 0x40000, 4096, 1, window)[3]
    assert at == window


def map_buffer(fd):
    return ioctl(as_fd, RW, "A", 7, "<IhhIIQQQ", 0, -1, 0, fd, 4096, 0, 0, 0)[7]


commands_fd, commands = allocate(1 << 16)
commands_va = map_buffer(commands_fd)
semaphore_fd, semaphore = allocate(4096)
semaphore_va = map_buffer(semaphore_fd)

tsg = ioctl(ctrl, RW, "G", 9, "<iIQQ", 0, 0, 0, 0)[0]
veid = ioctl(tsg, RW, "T", 18, "<IiII", 1, as_fd, 0, 0)[2]
assert veid == 1, veid
channel, = ioctl(ctrl, RW, "G", 11, "<i", -1)
ioctl(as_fd, RW, "A", 1, "<i", channel)
ioctl(tsg, RW, "T", 11, "<iI16x", channel, veid)
ioctl(channel, W, "H", 119, "<II", 1, 0)
ring_fd, ring = allocate(8192)
userd_fd, userd = allocate(4096)
setup = ioctl(channel, RW, "H", 128, "<IIIiiIQQQQQ40x", 1024, 0, 0xA, userd_fd, ring_fd, 0, 0, 0, 0, 0,
              0)
token = setup[5]
assert token == 511, token
sync_va, sync_id, sync_value = ioctl(channel, R, "H", 126, "<QII", 0, 0, 0)
assert sync_va == 0xFFFFE10000, hex(sync_va)
for engine_class in copy_class, compute:
    ioctl(channel, RW, "H", 108, "<IIQ", engine_class, 0, 0)
notifier_fd, notifier = allocate(4096)
ioctl(channel, RW, "H", 111, "<QQII", 0, 0, notifier_fd, 0)
ioctl(tsg, W, "T", 9, "<II", 2000, 0)

doorbell = mmap.mmap(ctrl, 0x10000)


def method(subchannel, address, *data):
    return struct.pack(f"<I{len(data)}I", 1 << 29 | len(data) << 16 | subchannel << 13 | address >> 2,
                       *data)


def pair(value):
    return value >> 32, value & 0xFFFFFFFF


put = 0


def submit(stream):
    global put
    commands[put * 4096:put * 4096 + len(stream)] = stream
    entry = commands_va + put * 4096 | len(stream) // 4 << 42
    ring[put * 8:put * 8 + 8] = struct.pack("<Q", entry)
    put += 1
    userd[0x8C:0x90] = struct.pack("<I", put)
    doorbell[0x90:0x94] = struct.pack("<I", token)


def wait(value, offset=0):
    end = time.monotonic() + 5
    while struct.unpack_from("<I", semaphore, offset)[0] != value:
        assert time.monotonic() < end, "the semaphore never comes"
