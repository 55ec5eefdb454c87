"""Launches a kernel that goes wrong on tinygrad's NV device, and prints where, and what tinygrad reports.

    faults.py TINYGRAD MISTAKE
"""
import os
import sys

os.environ["DEV"] = "NV"
# It waits so long for a kernel before it asks what went wrong.
os.environ["HCQDEV_WAIT_TIMEOUT_MS"] = "1000"
sys.path.insert(0, sys.argv[1])

from tinygrad import Device, dtypes  # noqa: E402
from tinygrad.device import BufferSpec, TinyELF  # noqa: E402

# How far behind the first byte of a buffer a pointer leads, and what a kernel does with it.
MISTAKES = {
    "read": (1 << 40, "*(volatile int *)p;"),
    "write": (1 << 40, "*p = 1;"),
    "atomic": (1 << 40, "atomicAdd(p, 1);"),
    "misaligned": (1, "*p = 1;"),
    "trap": (0, "__trap();"),
}
away, body = MISTAKES[sys.argv[2]]
device = Device["NV"]
made = device.allocator.alloc(4096, BufferSpec())
code = device.renderer.compiler.compile(f'extern "C" __global__ void mistake(int *p) {{ {body} }}')
signature = (("p", 0, dtypes.int, (1,)),)
program = device.runtime(TinyELF(code, "mistake", device.renderer.target, signature))
made.va_addr += away
print(f"{made.va_addr:#X}")
try:
    program(made, global_size=(1, 1, 1), local_size=(1, 1, 1), wait=True)
except RuntimeError as error:
    print(error, flush=True)
# What tinygrad does at its end waits for the kernel again.
os._exit(0)
