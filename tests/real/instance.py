"""What libcuda says of the instance of MIG that CUDA_VISIBLE_DEVICES names: its name, MiB of its memory, its SMs.

A copy goes there and back, more memory than it has is refused, and all of what is free is given.
"""
import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
MULTIPROCESSORS, OUT_OF_MEMORY = 16, 2
Size, Pointer = ctypes.c_size_t, ctypes.c_uint64


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        sys.exit(f"{name} ended with {result}")


call("cuInit", 0)
count, device, sms, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
name, memory = ctypes.create_string_buffer(100), Size()
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDeviceGetName", name, len(name), device)
call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
call("cuDeviceGetAttribute", ctypes.byref(sms), MULTIPROCESSORS, device)
if count.value != 1:
    sys.exit(f"{count.value} devices")

call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
pointer, free, total = Pointer(), Size(), Size()
call("cuMemAlloc_v2", ctypes.byref(pointer), Size(1 << 20))
data, back = os.urandom(1 << 20), ctypes.create_string_buffer(1 << 20)
call("cuMemcpyHtoD_v2", pointer, data, Size(len(data)))
call("cuMemcpyDtoH_v2", back, pointer, Size(len(data)))
if back.raw != data:
    sys.exit("the copy differs")
call("cuMemFree_v2", pointer)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
if not 0 < free.value < total.value == memory.value:
    sys.exit(f"{free.value} of {total.value} bytes are free, of {memory.value}")
refused = cuda.cuMemAlloc_v2(ctypes.byref(pointer), Size(memory.value))
if refused != OUT_OF_MEMORY:
    sys.exit(f"cuMemAlloc of more than there is ended with {refused}")
call("cuMemAlloc_v2", ctypes.byref(pointer), Size(free.value - (64 << 20)))
print(name.value.decode(), memory.value >> 20, sms.value)
