"""A client for an Orin: copies memory with the copy engine, and waits for a semaphore."""
import os
import struct

from orin import (R, allocate, channel, copy_class, ioctl, map_buffer, method, notifier, pair, semaphore_fd, semaphore_va,
                  submit, sync_va, sync_value, userd, wait)

SIZE = 1 << 20
source_fd, source = allocate(SIZE, 2)
source_va = map_buffer(source_fd)
assert source_va % SIZE == 0, hex(source_va)
destination_fd, destination = allocate(SIZE, 2)
destination_va = map_buffer(destination_fd)
again = map_buffer(semaphore_fd)
assert again == semaphore_va, "the same buffer is mapped once"

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
