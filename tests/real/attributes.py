"""Every attribute of the first device as libcuda says it: a line of its number and value, or `E` and the error."""
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
if status := cuda.cuInit(0):
    raise SystemExit(f"cuInit: {status}")
for number in range(1, 150):
    value = ctypes.c_int()
    status = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    print(number, f"E{status}" if status else value.value)
