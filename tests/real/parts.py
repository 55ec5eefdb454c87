"""A program on the first instance of MIG, as NVML shows it: of the whole card, and of each instance.

A line for each device: its name, and the GPU instance, compute instance and MiB of each program that computes.
"""
import ctypes
import os
import subprocess
import sys

import pynvml

MIB = 1 << 20
NONE = 0xFFFFFFFF


def hold():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    results = [
        cuda.cuInit(0),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 * MIB)),
    ]
    print(results, flush=True)
    sys.stdin.read()


def shown(device):
    programs = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    # Beside what is asked for a context has memory of its own.
    return [(it.gpuInstanceId, it.computeInstanceId, it.usedGpuMemory // MIB >= 64) for it in programs]


if len(sys.argv) > 1:
    sys.exit(hold())
pynvml.nvmlInit()
whole = pynvml.nvmlDeviceGetHandleByIndex(0)
parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, at) for at in range(2)]
environment = dict(os.environ, CUDA_VISIBLE_DEVICES=pynvml.nvmlDeviceGetUUID(parts[0]))
words = [sys.executable, __file__, "hold"]
program = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
if (line := program.stdout.readline().strip()) != "[0, 0, 0]":
    sys.exit(f"the program says {line}")
for name, device in [("whole", whole), ("first", parts[0]), ("second", parts[1])]:
    print(name, shown(device))
smi = os.path.join(os.environ["LD_LIBRARY_PATH"], "../bin/nvidia-smi")
table = subprocess.run([smi], check=True, capture_output=True, text=True).stdout
rows = [line.split()[1:5] for line in table.splitlines() if "MiB |" in line and str(program.pid) in line.split()]
print("table", [row[:3] for row in rows])
program.communicate()
print("after", shown(whole))
