"""Waits for what happens to the GPUs of a machine, all of them in one event set, as a device plugin's check does.

Commands come on standard input, one a line. `wait` waits for an event and writes the number of its GPU, its type and
its data. `look` writes of each GPU the corrected and uncorrected errors of its memory (since the driver was loaded; in
all), its temperature, and why its clocks are low; or why NVML does not say. `heat` writes of each GPU whether heat ever
made its clocks low.
Run by cli/tests/rm_machine/real.rs.
"""

import ctypes
import sys

import pynvml


def address(device):
    return ctypes.cast(device, ctypes.c_void_p).value


def wait(events, addresses):
    print("waiting", flush=True)
    try:
        event = pynvml.nvmlEventSetWait_v2(events, 20000)
    except pynvml.NVMLError as error:
        return str(error)
    return f"event {addresses.index(address(event.device))} {event.eventType} {event.eventData}"


def errors(device):
    def count(kind, counter):
        try:
            return pynvml.nvmlDeviceGetTotalEccErrors(device, kind, counter)
        except pynvml.NVMLError_NotSupported:
            return None
    return " ".join(str(count(kind, counter)) for counter in (0, 1) for kind in (0, 1))


def look(device):
    try:
        # The driver answers it: newer versions read the others in a record that it shares, which just stays as it was.
        pynvml.nvmlDeviceGetComputeMode(device)
        temperature = pynvml.nvmlDeviceGetTemperature(device, 0)
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
        return f"{errors(device)} {temperature} {reasons:#x}"
    except pynvml.NVMLError as error:
        return str(error)


def heat(device):
    return str(pynvml.nvmlDeviceGetViolationStatus(device, pynvml.NVML_PERF_POLICY_THERMAL).violationTime > 0)


def main():
    pynvml.nvmlInit()
    devices = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
    addresses = [address(device) for device in devices]
    events = pynvml.nvmlEventSetCreate()
    # NVIDIA's device plugin asks for these, of each device those that it supports.
    wanted = (pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
              | pynvml.nvmlEventTypeSingleBitEccError)
    for device in devices:
        pynvml.nvmlDeviceRegisterEvents(device, wanted & pynvml.nvmlDeviceGetSupportedEventTypes(device), events)
    print("armed", flush=True)
    for line in sys.stdin:
        if line.strip() == "wait":
            print(wait(events, addresses), flush=True)
        else:
            asked = heat if line.strip() == "heat" else look
            print("; ".join(map(asked, devices)), flush=True)


main()
