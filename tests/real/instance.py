"""What libcuda says of the instance of MIG that CUDA_VISIBLE_DEVICES names: its name, MiB of its memory, its SMs.

A copy goes there and back, more memory than it has is refused, and all of what is free is given. A kernel runs, and a
cooperative one has as many blocks as its SMs hold at once, and no more.
"""
import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
MULTIPROCESSORS, OUT_OF_MEMORY, TOO_LARGE = 16, 2, 720
Size, Pointer = ctypes.c_size_t, ctypes.c_uint64

THREADS = 1024
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry number(.param .u64 out) {
  .reg .b32 %r<6>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1;
  mul.lo.u32 %r4, %r3, 3; st.global.u32 [%d2], %r4;
  ret;
}
"""


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
call("cuMemFree_v2", pointer)

module, function, resident = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"number")
call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(resident), function, THREADS, Size(0))
blocks = sms.value * resident.value
found = (ctypes.c_uint32 * (blocks * THREADS))()
call("cuMemAlloc_v2", ctypes.byref(pointer), Size(ctypes.sizeof(found)))
arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p))
for launch, more in (("cuLaunchKernel", [None]), ("cuLaunchCooperativeKernel", [])):
    call("cuMemsetD8_v2", pointer, 0xFF, Size(ctypes.sizeof(found)))
    call(launch, function, blocks, 1, 1, THREADS, 1, 1, 0, None, arguments, *more)
    call("cuMemcpyDtoH_v2", found, pointer, Size(ctypes.sizeof(found)))
    if list(found) != [3 * at for at in range(len(found))]:
        sys.exit(f"{launch}: the kernel's results differ")
refused = cuda.cuLaunchCooperativeKernel(function, blocks + 1, 1, 1, THREADS, 1, 1, 0, None, arguments)
if refused != TOO_LARGE:
    sys.exit(f"{blocks + 1} blocks on {sms.value} SMs ended with {refused}")
print(name.value.decode(), memory.value >> 20, sms.value)
