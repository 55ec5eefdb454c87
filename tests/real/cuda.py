"""What libcuda says of the machine's devices, as JSON: the real library, asked through ctypes."""

import ctypes
import json

LIBRARY = ctypes.CDLL("libcuda.so.1")
# CUdevice_attribute, as CUDA's documentation numbers them.
ATTRIBUTES = {
    "max_threads_per_block": 1,
    "warp_size": 10,
    "multiprocessors": 16,
    "integrated": 18,
    "concurrent_kernels": 31,
    "pci_bus": 33,
    "memory_bus_width": 37,
    "l2_size": 38,
    "threads_per_multiprocessor": 39,
    "unified_addressing": 41,
    "major": 75,
    "minor": 76,
    "managed_memory": 83,
}


def asked(name, *args):
    status = getattr(LIBRARY, name)(*args)
    if status != 0:
        raise SystemExit(f"{name}: {status}")


def device(index):
    handle, text, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    asked("cuDeviceGet", ctypes.byref(handle), index)
    asked("cuDeviceGetName", text, 256, handle)
    name = text.value.decode()
    asked("cuDeviceGetPCIBusId", text, 256, handle)
    asked("cuDeviceTotalMem_v2", ctypes.byref(size), handle)
    uuid = ctypes.create_string_buffer(16)
    asked("cuDeviceGetUuid", uuid, handle)
    told = {"name": name, "pci": text.value.decode(), "memory": size.value, "uuid": uuid.raw.hex()}
    for attribute, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        asked("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
        told[attribute] = value.value
    return told


asked("cuInit", 0)
count = ctypes.c_int()
asked("cuDeviceGetCount", ctypes.byref(count))
print(json.dumps([device(index) for index in range(count.value)]))
