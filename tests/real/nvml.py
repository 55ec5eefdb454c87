"""Calls every function that libnvidia-ml exports: those that nvidia-ml-py knows by it, the others by ctypes.

A line for each: the function, its status, the value or what it was called with. What asks is called before what
changes something; the machine is simulated, so nothing real is changed. Functions of objects that
the machine does not have (units, virtual GPUs, instances of MIG) get handles that mean none, which they must refuse.
Run by cli/tests/real.rs, which counts.
"""

import ctypes
import inspect
import re
import sys

import pynvml

ASKS = ("Get", "Is", "Query", "Count", "Validate", "Discover")
# Parameters by their names; what ends the process or takes the GPU away is called last.
NUMBERS = {
    "memorySize": 8, "nodeSetSize": 1, "cpuSetSize": 1, "pid": 1, "errorCode": 3, "eventTypes": 1, "eventMask": 1,
    "memoryClockMHz": "memory", "memClockMHz": "memory", "maxMemClockMHz": "memory", "minMemClockMHz": "memory",
    "maxGraphicsClockMHz": "graphics", "minGpuClockMHz": "graphics", "maxGpuClockMHz": "graphics", "limit": "limit",
    "vgpuInstance": 1, "vgpuTypeId": 1, "timeoutms": 0, "mode": 0, "version": 0x01000018, "index": 0, "link": 0, "level": 20, "type": 0,
}
# Of which objects there are none.
NONE = ("gpuInstance", "computeInstance", "unit", "eventSet")
LAST = ("nvmlDeviceRemoveGpu", "nvmlDeviceRemoveGpu_v2", "nvmlShutdown")
# Functions whose arguments are records or lists.
SPECIAL = {
    "nvmlErrorString": lambda device: [3],
    "nvmlInitWithFlags": lambda device: [0],
    "nvmlDeviceGetFieldValues": lambda device: [device, [1, 82, 184, 196]],
    "nvmlDeviceClearFieldValues": lambda device: [device, [1]],
    "nvmlDeviceDiscoverGpus": lambda device: [pci(device)],
    "nvmlDeviceQueryDrainState": lambda device: [pci(device)],
    "nvmlDeviceModifyDrainState": lambda device: [pci(device), 0],
    "nvmlDeviceRemoveGpu": lambda device: [pci(device)],
    "nvmlGpmMetricsGet": lambda device: [pynvml.c_nvmlGpmMetricsGet_t(
        version=1, numMetrics=1, sample1=pynvml.nvmlGpmSampleAlloc(), sample2=pynvml.nvmlGpmSampleAlloc())],
    "nvmlGpmSampleFree": lambda device: [pynvml.nvmlGpmSampleAlloc()],
    "nvmlGpmSampleGet": lambda device: [device, pynvml.nvmlGpmSampleAlloc()],
    "nvmlGpmMigSampleGet": lambda device: [device, 0, pynvml.nvmlGpmSampleAlloc()],
    "nvmlEventSetFree": lambda device: [pynvml.nvmlEventSetCreate()],
    "nvmlEventSetWait": lambda device: [pynvml.nvmlEventSetCreate(), 1],
    "nvmlEventSetWait_v2": lambda device: [pynvml.nvmlEventSetCreate(), 1],
    "nvmlDeviceGetConfComputeGpuAttestationReport": lambda device: [device, [0] * 32],
    "nvmlGetVgpuCompatibility": lambda device: [ctypes.c_uint(), ctypes.c_uint()],
    "nvmlDeviceSetNvLinkUtilizationControl": lambda device: [device, 0, 0, ctypes.create_string_buffer(64), False],
    "nvmlDeviceSetVgpuSchedulerState": lambda device: [device, ctypes.create_string_buffer(256)],
    "nvmlSetVgpuVersion": lambda device: [ctypes.create_string_buffer(64)],
    "nvmlDeviceRegisterEvents": lambda device: [device, 8, pynvml.nvmlEventSetCreate()],
    "nvmlDeviceGetCapabilities": lambda device: [device, record("c_nvmlDeviceCapabilities_v1_t")],
    "nvmlDeviceGetClockOffsets": lambda device: [device, record("c_nvmlClockOffset_t", version=0x1000018)],
    "nvmlDeviceSetClockOffsets": lambda device: [device, record("c_nvmlClockOffset_t", version=0x1000018)],
    "nvmlDeviceGetGpuFabricInfo": lambda device: [device, record("c_nvmlGpuFabricInfo_t")],
    "nvmlDeviceGetGpuFabricInfoV": lambda device: [device, record("c_nvmlGpuFabricInfo_v2_t")],
    "nvmlDeviceGetPciInfoExt": lambda device: [device, record("nvmlPciInfoExt_v1_t", version=0x1000040)],
    "nvmlDeviceGetSramEccErrorStatus": lambda device: [device, record("c_nvmlEccSramErrorStatus_v1_t")],
    "nvmlSystemGetConfComputeSettings": lambda device: [record("c_nvmlSystemConfComputeSettings_v1_t")],
    # What the fans hold, in degrees: NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR.
    "nvmlDeviceSetTemperatureThreshold": lambda device: [device, 5, 80],
    "nvmlDeviceSetPowerManagementLimit_v2": lambda device: [
        device, 0, pynvml.nvmlDeviceGetPowerManagementDefaultLimit(device)],
    "nvmlDeviceSetNvLinkDeviceLowPowerThreshold": lambda device: [device, 1],
}
# Functions that call an older or newer one where they are told a version.
VERSIONS = (
    lambda device: pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2),
    lambda device: pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, 0, 1),
    lambda device: pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(None, 0, 0, 1),
)
# What nvidia-ml-py has no function for: letters are the device, a number 0, a buffer, and its size as a number.
PLAIN = {
    "nvmlComputeInstanceGetInfo": "0b", "nvmlDeviceGetAttributes": "db", "nvmlDeviceGetCount": "b",
    "nvmlDeviceGetComputeRunningProcesses": "dnb", "nvmlDeviceGetGraphicsRunningProcesses": "dnb",
    "nvmlDeviceGetMPSComputeRunningProcesses": "dnb", "nvmlDeviceGetGpuInstancePossiblePlacements": "d0bn",
    "nvmlDeviceGetGridLicensableFeatures": "db", "nvmlDeviceGetGridLicensableFeatures_v2": "db",
    "nvmlDeviceGetGridLicensableFeatures_v3": "db", "nvmlDeviceGetHandleByIndex": "0b",
    "nvmlDeviceGetHandleByPciBusId": "ib", "nvmlDeviceGetNvLinkRemotePciInfo": "d0b", "nvmlDeviceGetPciInfo": "db",
    "nvmlDeviceGetPciInfo_v2": "db", "nvmlDeviceRemoveGpu_v2": "p00", "nvmlEventSetWait": "eb0",
    "nvmlGetBlacklistDeviceCount": "b", "nvmlGetBlacklistDeviceInfoByIndex": "0b", "nvmlInit": "", "nvmlInit_v2": "",
    "nvmlVgpuInstanceGetLicenseInfo": "1b",
}


