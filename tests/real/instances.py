"""Calls every function of NVML that is about instances of MIG, with instances that are there: nvml.py has none.

A line for each: the function, its status, and what it wrote, as numbers. A function that this version lacks is left
out. Run by cli/tests/real.rs on a card that is divided without a reset.
"""

import ctypes
import sys

from nvml import errors

nvml = ctypes.CDLL("libnvidia-ml.so.1")
names = errors()


class Placement(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


def call(function, *arguments, shows=None):
    """Calls a function, and shows so many numbers of what its last argument points to."""
    if not hasattr(nvml, function):
        return
    status = getattr(nvml, function)(*arguments)
    numbers = ctypes.cast(arguments[-1], ctypes.POINTER(ctypes.c_uint)) if shows else None
    value = [numbers[at] for at in range(shows or 0)]
    print(function, names.get(status, status), value, sep="\t", flush=True)


def handle(function, *arguments):
    found = ctypes.c_void_p()
    call(function, *arguments, ctypes.byref(found))
    return found


def record(version=0, size=4096):
    made = ctypes.create_string_buffer(size)
    ctypes.memmove(made, version.to_bytes(4, "little"), 4)
    return made


def main():
    nvml.nvmlInit_v2()
    device = handle("nvmlDeviceGetHandleByIndex_v2", 0)
    active, number, count = ctypes.c_int(), ctypes.c_uint(), ctypes.c_uint()
    at, at_count = ctypes.byref(number), ctypes.byref(count)
    call("nvmlDeviceSetMigMode", device, 1, ctypes.byref(active))
    call("nvmlDeviceGetMaxMigDeviceCount", device, at, shows=1)
    # A quarter of the card, by the index of its profile; its id is the first number.
    profile, slices = record(), 1
    call("nvmlDeviceGetGpuInstanceProfileInfo", device, slices, profile, shows=5)
    kind = int.from_bytes(profile[:4], "little")
    call("nvmlDeviceGetGpuInstanceProfileInfoV", device, slices, record(0x02000098), shows=6)
    call("nvmlDeviceGetGpuInstanceRemainingCapacity", device, kind, at, shows=1)
    places = (Placement * 16)()
    count.value = 16
    call("nvmlDeviceGetGpuInstancePossiblePlacements", device, kind, places, at_count, shows=1)
    count.value = 16
    call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device, kind, places, at_count, shows=1)
    placed = handle("nvmlDeviceCreateGpuInstanceWithPlacement", device, kind, ctypes.byref(places[1]))
    call("nvmlGpuInstanceDestroy", placed)
    instance = handle("nvmlDeviceCreateGpuInstance", device, kind)
    info = record()
    call("nvmlGpuInstanceGetInfo", instance, info)
    own = int.from_bytes(info[8:12], "little")
    handle("nvmlDeviceGetGpuInstanceById", device, own)
    handles = (ctypes.c_void_p * 16)()
    call("nvmlDeviceGetGpuInstances", device, kind, handles, at_count, shows=1)

    # A compute instance of one slice, beside which there is another.
    part = record()
    call("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, 0, 0, part, shows=4)
    kind_of_part = int.from_bytes(part[:4], "little")
    call("nvmlGpuInstanceGetComputeInstanceProfileInfoV", instance, 0, 0, record(0x02000088), shows=5)
    call("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", instance, kind_of_part, at, shows=1)
    count.value = 16
    call("nvmlGpuInstanceGetComputeInstancePossiblePlacements", instance, kind_of_part, places, at_count, shows=1)
    placed = handle(
        "nvmlGpuInstanceCreateComputeInstanceWithPlacement", instance, kind_of_part, ctypes.byref(places[0]))
    if placed:
        call("nvmlComputeInstanceDestroy", placed)
    compute = handle("nvmlGpuInstanceCreateComputeInstance", instance, kind_of_part)
    handle("nvmlGpuInstanceGetComputeInstanceById", instance, 0)
    call("nvmlGpuInstanceGetComputeInstances", instance, kind_of_part, handles, at_count, shows=1)
    call("nvmlComputeInstanceGetInfo", compute, record())
    call("nvmlComputeInstanceGetInfo_v2", compute, record())

    mig = handle("nvmlDeviceGetMigDeviceHandleByIndex", device, 0)
    call("nvmlDeviceIsMigDeviceHandle", mig, at, shows=1)
    call("nvmlDeviceGetGpuInstanceId", mig, at, shows=1)
    call("nvmlDeviceGetComputeInstanceId", mig, at, shows=1)
    handle("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig)
    call("nvmlDeviceGetAttributes", mig, record(), shows=1)
    call("nvmlDeviceGetAttributes_v2", mig, record(), shows=1)
    if hasattr(nvml, "nvmlGpmSampleAlloc"):
        call("nvmlGpmMigSampleGet", device, own, handle("nvmlGpmSampleAlloc"))
    call("nvmlComputeInstanceDestroy", compute)
    call("nvmlGpuInstanceDestroy", instance)
    nvml.nvmlShutdown()


sys.exit(main())
