"""Programs that copy on one device at a time: one is killed in the middle of a copy, and the others come to their ends
with the bytes that are their own. What all of them had comes back.

    together.py                           all of it
    together.py copies SIZE DESCRIPTOR    one of the programs

What is otherwise ends it with 1 and says what.
"""
import atexit
import ctypes
import mmap
import os
import random
import signal
import subprocess
import sys
import time

import pynvml

OTHERS, SIZE = 2, (4 << 20) + 5
# So much takes a while: the program that is killed is then in the middle of its copy.
LARGE = (32 << 20) + 5
# What is in the page that a program shares: how many copies to the device began and how many ended, how many came back
# and were compared, and how many of these are wanted of it.
BEGAN, ENDED, COMPARED, WANTED = range(4)
# How many more are wanted when one of the programs is gone.
MORE = 4


def copies(length, descriptor):
    """One of the programs: it copies bytes of its own there, on the device and back, and compares."""
    shown = memoryview(mmap.mmap(int(descriptor), mmap.PAGESIZE)).cast("Q")
    cuda, own, length = ctypes.CDLL("libcuda.so.1"), random.Random(os.getpid()), int(length)
    size, back = ctypes.c_size_t(length), ctypes.create_string_buffer(length)

    def call(name, *args):
        if result := getattr(cuda, name)(*args):
            sys.exit(f"{name} of {os.getpid()} ended with {result}")

    context, first, second = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    for memory in (first, second):
        call("cuMemAlloc_v2", ctypes.byref(memory), size)
    while shown[COMPARED] < shown[WANTED]:
        data = own.randbytes(length)
        shown[BEGAN] += 1
        call("cuMemcpyHtoD_v2", first, data, size)
        shown[ENDED] += 1
        call("cuMemcpyDtoD_v2", second, first, size)
        call("cuMemcpyDtoH_v2", back, second, size)
        if back.raw != data:
            sys.exit(f"other bytes came back to {os.getpid()} in copy {shown[ENDED]}")
        shown[COMPARED] += 1
    call("cuCtxDestroy_v2", context)


class Copying:
    """One of the programs, and what it shows."""

    def __init__(self, size):
        file = os.memfd_create("shown")
        os.truncate(file, mmap.PAGESIZE)
        self.shown = memoryview(mmap.mmap(file, mmap.PAGESIZE)).cast("Q")
        self.shown[WANTED] = 1 << 40
        words = [sys.executable, __file__, "copies", str(size), str(file)]
        self.process = subprocess.Popen(words, pass_fds=[file])
        os.close(file)
        atexit.register(self.process.kill)


def until(holds, what, programs):
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > 120:
            sys.exit(f"no {what}: {[(it.process.poll(), *it.shown[:4]) for it in programs]}")
        time.sleep(0.0005)


def is_killed_in_copy(killed, programs):
    """Kills a program that has begun to copy; whether its copy had not ended then."""
    began = killed.shown[BEGAN]
    until(lambda: killed.shown[BEGAN] > began, "next copy", programs)
    killed.process.send_signal(signal.SIGKILL)
    if killed.process.wait() != -signal.SIGKILL:
        sys.exit(f"it ended with {killed.process.returncode}")
    return killed.shown[BEGAN] > killed.shown[ENDED]


def main():
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)

    def used():
        return pynvml.nvmlDeviceGetMemoryInfo(device).used

    def running():
        return {it.pid for it in pynvml.nvmlDeviceGetComputeRunningProcesses(device)}

    before = used()
    killed, others = Copying(LARGE), [Copying(SIZE) for _ in range(OTHERS)]
    programs = [killed, *others]
    until(lambda: all(it.shown[COMPARED] for it in programs), "copy by each", programs)
    if running() != {it.process.pid for it in programs} or used() - before < 2 * (LARGE + OTHERS * SIZE):
        sys.exit(f"{running()} run, with {used() - before} bytes: {[it.process.pid for it in programs]}")
    # Now and then its copy has ended when the signal comes: then another program takes its place.
    for _ in range(20):
        if is_killed_in_copy(killed, programs):
            break
        killed = Copying(LARGE)
        programs = [killed, *others]
        until(lambda: killed.shown[COMPARED], "copy by the next one", programs)
    else:
        sys.exit("its copy had ended, each time")
    for it in others:
        it.shown[WANTED] = it.shown[COMPARED] + MORE
    codes = [it.process.wait(120) for it in others]
    if any(codes) or any(it.shown[COMPARED] < it.shown[WANTED] for it in others):
        sys.exit(f"the others ended with {codes}: {[it.shown[:4].tolist() for it in others]}")
    if running() or used() != before:
        sys.exit(f"{used()} bytes, not {before}, are used at the end, by {running()}")
    print("devices: 1")


sys.exit(copies(*sys.argv[2:]) if len(sys.argv) > 1 else main())
