"""CuPy of PyPI, as far as it compiles no kernel: devices and what they have, arrays there and back, memory that is left.

What differs, or fails, ends it with 1 and says what.
"""
import random

import cupy
import numpy

SIZES = [1, 3, 4096, 70_001, 3 << 20]


def check(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: {found}, expected {expected}")


def there_and_back():
    bytes_of = random.Random(1).randbytes
    for size in SIZES:
        here = numpy.frombuffer(bytes_of(size), dtype=numpy.uint8)
        there = cupy.asarray(here)
        check(f"{size} bytes", bool((cupy.asnumpy(there) == here).all()), True)
        stream = cupy.cuda.Stream(non_blocking=True)
        again = cupy.empty_like(there)
        again.data.copy_from_device_async(there.data, size, stream)
        stream.synchronize()
        check(f"a copy of {size} bytes", bool((again.get() == here).all()), True)
    table = numpy.arange(60, dtype=numpy.float64).reshape(3, 4, 5)
    check("a table", cupy.asarray(table).get().tolist(), table.tolist())
    zeros = cupy.zeros((100, 7), dtype=numpy.int32)
    check("zeros", bool((zeros.get() == 0).all()), True)


def memory_is_counted(device):
    size = 64 << 20
    cupy.get_default_memory_pool().free_all_blocks()
    before, all_of_it = device.mem_info
    kept = cupy.cuda.alloc(size)
    check("memory that is taken", before - device.mem_info[0], size)
    del kept
    cupy.get_default_memory_pool().free_all_blocks()
    check("memory that came back", device.mem_info, (before, all_of_it))


runtime = cupy.cuda.runtime
print(f"devices: {runtime.getDeviceCount()}")
for number in range(runtime.getDeviceCount()):
    with cupy.cuda.Device(number) as device:
        properties = runtime.getDeviceProperties(number)
        capability = f"{properties['major']}{properties['minor']}"
        check("compute capability", device.compute_capability, capability)
        check("memory", device.mem_info[1], properties["totalGlobalMem"])
        there_and_back()
        memory_is_counted(device)
        print(f"{properties['name'].decode()} sm_{capability}")
