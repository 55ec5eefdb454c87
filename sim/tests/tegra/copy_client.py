"""A client as somebody would write it for an Orin: ctypes, the kernel's headers and a manual.

It sets up a channel in the order that CUDA does, copies memory with the copy engine, and waits for
a semaphore. It knows nothing of nvabi.
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys
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


SIZE = 1 << 20
source_fd, source = allocate(SIZE, 2)
source_va = map_buffer(source_fd)
assert source_va % SIZE == 0, hex(source_va)
destination_fd, destination = allocate(SIZE, 2)
destination_va = map_buffer(destination_fd)
commands_fd, commands = allocate(1 << 16)
commands_va = map_buffer(commands_fd)
semaphore_fd, semaphore = allocate(4096)
semaphore_va = map_buffer(semaphore_fd)
again = map_buffer(semaphore_fd)
assert again == semaphore_va, "the same buffer is mapped once"

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
ioctl(channel, RW, "H", 108, "<IIQ", copy_class, 0, 0)
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


pattern = os.urandom(SIZE)
source[:] = pattern
submit(method(4, 0, copy_class)
       + method(4, 0x400, *pair(source_va), *pair(destination_va))
       + method(4, 0x418, SIZE, 1)
       + method(4, 0x240, *pair(semaphore_va), 0x1234)
       + method(4, 0x300, 2 | 1 << 3 | 1 << 7 | 1 << 8 | 1 << 2))
wait(0x1234)
assert destination[:] == pattern, "the copy is wrong"

# A fill, a semaphore of the host, and the syncpoint.
submit(method(4, 0x408, *pair(destination_va))
       + method(4, 0x418, SIZE // 4, 1)
       + method(4, 0x700, 0xDEADBEEF)
       + method(4, 0x708, 4 | 3 << 16)
       + method(4, 0x300, 2 | 1 << 7 | 1 << 8 | 1 << 10)
       + method(0, 0x5C, semaphore_va + 16 & 0xFFFFFFFF, semaphore_va >> 32, 0x77, 0, 1 | 1 << 20)
       + method(0, 0x5C, sync_va & 0xFFFFFFFF, sync_va >> 32, 0, 0, 1))
wait(0x77, 16)
assert destination[:] == b"\xef\xbe\xad\xde" * (SIZE // 4), "the fill is wrong"
now = ioctl(channel, R, "H", 126, "<QII", 0, 0, 0)[2]
assert now == sync_value + 1, (now, sync_value)
assert struct.unpack_from("<I", userd, 0x88)[0] == 2, "GP_GET"
assert notifier[:16] == bytes(16)

base = "/sys/class/devfreq/17000000.gpu/"
most = open(base + "max_freq").read()
open(base + "min_freq", "w").write(most)
assert open(base + "min_freq").read() == most
assert sorted(os.listdir("/dev/nvgpu/igpu0")) == ["as", "channel", "ctrl", "tsg"]
print("passed")
