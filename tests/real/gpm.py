"""Metrics of performance (GPM) of NVML are 0 at rest, parts of a whole while a program works, and 0 again after it.

    gpm.py PROGRAM …

What is otherwise ends it with 1 and says what.
"""
import ctypes
import subprocess
import sys
import time

import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
#: Which NVML has of a card: parts of the time, in percent, and nothing of what is not counted.
COUNTED = {1: "graphics", 2: "SMs", 10: "memory", 20: "PCIe, sent", 21: "PCIe, received"}
OTHERS = {3: "occupancy", 5: "tensor cores", 12: "FP32", 60: "NVLink, received"}


def metrics(meanwhile):
    """What each metric was while a function ran."""
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    pynvml.nvmlGpmSampleGet(device, samples[0])
    meanwhile()
    pynvml.nvmlGpmSampleGet(device, samples[1])
    numbers = [*COUNTED, *OTHERS]
    asked = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(numbers), sample1=samples[0], sample2=samples[1])
    for at, number in enumerate(numbers):
        asked.metrics[at].metricId = number
    pynvml.nvmlGpmMetricsGet(asked)
    for sample in samples:
        pynvml.nvmlGpmSampleFree(sample)
    told = {it.metricId: (it.nvmlReturn, it.value) for it in asked.metrics[:len(numbers)]}
    if any(status for status, _ in told.values()) or any(told[number][1] for number in OTHERS):
        sys.exit(f"metrics are {told}")
    return [told[number][1] for number in COUNTED]


def rest():
    time.sleep(0.2)


def check_copies():
    """What goes over the bus is told as MiB in a second."""
    cuda, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(32 << 20)
    context, there, here = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    statuses = [cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 2, 0),
                cuda.cuMemAlloc_v2(ctypes.byref(there), size), cuda.cuMemAllocHost_v2(ctypes.byref(here), size)]
    for to_the_card in (True, False):
        copy = (lambda: cuda.cuMemcpyHtoD_v2(there, here, size)) if to_the_card else (
            lambda: cuda.cuMemcpyDtoH_v2(here, there, size))
        begin = time.monotonic()
        *_, sent, received = metrics(lambda: statuses.extend(copy() for _ in range(4)))
        expected = 4 * 32 / (time.monotonic() - begin)
        told, other = (received, sent) if to_the_card else (sent, received)
        if not 0.7 * expected < told < 1.5 * expected or other > expected / 100:
            sys.exit(f"PCIe: {sent} sent, {received} received, not {expected}")
    if any(statuses) or cuda.cuCtxDestroy_v2(context):
        sys.exit(f"copies end with {statuses}")


if any(metrics(rest)):
    sys.exit("a card at rest works")
check_copies()
program = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
seen = []
while program.poll() is None:
    seen.append(metrics(lambda: time.sleep(0.3)))
time.sleep(0.5)
graphics, cores, memory, sent, received = (max(column) for column in zip(*seen))
# A sample is taken a moment before or after the time that is beside it.
if program.returncode or not 0 < graphics == cores <= 101 or not 1 < memory <= 101 or not (sent and received):
    sys.exit(f"the program ends with {program.returncode}, and {COUNTED} were {seen}")
if any(metrics(rest)):
    sys.exit("a card works after its program")
for is_on in 1, 0:
    pynvml.nvmlGpmSetStreamingEnabled(device, is_on)
    if pynvml.nvmlGpmQueryIfStreamingEnabled(device) != is_on:
        sys.exit(f"the stream is not {is_on}")
print("devices: 1")
