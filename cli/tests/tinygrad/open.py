"""Opens tinygrad's NV device and allocates on it, with its own types or with those that nvabi emitted.

    open.py TINYGRAD [MODULE VERSION]

What the simulated driver refuses is made on it all the same, and counts as done: so every call that tinygrad makes
is seen, whatever is simulated. No call's arguments are changed.
"""
import contextlib
import ctypes
import importlib
import importlib.util
import os
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


if len(sys.argv) > 2:
    use(sys.argv[2], sys.argv[3])

from tinygrad.runtime import ops_nv  # noqa: E402
from tinygrad.runtime.support import hcq  # noqa: E402

FAILED = ("status", "rmStatus")
made_up = iter(range(0x5000, 0x10000))
refused = []


def answer(args):
    """Makes a refused call look as if it was done."""
    for record in (args, getattr(args, "params", None)):
        for name in FAILED:
            if hasattr(record, name):
                setattr(record, name, 0)
        if getattr(record, "hObjectNew", None) == 0:
            record.hObjectNew = next(made_up)


def failed(args):
    records = (args, getattr(args, "params", None))
    return any(getattr(record, name, 0) for record in records for name in FAILED)


ioctl, mmap = hcq.FileIOInterface.ioctl, hcq.FileIOInterface.mmap


def make(self, request, args):
    try:
        result = ioctl(self, request, args)
    except OSError:
        result = -1
    if result != 0 or failed(args):
        refused.append(request)
        answer(args)
    return 0


def map_memory(self, start, size, prot, flags, offset):
    with contextlib.suppress(OSError, TypeError):
        return mmap(self, start, size, prot, flags, offset)
    flags = flags & ~0xF | 0x22  # MAP_PRIVATE | MAP_ANONYMOUS
    return hcq.FileIOInterface.anon_mmap(start or 0, size, prot, flags, 0)


hcq.FileIOInterface.ioctl, hcq.FileIOInterface.mmap = make, map_memory
# Nothing runs what is submitted.
hcq.HCQSignal.wait = lambda *_, **__: None


control = ops_nv.NVKIface.rm_control


def reply(self, obj, cmd, params=None, **kwargs):
    before = len(refused)
    made = control(self, obj, cmd, params, **kwargs)
    if len(refused) > before and cmd == ops_nv.nv_gpu.NV2080_CTRL_CMD_GR_GET_INFO:
        # Some GPU: what tinygrad divides by and multiplies with.
        size = made.grInfoListSize
        items = (ops_nv.nv_gpu.NV2080_CTRL_GR_INFO * size).from_address(made.grInfoList)
        for item in items:
            item.data = 8
    return made


ops_nv.NVKIface.rm_control = reply

device = ops_nv.NVDevice("NV:0")
buffers = [device.allocator.alloc(size) for size in (1, 4096, 3 << 20, 16 << 20)]
for buffer in buffers:
    device.allocator.free(buffer, buffer.size)
print(f"opened, {len(refused)} calls refused")
