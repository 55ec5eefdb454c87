"""While a program launches kernels, NVML shows that the GPU is busy, and that it is not when that has ended.

    busy.py PTX

What is otherwise ends it with 1 and says what.
"""
import os
import subprocess
import sys
import time

import pynvml

kernels = os.path.join(os.path.dirname(__file__), "kernels.py")
program = subprocess.Popen([sys.executable, kernels, sys.argv[1]], stdout=subprocess.DEVNULL)
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
most = 0
while program.poll() is None:
    most = max(most, pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
    time.sleep(0.05)
# It is that of a sample of 200 ms.
time.sleep(0.5)
left = pynvml.nvmlDeviceGetUtilizationRates(device).gpu
if program.returncode or most < 50 or left:
    sys.exit(f"kernels ended with {program.returncode}; busy {most} % at most, and {left} % after them")
print("devices: 1")
