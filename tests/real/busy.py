"""While programs launch kernels or copy, NVML and nvidia-smi show that the GPU is busy and with whose work; that it is
at rest when they have ended; and how busy each one kept it.

A busy GPU has its highest clock, a state near P0, more power, voltage and heat, and nothing that keeps its clock down.
What is copied goes over its bus.

    busy.py PTX

What is otherwise ends it with 1 and says what.
"""
import os
import re
import subprocess
import sys
import time

import pynvml

SMI = os.path.join(os.environ["LD_LIBRARY_PATH"], "../bin/nvidia-smi")
here = os.path.dirname(__file__)
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
highest = pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_GRAPHICS)
pynvml.nvmlDeviceSetAccountingMode(device, pynvml.NVML_FEATURE_ENABLED)


def shown():
    """State, clock, power, temperature and reasons."""
    return (
        pynvml.nvmlDeviceGetPerformanceState(device),
        pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_GRAPHICS),
        pynvml.nvmlDeviceGetPowerUsage(device),
        pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU),
        pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device),
    )


def of_program(process, since):
    """What a program kept busy since then: SMs and memory, in percent."""
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(device, since)
    except pynvml.NVMLError_NotFound:
        return []
    # A time in us: since the program began, and not before it.
    return [(it.smUtil, it.memUtil) for it in samples if it.pid == process and it.timeStamp >= since]


