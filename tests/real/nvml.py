"""Calls every function of NVML that nvidia-ml-py knows and that asks for something, and prints what came of it.

A line for each: the function, SUCCESS or the name of the error, and the value. Functions that change something
are left to the tests that look at the change. Run by cli/tests/real.rs.
"""

import inspect
import sys

import pynvml

# What is asked of NVML by verbs like these changes nothing.
ASKS = ("Get", "Is", "Query", "Count", "Validate", "Discover")
# What is told by objects that only other calls make, and what is left alone when it is not one of them.
OBJECTS = ("gpmsample", "metricsget", "eventset", "unit", "gpuinstance", "computeinstance", "vgpu")
# Arguments by their names, besides the device; others are 0.
ARGUMENTS = {
    "uuid": None,
    "pciBusId": None,
    "serial": None,
    "memorySize": 8,
    "nodeSetSize": 1,
    "cpuSetSize": 1,
    "timeStamp": 0,
    "lastSeenTimeStamp": 0,
    "pid": 1,
    "errorCode": 3,
    "fieldIds": [1],
    "values": [1],
    "counter": 0,
}


def errors():
    found = {}
    for name in dir(pynvml):
        if name.startswith("NVML_ERROR_"):
            found[getattr(pynvml, name)] = name[len("NVML_ERROR_"):]
    return found


def arguments(function, device):
    known = {
        "uuid": pynvml.nvmlDeviceGetUUID(device),
        "pciBusId": pynvml.nvmlDeviceGetPciInfo(device).busId,
    }
    values = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            break
        name = parameter.name
        if name in ("handle", "device", "nvmlDevice") or name.startswith("device") or name.startswith("handle"):
            values.append(device)
        elif known.get(name) is not None:
            values.append(known[name])
        else:
            values.append(ARGUMENTS.get(name) or 0)
    return values


def plain(value):
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    fields = getattr(value, "_fields_", None)
    if fields is not None:
        return {name: plain(getattr(value, name)) for name, *_ in fields}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, dict, type(None))) else type(value).__name__


def main():
    names = errors()
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    for name, function in sorted(inspect.getmembers(pynvml, inspect.isfunction)):
        is_asking = name.startswith("nvml") and any(verb in name for verb in ASKS)
        if not is_asking or name in ("nvmlInit", "nvmlShutdown"):
            continue
        print(name, end="\t", flush=True)
        parameters = "".join(inspect.signature(function).parameters).lower()
        if any(word in parameters for word in OBJECTS):
            print("ARGUMENTS", parameters, sep="\t", flush=True)
            continue
        try:
            print("SUCCESS", plain(function(*arguments(function, device))), sep="\t", flush=True)
        except pynvml.NVMLError as error:
            print(names.get(error.value, error.value), "", sep="\t", flush=True)
        except (TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
            # What needs an object of another kind is not asked for here.
            print("ARGUMENTS", str(error).splitlines()[0], sep="\t", flush=True)
    pynvml.nvmlShutdown()


sys.exit(main())
