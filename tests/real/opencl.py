"""NVIDIA's OpenCL without a loader: platform and device, a buffer there and back, and a kernel on each device.

What differs, or fails, ends it with 1 and says what.
"""
import ctypes
import random
import sys

# A loader finds functions by their place in the table that every object begins with: Khronos' cl_icd.h.
TABLE = {
    "clGetPlatformInfo": 1, "clGetDeviceIDs": 2, "clGetDeviceInfo": 3, "clCreateContext": 4, "clReleaseContext": 7,
    "clCreateCommandQueue": 9, "clReleaseCommandQueue": 11, "clCreateBuffer": 14, "clReleaseMemObject": 18,
    "clCreateProgramWithSource": 26, "clReleaseProgram": 29, "clBuildProgram": 30, "clGetProgramBuildInfo": 33,
    "clCreateKernel": 34, "clReleaseKernel": 37, "clSetKernelArg": 38, "clFinish": 47, "clEnqueueReadBuffer": 48,
    "clEnqueueWriteBuffer": 49, "clEnqueueCopyBuffer": 50, "clEnqueueNDRangeKernel": 59,
}
PLATFORM_NAME, DEVICE_NAME, MEMORY_SIZE, BUILD_LOG = 0x902, 0x102B, 0x101F, 0x1183
GPU, READ_WRITE = 4, 1
Pointer, Size, Bits = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
SOURCE = b"""
kernel void scale(global const uint *from, global uint *to, uint by)
{
    size_t at = get_global_id(0);
    to[at] = from[at] * by + (uint) get_local_id(0);
}
"""


def call(name, *args):
    result = function(name, ctypes.c_int)(*args)
    if result:
        sys.exit(f"{name} ended with {result}")


def made(name, *args):
    """The object that a function returns, with its status in the last argument."""
    status = ctypes.c_int()
    value = function(name, Pointer)(*args, ctypes.byref(status))
    if status.value:
        sys.exit(f"{name} ended with {status.value}")
    return Pointer(value)


def function(name, kind):
    return ctypes.CFUNCTYPE(kind)(table[TABLE[name]])


def text(name, *args):
    """What a function of information says: size and place are its last arguments but one."""
    size = Size()
    call(name, *args, Size(0), None, ctypes.byref(size))
    told = ctypes.create_string_buffer(size.value)
    call(name, *args, size, told, None)
    return told.raw


def words(data):
    return memoryview(bytes(data)).cast("I").tolist()


def built(context, device):
    source = ctypes.c_char_p(SOURCE)
    program = made("clCreateProgramWithSource", context, 1, ctypes.byref(source), None)
    if result := function("clBuildProgram", ctypes.c_int)(program, 0, None, None, None, None):
        log = text("clGetProgramBuildInfo", program, device, BUILD_LOG)
        sys.exit(f"clBuildProgram ended with {result}: {log.decode()}")
    return program


def on(device):
    if int.from_bytes(text("clGetDeviceInfo", device, MEMORY_SIZE), "little") < 1 << 30:
        sys.exit("a device of less than 1 GiB")
    context = made("clCreateContext", None, 1, ctypes.byref(device), None, None)
    queue = made("clCreateCommandQueue", context, device, Bits(0))
    count, by = 8192, 2654435761
    data, back = random.Random(7).randbytes(count * 4), ctypes.create_string_buffer(count * 4)
    whole = Size(len(data))
    first, second = (made("clCreateBuffer", context, Bits(READ_WRITE), whole, None) for _ in range(2))
    call("clEnqueueWriteBuffer", queue, first, 1, Size(0), whole, data, 0, None, None)
    call("clEnqueueReadBuffer", queue, first, 1, Size(0), whole, back, 0, None, None)
    if back.raw != data:
        sys.exit("a buffer came back otherwise")
    call("clEnqueueCopyBuffer", queue, first, second, Size(4), Size(0), Size(4096), 0, None, None)
    call("clEnqueueReadBuffer", queue, second, 1, Size(0), Size(4096), back, 0, None, None)
    if back.raw[:4096] != data[4:4100]:
        sys.exit("a copy on the device differs")
    program = built(context, device)
    kernel = made("clCreateKernel", program, b"scale")
    for at, value in enumerate((first, second, ctypes.c_uint(by))):
        call("clSetKernelArg", kernel, at, Size(ctypes.sizeof(value)), ctypes.byref(value))
    call("clEnqueueNDRangeKernel", queue, kernel, 1, None, (Size * 1)(count), (Size * 1)(64), 0, None, None)
    call("clEnqueueReadBuffer", queue, second, 1, Size(0), whole, back, 0, None, None)
    expected = [(word * by + at % 64) % (1 << 32) for at, word in enumerate(words(data))]
    if words(back.raw) != expected:
        at = next(at for at, (a, b) in enumerate(zip(words(back.raw), expected)) if a != b)
        sys.exit(f"word {at} of the kernel is {words(back.raw)[at]:#x}, not {expected[at]:#x}")
    call("clFinish", queue)
    for release, value in (("Kernel", kernel), ("Program", program), ("MemObject", first), ("MemObject", second),
                           ("CommandQueue", queue), ("Context", context)):
        call(f"clRelease{release}", value)


opencl = ctypes.CDLL("libnvidia-opencl.so.1")
opencl.clGetExtensionFunctionAddress.restype = Pointer
address = opencl.clGetExtensionFunctionAddress(b"clIcdGetPlatformIDsKHR")
platform, count = Pointer(), ctypes.c_uint()
if result := ctypes.CFUNCTYPE(ctypes.c_int)(address)(1, ctypes.byref(platform), ctypes.byref(count)):
    sys.exit(f"clIcdGetPlatformIDsKHR ended with {result}")
table = ctypes.cast(platform, ctypes.POINTER(ctypes.POINTER(Pointer)))[0]
print(text("clGetPlatformInfo", platform, PLATFORM_NAME).rstrip(b"\0").decode())
call("clGetDeviceIDs", platform, Bits(GPU), 0, None, ctypes.byref(count))
devices = (Pointer * count.value)()
call("clGetDeviceIDs", platform, Bits(GPU), count, devices, None)
for device in map(Pointer, devices):
    on(device)
    print(text("clGetDeviceInfo", device, DEVICE_NAME).rstrip(b"\0").decode())
