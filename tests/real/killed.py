"""A program that copies is seen through NVML, and killed in the middle of a copy: what it had comes back. Others are
killed, or end, while their own pages are read or written: that is no error of the GPU.

What is otherwise ends it with 1 and says what.
"""
import atexit
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time

import pynvml

SIZE = 8 << 20
# What the copying program writes into the page that it shares: copies that began, and that ended.
BEGAN, ENDED = 0, 1


def copy(descriptor):
    """The copying program: it never ends by itself."""
    shown = memoryview(mmap.mmap(int(descriptor), mmap.PAGESIZE)).cast("Q")
    cuda = ctypes.CDLL("libcuda.so.1")
    memory, context = ctypes.c_uint64(), ctypes.c_void_p()
    data, size = ctypes.create_string_buffer(os.urandom(4096) * (SIZE // 4096), SIZE), ctypes.c_size_t(SIZE)
    back = ctypes.create_string_buffer(SIZE)
    results = [cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
               cuda.cuMemAlloc_v2(ctypes.byref(memory), size), cuda.cuMemcpyHtoD_v2(memory, data, size),
               cuda.cuMemcpyDtoH_v2(back, memory, size)]
    if any(results) or back.raw != data.raw:
        sys.exit(f"libcuda: {results}, the same came back: {back.raw == data.raw}")
    while True:
        shown[BEGAN] += 1
        if result := cuda.cuMemcpyHtoD_v2(memory, data, size):
            sys.exit(f"cuMemcpyHtoD ended with {result}")
        shown[ENDED] += 1


def copy_own(descriptor, kind, way, last):
    """Copies to or from memory of its own; the last copy is not waited for."""
    shown = memoryview(mmap.mmap(int(descriptor), mmap.PAGESIZE)).cast("Q")
    cuda = ctypes.CDLL("libcuda.so.1")
    memory, context, stream, own = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    size, page = ctypes.c_size_t(SIZE), mmap.mmap(-1, SIZE)
    results = [cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
               cuda.cuMemAlloc_v2(ctypes.byref(memory), size), cuda.cuStreamCreate(ctypes.byref(stream), 1)]
    if kind == "pinned":
        results.append(cuda.cuMemAllocHost_v2(ctypes.byref(own), size))
    else:
        own = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    if kind == "registered":
        results.append(cuda.cuMemHostRegister_v2(own, size, 0))
    while not any(results):
        shown[BEGAN] += 1
        if way == "in":
            results.append(cuda.cuMemcpyHtoDAsync_v2(memory, own, size, stream))
        else:
            results.append(cuda.cuMemcpyDtoHAsync_v2(own, memory, size, stream))
        if shown[ENDED] == int(last):
            os._exit(0)
        results.append(cuda.cuStreamSynchronize(stream))
        shown[ENDED] += 1
    sys.exit(f"libcuda: {results}")


# More copies than any program makes before it is killed.
NEVER = str(1 << 40)


class Copying:
    """A program that copies until it is killed."""

    def __init__(self, part, *args):
        file = os.memfd_create("shown")
        os.truncate(file, mmap.PAGESIZE)
        self.shown = memoryview(mmap.mmap(file, mmap.PAGESIZE)).cast("Q")
        self.process = subprocess.Popen([sys.executable, __file__, part, str(file), *args], pass_fds=[file])
        os.close(file)
        atexit.register(self.process.kill)
        self.until(lambda: self.shown[ENDED] > 0, "copy")

    def until(self, holds, what):
        began = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() - began > 60:
                sys.exit(f"no {what}: {self.process.returncode}")
            time.sleep(0.001)

    def kill(self):
        """Returns whether a copy had begun and not ended."""
        self.until(lambda: self.shown[BEGAN] > self.shown[ENDED], "copy under way")
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return self.shown[BEGAN] > self.shown[ENDED]


def die():
    """Programs end while their own pages are copied: the GPU says nothing of it, and all memory comes back."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(device).used
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
    killed = 0
    for kind in ("pageable", "pinned", "registered"):
        for way in ("in", "out"):
            killed += Copying("copy_own", kind, way, NEVER).kill()
            ending = Copying("copy_own", kind, way, "3")
            if ending.process.wait() != 0:
                sys.exit(f"a program ended with {ending.process.returncode}")
    if killed == 0:
        sys.exit("every copy had ended")
    try:
        sys.exit(f"Xid {pynvml.nvmlEventSetWait_v2(events, 500).eventData}")
    except pynvml.NVMLError_Timeout:
        pynvml.nvmlEventSetFree(events)
    if (used := pynvml.nvmlDeviceGetMemoryInfo(device).used) != before:
        sys.exit(f"{used} bytes, not {before}, are used in the end")
    print("devices: 1")


def main():
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)

    def used():
        return pynvml.nvmlDeviceGetMemoryInfo(device).used

    def running():
        """The memory of each program that computes."""
        return {it.pid: it.usedGpuMemory for it in pynvml.nvmlDeviceGetComputeRunningProcesses(device)}

    def utilisation():
        """How much of the time memory is used, in percent: by each of the functions that tell it."""
        _, samples = pynvml.nvmlDeviceGetSamples(device, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, 0)
        return samples[-1].sampleValue.uiVal, pynvml.nvmlDeviceGetUtilizationRates(device).memory

    def table():
        """The same, as nvidia-smi shows it."""
        smi = os.path.join(os.environ["LD_LIBRARY_PATH"], "../bin/nvidia-smi")
        words = [smi, "--query-gpu=utilization.memory", "--format=csv,noheader,nounits"]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    before = used()
    killed = 0
    for _ in range(2):
        copying = Copying("copy")
        seen = running().get(copying.process.pid, 0)
        if not SIZE <= seen <= used() - before:
            sys.exit(f"a copying program has {seen} bytes, of {used() - before} more than before")
        copying.until(lambda: all(utilisation()), "utilisation of memory")
        copying.until(lambda: table() > 0, "utilisation in nvidia-smi")
        killed += copying.kill()
        if running() or used() != before:
            sys.exit(f"{used()} bytes, not {before}, are used after a program was killed, by {running()}")
    # It is that of a sample of 200 ms.
    time.sleep(0.5)
    if any(utilisation()) or table():
        sys.exit(f"nothing copies, and memory is used {utilisation()} % of the time, or {table()} %")
    if killed == 0:
        sys.exit("every copy had ended")
    print("devices: 1")


PARTS = {"copy": copy, "copy_own": copy_own, "die": die}
sys.exit(PARTS[sys.argv[1]](*sys.argv[2:]) if len(sys.argv) > 1 else main())
