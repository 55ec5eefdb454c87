"""Tunes a card as a program for fans and clocks does, and reads what is set.

    tuned.py SPEED STATE…

SPEED is that of the fan at rest, in percent, or `-` where there is none; then come the card's performance states.
What is otherwise ends it with 1 and says what.
"""
import ctypes
import sys

import pynvml

speed, *states = sys.argv[1:]
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
BRANCH = int(pynvml.nvmlSystemGetDriverVersion().split(".")[0])


def read(name, *words, values=1):
    """What a function whose last parameters are integers writes there: one, or a tuple; or its error."""
    found = [ctypes.c_int(-1) for _ in range(values)]
    status = getattr(pynvml.nvmlLib, name)(device, *words, *map(ctypes.byref, found))
    if status:
        return status
    return found[0].value if values == 1 else tuple(it.value for it in found)


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, not {expected}")


def fan():
    """Its speed, that which it is to have, and whether a program sets it."""
    return [read(f"nvmlDeviceGet{what}", 0) for what in ("FanSpeed_v2", "TargetFanSpeed", "FanControlPolicy_v2")]


NO_SUCH = pynvml.NVML_ERROR_NOT_SUPPORTED
if speed == "-":
    check("a fan", fan(), [NO_SUCH] * 3)
    check("setting a fan", pynvml.nvmlLib.nvmlDeviceSetFanSpeed_v2(device, 0, 60), NO_SUCH)
    check("an offset", read("nvmlDeviceGetGpcClkVfOffset"), NO_SUCH)
else:
    check("the range of the fan", read("nvmlDeviceGetMinMaxFanSpeed", values=2), (30, 100))
    at_rest = [int(speed), max(int(speed), 30), pynvml.NVML_FAN_POLICY_TEMPERATURE_CONTINOUS_SW]
    check("the fan at rest", fan(), at_rest)
    for percent in (61, 100, 30, 5):
        pynvml.nvmlDeviceSetFanSpeed_v2(device, 0, percent)
        turns = max(percent, 30)
        check("the fan that is set", fan(), [turns, turns, pynvml.NVML_FAN_POLICY_MANUAL])
    pynvml.nvmlDeviceSetDefaultFanSpeed_v2(device, 0)
    check("the fan by itself", fan(), at_rest)
    # NVML tells offsets below 0 without their sign, on a real card too: NVIDIA/nvidia-settings issue 92.
    for graphics, memory in ((100, 200), (45, 600), (0, 0)):
        pynvml.nvmlDeviceSetGpcClkVfOffset(device, graphics)
        pynvml.nvmlDeviceSetMemClkVfOffset(device, memory)
        found = read("nvmlDeviceGetGpcClkVfOffset"), read("nvmlDeviceGetMemClkVfOffset")
        check("offsets of clocks", found, (graphics, memory))
    for offset in (1200, -1200):
        found = pynvml.nvmlLib.nvmlDeviceSetGpcClkVfOffset(device, offset)
        check("an offset out of the range", found, pynvml.NVML_ERROR_INVALID_ARGUMENT)

found = [str(state) for state in pynvml.nvmlDeviceGetSupportedPerformanceStates(device)]
check("performance states", found, states)
if BRANCH >= 535:
    found = read("nvmlDeviceGetMinMaxClockOfPState", 0, 1, values=2)
    check("clocks of a state that there is not", found, pynvml.NVML_ERROR_INVALID_ARGUMENT)
settings = pynvml.c_nvmlGpuThermalSettings_t()
pynvml.nvmlLib.nvmlDeviceGetThermalSettings(device, 0, ctypes.byref(settings))
sensor = settings.sensor[0]
temperature = pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)
found = settings.count, sensor.controller, sensor.target, sensor.currentTemp
check("the sensor", found, (1, 1, 1, temperature))
print("devices: 1")
