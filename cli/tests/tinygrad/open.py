"""Opens tinygrad's NV devices and copies to them, from them and between them, with tinygrad's own types or with those
that nvabi emitted.

    open.py TINYGRAD COUNT [MODULE VERSION]
"""
import importlib
import importlib.util
import os
import random
import re
import sys

os.environ["DEV"] = "NV"
sys.path.insert(0, sys.argv[1])

# Constants that are in no header of the driver: tinygrad has headers of its own for them.
NOT_OF_THE_DRIVER = re.compile(r"NVC6C0_QMD|NVCEC0_QMD|NVC9B0_|.?nvdec_")


class Types:
    """What nvabi emitted, and from tinygrad's own module what no header of the driver has."""

    def __init__(self, emitted, own):
        self.emitted, self.own = emitted, own
        names = [name for name in vars(own) if NOT_OF_THE_DRIVER.match(name)]
        self.__dict__.update({**vars(emitted), **{name: getattr(own, name) for name in names}})

    def __getattr__(self, name):
        return getattr(self.emitted, name)


def use(path, version):
    autogen = importlib.import_module("tinygrad.runtime.autogen")
    own = importlib.import_module(f"tinygrad.runtime.autogen.nv_{version}")
    spec = importlib.util.spec_from_file_location("emitted", path)
    emitted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emitted)
    types = Types(emitted, own)
    # The oldest is asked for names before the driver has said its version.
    for name in ("nv_570", "nv_580", "nv_610"):
        setattr(autogen, name, types)
        sys.modules[f"tinygrad.runtime.autogen.{name}"] = types


if len(sys.argv) > 3:
    use(sys.argv[3], sys.argv[4])

from tinygrad.device import BufferSpec, Device  # noqa: E402

devices = [Device[f"NV:{at}"] for at in range(int(sys.argv[2]))]


def buffer(device, data):
    """Memory of a device with these bytes in it."""
    made = device.allocator.alloc(len(data), BufferSpec())
    device.allocator._copyin(made, memoryview(data))
    return made


def holds(device, made, data):
    """Whether these bytes are in it; then it is freed."""
    found = bytearray(len(data))
    device.allocator._copyout(memoryview(found), made)
    device.allocator.free(made, len(data), BufferSpec())
    return found == data


for device in devices:
    for size in (1, 4096, 4097, (3 << 20) + 5, 16 << 20):
        data = bytearray(random.Random(size).randbytes(size))
        assert holds(device, buffer(device, data), data), f"{device.device}: {size} bytes"

for first, second in zip(devices, devices[1:]):
    data = bytearray(random.Random(7).randbytes((4 << 20) + 123))
    made, copy = buffer(first, data), buffer(second, bytearray(len(data)))
    second.allocator._transfer(copy, made, len(data), src_dev=first, dest_dev=second)
    second.synchronize()
    assert holds(second, copy, data) and holds(first, made, data), f"{first.device} to {second.device}"

print("copied:", " ".join(device.arch for device in devices))
