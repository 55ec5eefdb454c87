"""Metrics of performance (GPM) of NVML are 0 at rest, parts of a whole while a program works, and 0 again after it.

    gpm.py PROGRAM …

What is otherwise ends it with 1 and says what.
"""
import subprocess
import sys
import time

import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
#: Which NVML has of a card: parts of the time, in percent, and nothing of what is not counted.
COUNTED = {1: "graphics", 2: "SMs", 10: "memory"}
OTHERS = {3: "occupancy", 5: "tensor cores", 12: "FP32", 20: "PCIe, sent", 21: "PCIe, received", 60: "NVLink, received"}


def metrics(seconds):
    """What each metric was in so many seconds from now."""
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    pynvml.nvmlGpmSampleGet(device, samples[0])
    time.sleep(seconds)
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


if any(metrics(0.2)):
    sys.exit("a card at rest works")
program = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
seen = []
while program.poll() is None:
    seen.append(metrics(0.3))
time.sleep(0.5)
graphics, cores, memory = (max(column) for column in zip(*seen))
# A sample is taken a moment before or after the time that is beside it.
if program.returncode or not 0 < graphics == cores <= 101 or not 1 < memory <= 101:
    sys.exit(f"the program ends with {program.returncode}, and {COUNTED} were {seen}")
if any(metrics(0.2)):
    sys.exit("a card works after its program")
for is_on in 1, 0:
    pynvml.nvmlGpmSetStreamingEnabled(device, is_on)
    if pynvml.nvmlGpmQueryIfStreamingEnabled(device) != is_on:
        sys.exit(f"the stream is not {is_on}")
print("devices: 1")
