"""Contexts, memory, copies, streams and events of libcuda, on each device of the machine.

Every result is compared byte for byte; what differs, or fails, ends it with 1 and says what.
"""
import ctypes
import random
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
OUT_OF_MEMORY, LAUNCH_FAILED = 2, 719
Size, Pointer = ctypes.c_size_t, ctypes.c_uint64


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        sys.exit(f"{name} ended with {result}")


def made(kind, name, *args):
    """What a function returns through its first argument."""
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value


def same(found, expected, what):
    if bytes(found) != bytes(expected):
        at = next(at for at, (a, b) in enumerate(zip(bytes(found), bytes(expected))) if a != b)
        sys.exit(f"{what}: byte {at} is {bytes(found)[at]:#x}, not {bytes(expected)[at]:#x}")


def fresh(size):
    return random.Random(size).randbytes(size)


def device_memory(size):
    return made(Pointer, "cuMemAlloc_v2", Size(size))


def at(pointer, offset):
    return Pointer(pointer.value + offset)


def read(pointer, size):
    found = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", found, pointer, Size(size))
    return found.raw


def copies():
    for size in (1, 3, 4096, 4097, 65535, (1 << 20) + 1, 24 << 20):
        data = fresh(size)
        memory = device_memory(size + 64)
        for offset in (0, 13):
            call("cuMemcpyHtoD_v2", at(memory, offset), data, Size(size))
            same(read(at(memory, offset), size), data, f"{size} bytes at {offset}")
        call("cuMemFree_v2", memory)


def streams():
    stream = made(ctypes.c_void_p, "cuStreamCreate", 1)
    begin, end = made(ctypes.c_void_p, "cuEventCreate", 0), made(ctypes.c_void_p, "cuEventCreate", 0)
    size = 4 << 20
    pinned = made(ctypes.c_void_p, "cuMemAllocHost_v2", Size(size))
    back = made(ctypes.c_void_p, "cuMemAllocHost_v2", Size(size))
    data, memory = fresh(size), device_memory(size)
    ctypes.memmove(pinned, data, size)
    call("cuEventRecord", begin, stream)
    call("cuMemcpyHtoDAsync_v2", memory, pinned, Size(size), stream)
    call("cuMemcpyDtoHAsync_v2", back, memory, Size(size), stream)
    call("cuEventRecord", end, stream)
    call("cuStreamSynchronize", stream)
    call("cuEventQuery", end)
    same(ctypes.string_at(back, size), data, "a stream")
    took = made(ctypes.c_float, "cuEventElapsedTime", begin, end).value
    if not 0 < took < 60000:
        sys.exit(f"the copies took {took} ms")
    call("cuMemFreeHost", pinned)
    call("cuMemFreeHost", back)
    call("cuMemFree_v2", memory)
    for event in (begin, end):
        call("cuEventDestroy_v2", event)
    call("cuStreamDestroy_v2", stream)


def room():
    """Memory that is taken is told, and comes back."""
    def free():
        all_of_it = Size()
        left = made(Size, "cuMemGetInfo_v2", ctypes.byref(all_of_it))
        return left.value, all_of_it.value

    before, total = free()
    memory = device_memory(64 << 20)
    taken, _ = free()
    call("cuMemFree_v2", memory)
    after, _ = free()
    if before - taken < 64 << 20 or after != before or not 0 < before <= total:
        sys.exit(f"of {total} bytes {before} are free, then {taken}, then {after}")
    result = cuda.cuMemAlloc_v2(ctypes.byref(Pointer()), Size(total + 1))
    if result != OUT_OF_MEMORY:
        sys.exit(f"more memory than there is: {result}")


def launch():
    """A copy on the device is a kernel of libcuda's own, as a large memset is: it is refused at once, and ends the
    context."""
    memory = device_memory(1 << 20)
    began = time.monotonic()
    call("cuMemcpyDtoD_v2", at(memory, 1 << 19), memory, Size(1 << 10))
    result, took = cuda.cuCtxSynchronize(), time.monotonic() - began
    if result != LAUNCH_FAILED or took > 10:
        sys.exit(f"a kernel ended with {result} after {took} s")


call("cuInit", 0)
count = made(ctypes.c_int, "cuDeviceGetCount").value
for device in range(count):
    context = made(ctypes.c_void_p, "cuCtxCreate_v2", 0, device)
    for part in (copies, streams, room):
        part()
    call("cuCtxDestroy_v2", context)
    context = made(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", device)
    call("cuCtxPushCurrent_v2", context)
    copies()
    call("cuCtxPopCurrent_v2", ctypes.byref(context))
    call("cuDevicePrimaryCtxRelease_v2", device)
    context = made(ctypes.c_void_p, "cuCtxCreate_v2", 0, device)
    launch()
    cuda.cuCtxDestroy_v2(context)
print("devices:", count)
