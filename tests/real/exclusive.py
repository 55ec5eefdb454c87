"""Who gets a context in each compute mode: this program, and while it has one another; the other again after it.

    exclusive.py MODE…

A line for each mode: the results of cuCtxCreate.
"""
import ctypes
import os
import subprocess
import sys

SMI = os.path.join(os.environ["LD_LIBRARY_PATH"], "../bin/nvidia-smi")


def context(device=0):
    """The result of making a context, and what ends it."""
    cuda = ctypes.CDLL("libcuda.so.1")
    if result := cuda.cuInit(0):
        sys.exit(f"cuInit ended with {result}")
    own = ctypes.c_void_p()
    return cuda.cuCtxCreate_v2(ctypes.byref(own), 0, device), lambda: cuda.cuCtxDestroy_v2(own)


def other():
    words = [sys.executable, __file__]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


if len(sys.argv) == 1:
    print(context()[0])
for mode in sys.argv[1:]:
    subprocess.run([SMI, "-c", mode], check=True, stdout=subprocess.DEVNULL)
    own, end = context()
    beside = other()
    if not own:
        end()
    print(mode, own, beside, other())