def monitored(process):
    """Columns of pmon: SMs and memory."""
    out = subprocess.run([SMI, "pmon", "-c", "1"], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    return [tuple(row[3:5]) for row in rows if row[1] == str(process)]


def voltage():
    """In mV; 0 where the card shows none."""
    out = subprocess.run([SMI, "-q", "-d", "VOLTAGE"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"Graphics *: ([0-9.]+) mV", out)
    return float(found[1]) if found else 0


def set_clock():
    """A clock for applications, below the highest one; None where the card has none."""
    memory = pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_MEM)
    clock = pynvml.nvmlDeviceGetSupportedGraphicsClocks(device, memory)[7]
    try:
        pynvml.nvmlDeviceSetApplicationsClocks(device, memory, clock)
    except pynvml.NVMLError_NotSupported:
        return None
    return clock


def over_bus():
    """KB/s that the GPU sends and receives."""
    return [pynvml.nvmlDeviceGetPcieThroughput(device, way) for way in
            (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)]


def watch(program):
    """What is shown while a program keeps the GPU busy, until it ends."""
    begin, busy, most, rows, own, volts, traffic = time.time_ns() // 1000, [], 0, [], [], [], []
    while program.poll() is None:
        shares = pynvml.nvmlDeviceGetUtilizationRates(device)
        now = max(shares.gpu, shares.memory)
        if now > 0:
            busy.append(shown())
            own += of_program(program.pid, begin)
            traffic.append(over_bus())
        if now > 50 and len(rows) < 3:
            rows += monitored(program.pid)
            volts = volts if volts and volts[-1] > low else [*volts, voltage()]
        most = max(most, now)
        time.sleep(0.05)
    return busy, most, own, rows, volts, traffic


def drawn_beyond(begin, power):
    """What was drawn since then in mJ, more than such a power draws in that time."""
    energy, at = begin
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - energy - power * (time.monotonic() - at)


rest, low = shown(), voltage()
if rest[4] != 1 or max(over_bus()) > 1:
    sys.exit(f"at rest the GPU is at {rest}, and its bus at {over_bus()} KB/s")
for what, words in ("kernels", [sys.argv[1]]), ("copies", ["lasting", "0"]):
    if what == "copies":
        highest = set_clock() or highest
    script = os.path.join(here, f"{what}.py")
    begin = pynvml.nvmlDeviceGetTotalEnergyConsumption(device), time.monotonic()
    program = subprocess.Popen([sys.executable, script, *words], stdout=subprocess.DEVNULL)
    busy, most, own, rows, volts, traffic = watch(program)
    # It is that of a sample of 200 ms.
    time.sleep(0.5)
    left = pynvml.nvmlDeviceGetUtilizationRates(device)
    if program.returncode or most < 50 or left.gpu or left.memory:
        sys.exit(f"{what} ended with {program.returncode}; busy {most} % at most, and {left} after them")
    if shown() != rest:
        sys.exit(f"at rest the GPU is at {rest}, after {what} at {shown()}")
    if not any(it[0] <= 2 and it[1] == highest and it[2] > rest[2] and it[3] > rest[3] and it[4] == 0 for it in busy):
        sys.exit(f"of {highest} MHz the GPU that is busy with {what} was at {busy}, and at rest at {rest}")
    if max(volts, default=0) <= low and low > 0:
        sys.exit(f"at rest {low} mV, with {what} {volts}")
    if what == "copies" and any(max(way) < 10_000 for way in zip(*traffic)) or max(over_bus()) > 1:
        sys.exit(f"{what} sent and received {traffic} KB/s, and after them it is {over_bus()}")
    # At least what it draws more than at rest in most of the 50 ms before each look that saw it busy, and at most all of
    # the time as much as the card may draw.
    most = pynvml.nvmlDeviceGetPowerManagementLimit(device)
    beyond_rest, beyond_all = drawn_beyond(begin, rest[2]), drawn_beyond(begin, most)
    if beyond_rest < 0.03 * len(busy) * (max(it[2] for it in busy) - rest[2]) or beyond_all > 0:
        sys.exit(f"{what} drew {beyond_rest} mJ more than at rest, {beyond_all} mJ more than the card may draw")
    # The last of them are after the program.
    drawn = [it.sampleValue.uiVal for it in pynvml.nvmlDeviceGetSamples(device, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)[1]]
    if max(drawn) <= rest[2] or min(drawn) != rest[2] or drawn[-1] != rest[2]:
        sys.exit(f"at rest {rest[2]} mW, and {what} drew {drawn}")
    clocks = pynvml.nvmlDeviceGetSamples(device, pynvml.NVML_PROCESSOR_CLK_SAMPLES, 0)[1]
    clocks = [it.sampleValue.uiVal for it in clocks]
    if set(clocks) - {rest[1], highest} or highest not in clocks or clocks[-1] != rest[1]:
        sys.exit(f"at rest the clock is {rest[1]} MHz, busy {highest} MHz, and with {what} it was {clocks}")
    if not any(memory > 0 for _, memory in own) or any(max(it) > 100 for it in own):
        sys.exit(f"{what} kept the GPU busy by {own}")
    if not any(memory not in ("-", "0") for _, memory in rows):
        sys.exit(f"{what} are shown by pmon as {rows}")
    if what == "kernels" and not any(sm > 0 for sm, _ in own):
        sys.exit(f"the SMs that kernels kept busy: {own}")
    account = pynvml.nvmlDeviceGetAccountingStats(device, program.pid)
    if not 0 < account.memoryUtilization <= 100 or what == "kernels" and not 0 < account.gpuUtilization <= 100:
        sys.exit(f"{what} are accounted with {account.gpuUtilization} % and {account.memoryUtilization} %")
    # Samples have the times of the machine.
    _, samples = pynvml.nvmlDeviceGetSamples(device, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, 0)
    now = time.time_ns() // 1000
    if any(not now - 60_000_000 < it.timeStamp <= now + 1_000_000 for it in samples) or not any(
            it.sampleValue.uiVal for it in samples):
        sys.exit(f"samples after {what}: {[(it.timeStamp - now, it.sampleValue.uiVal) for it in samples]}")
# Who only copies does nothing with the SMs, and is shown all the same.
program = subprocess.Popen([sys.executable, os.path.join(here, "copies.py"), "up", "0"], stdout=subprocess.DEVNULL)
time.sleep(2)
rows = [row for _ in range(3) for row in monitored(program.pid)]
if program.wait() or not any(memory not in ("-", "0") for _, memory in rows):
    sys.exit(f"a program that copies up ended with {program.returncode}, and pmon showed {rows}")
print("devices: 1")
