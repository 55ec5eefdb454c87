"""What NVML says of eight cards that are alike: whether displays are shown by them, and their places on a board of
eight; and how much memory the first one has without ECC, whose codes may be in it.

    modes.py BOARD DISPLAYS BYTES BYTES_WITHOUT

BOARD is 1 where the cards are on one. Bytes are MiB. What is otherwise ends it with 1 and says what.
"""
import os
import subprocess
import sys

import pynvml

SMI = os.path.join(os.environ["LD_LIBRARY_PATH"], "../bin/nvidia-smi")
board, displays, *sizes = map(int, sys.argv[1:])


def size():
    """In MiB, of the first card, while nobody else has it."""
    pynvml.nvmlInit()
    total = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total
    pynvml.nvmlShutdown()
    return total >> 20


pynvml.nvmlInit()
devices = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(8)]
places = [pynvml.nvmlDeviceGetModuleId(device) for device in devices]
if places != (list(range(1, 9)) if board else [1] * 8):
    sys.exit(f"the cards are at {places}")
shown = {pynvml.nvmlDeviceGetDisplayMode(device) for device in devices}
if shown != {displays}:
    sys.exit(f"displays: {shown}")
time = pynvml.nvmlDeviceGetViolationStatus(devices[0], pynvml.NVML_PERF_POLICY_POWER).referenceTime
if time == 0:
    sys.exit("clocks were held back for none of no time")
pynvml.nvmlShutdown()
found = [size()]
if len(sizes) > 1:
    subprocess.run([SMI, "-i", "0", "-e", "0"], check=True, stdout=subprocess.DEVNULL)
    found.append(size())
    subprocess.run([SMI, "-i", "0", "-r"], check=True, stdout=subprocess.DEVNULL)
    found.append(size())
    sizes.insert(1, sizes[0])
if found != sizes:
    sys.exit(f"{found} MiB")
print("devices: 8")