def errors():
    found = {getattr(pynvml, name): name[len("NVML_ERROR_"):] for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
    return {0: "SUCCESS", **found}


def record(name, **fields):
    """Where a record of a name is: those that have a version say it."""
    made = getattr(pynvml, name)()
    for field, value in fields.items():
        setattr(made, field, value)
    return ctypes.byref(made)


def pci(device):
    return pynvml.nvmlDeviceGetPciInfo(device)


class Calls:
    """What nvidia-ml-py calls, by the names that the library exports, and the status of the first such call."""

    def __init__(self):
        self.statuses = {}
        self.find = pynvml._nvmlGetFunctionPointer
        pynvml._nvmlGetFunctionPointer = self.pointer

    def pointer(self, name):
        function = self.find(name)

        def call(*arguments):
            status = function(*arguments)
            self.statuses.setdefault(name, []).append(status)
            return status

        return call


def arguments(function, device, numbers):
    values = []
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.default is not parameter.empty:
            break
        plain = name.removeprefix("c_")
        if name in ("handle", "nvmlDevice") or name.startswith(("device", "handle")) and name != "deviceIndex":
            values.append(device)
        elif name in ("uuid", "serial"):
            values.append(pynvml.nvmlDeviceGetUUID(device) if name == "uuid" else pynvml.nvmlDeviceGetSerial(device))
        elif name == "pciBusId":
            values.append(pynvml.nvmlDeviceGetPciInfo(device).busId)
        elif name in NONE:
            values.append(None)
        elif name.startswith("c_") and hasattr(pynvml, f"c_nvml{plain}"):
            values.append(getattr(pynvml, f"c_nvml{plain}")())
        else:
            number = NUMBERS.get(name, 0)
            values.append(numbers.get(number, number))
    return values


def plain_call(letters, device, function):
    size = ctypes.c_uint(16)
    size_at = ctypes.pointer(size)
    values = {"d": lambda: device, "0": lambda: 0, "1": lambda: 1, "b": lambda: ctypes.create_string_buffer(1 << 16),
              "n": lambda: size_at, "i": lambda: pynvml.nvmlDeviceGetPciInfo(device).busId.encode(),
              "e": pynvml.nvmlEventSetCreate, "p": lambda: ctypes.byref(pci(device))}
    return function(*[values[letter]() for letter in letters])


def text(value):
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    fields = getattr(value, "_fields_", None)
    if fields is not None:
        # A time is another one in each run, and so is what was in memory: of a union 32 bits are always written.
        names = [name for name, *_ in fields if name != "timeStamp"]
        names = ["uiVal"] if "uiVal" in names else names
        return {name: text(getattr(value, name)) for name in names}
    if isinstance(value, (list, tuple)):
        return [text(item) for item in value]
    return value if isinstance(value, (int, float, str, dict, type(None))) else type(value).__name__


def main():
    names, calls = errors(), Calls()
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    numbers = {"memory": 0, "graphics": 0, "limit": 0}
    for kind, ask in (("memory", lambda: pynvml.nvmlDeviceGetMaxClockInfo(device, 2)),
                      ("graphics", lambda: pynvml.nvmlDeviceGetMaxClockInfo(device, 0)),
                      ("limit", lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(device))):
        try:
            numbers[kind] = ask()
        except pynvml.NVMLError:
            pass
    functions = [(name, function) for name, function in inspect.getmembers(pynvml, inspect.isfunction)
                 if name.startswith("nvml") and not name.startswith("nvmlStruct") and name not in ("nvmlInit", *LAST)]
    functions.sort(key=lambda it: (not any(verb in it[0] for verb in ASKS), it[0]))
    functions += [(name, getattr(pynvml, name)) for name in LAST if hasattr(pynvml, name)]
    for ask in VERSIONS:
        try:
            ask(device)
        except pynvml.NVMLError:
            pass
    done = set()
    for name, function in functions:
        symbols = [it for it in re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', inspect.getsource(function))]
        symbols = [symbol for symbol in symbols if hasattr(pynvml.nvmlLib, symbol)]
        if name == LAST[0]:
            for symbol, letters in PLAIN.items():
                if hasattr(pynvml.nvmlLib, symbol):
                    print(symbol, end="\t", flush=True)
                    print(names.get(plain_call(letters, device, pynvml.nvmlLib[symbol]), "?"), "", sep="\t", flush=True)
        if not symbols or done.issuperset(symbols):
            continue
        done.update(symbols)
        print(symbols[0], end="\t", flush=True)
        value = why = ""
        try:
            own = SPECIAL.get(name, lambda device: arguments(function, device, numbers))(device)
            value = text(function(*own))
        except pynvml.NVMLError:
            pass
        except (TypeError, ValueError, AttributeError, OverflowError, IndexError, ctypes.ArgumentError) as error:
            why = str(error).splitlines()[0]
        statuses = calls.statuses.get(symbols[0])
        status = names.get(statuses[-1], statuses[-1]) if statuses else "ARGUMENTS"
        # Returns a text, no status.
        status = "SUCCESS" if name == "nvmlErrorString" else status
        print(status, why if status == "ARGUMENTS" else value, sep="\t", flush=True)
        for symbol in symbols[1:]:
            statuses = calls.statuses.get(symbol)
            print(symbol, names.get(statuses[-1], statuses[-1]) if statuses else "ARGUMENTS", why, sep="\t", flush=True)


if __name__ == "__main__":
    sys.exit(main())
