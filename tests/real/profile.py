"""What CUPTI, NVIDIA's library for profilers, records of a program: kernels, copies, and moves of managed memory.

    profile.py CUPTI
"""
import ctypes
import sys

cuda, cupti = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])

# cupti_activity.h: kinds of records, and of counters of managed memory.
MEMCPY, MEMSET, KERNEL, MANAGED = 1, 2, 10, 25
HOST_TO_DEVICE, DEVICE_TO_HOST, GPU_FAULTS = 1, 2, 4
PAGES = 16
SIZE = PAGES << 16


class Counter(ctypes.Structure):
    """CUpti_ActivityUnifiedMemoryCounterConfig: of one device of this process."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("scope", "kind", "device", "enable")]


def check(library, name, *args):
    status = getattr(library, name)(*args)
    if status:
        sys.exit(f"{name}: {status}")


def made(name, *args, kind=ctypes.c_void_p):
    """What a function of libcuda writes to its first argument."""
    out = kind()
    check(cuda, name, ctypes.byref(out), *args)
    return out


buffers, records = [], []
Size = ctypes.POINTER(ctypes.c_size_t)
Requested = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), Size, Size)
Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


@Requested
def requested(buffer, size, most):
    buffers.append(ctypes.create_string_buffer(1 << 16))
    buffer[0], size[0], most[0] = ctypes.addressof(buffers[-1]), 1 << 16, 0


@Completed
def completed(context, stream, buffer, size, valid):
    record = ctypes.c_void_p()
    arguments = ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
    while cupti.cuptiActivityGetNextRecord(*arguments) == 0:
        records.append(ctypes.string_at(record.value, 64))


check(cuda, "cuInit", 0)
device = made("cuDeviceGet", 0, kind=ctypes.c_int)
context = made("cuDevicePrimaryCtxRetain", device)
check(cuda, "cuCtxPushCurrent_v2", context)
wanted = HOST_TO_DEVICE, DEVICE_TO_HOST, GPU_FAULTS
check(cupti, "cuptiActivityConfigureUnifiedMemoryCounter", (Counter * 3)(*[(1, kind, 0, 1) for kind in wanted]), 3)
check(cupti, "cuptiActivityRegisterCallbacks", requested, completed)
for kind in (MEMCPY, MEMSET, KERNEL, MANAGED):
    check(cupti, "cuptiActivityEnable", kind)

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 to) {
    .reg .b32 %r<5>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r4;
    ret;
}
\0"""
count = made("cuModuleGetFunction", made("cuModuleLoadData", PTX), b"count")
managed = made("cuMemAllocManaged", ctypes.c_size_t(SIZE), 1, kind=ctypes.c_uint64)
ctypes.memset(managed.value, 1, SIZE)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(managed))
check(cuda, "cuLaunchKernel", count, SIZE // 1024, 1, 1, 256, 1, 1, 0, None, arguments, None)
check(cuda, "cuCtxSynchronize")
check(cuda, "cuMemPrefetchAsync", managed, ctypes.c_size_t(SIZE), -1, None)
check(cuda, "cuCtxSynchronize")
own = made("cuMemAlloc_v2", ctypes.c_size_t(SIZE), kind=ctypes.c_uint64)
check(cuda, "cuMemsetD8_v2", own, 3, ctypes.c_size_t(SIZE))
check(cuda, "cuMemcpyDtoH_v2", (ctypes.c_char * SIZE)(), own, ctypes.c_size_t(SIZE))
check(cuda, "cuCtxSynchronize")
check(cupti, "cuptiActivityFlushAll", 1)

values = (ctypes.c_uint32 * (SIZE // 4)).from_address(managed.value)
print("counted" if values[:] == list(range(SIZE // 4)) else f"wrong: {values[:4]}")


def number(record, at, size=4):
    return int.from_bytes(record[at : at + size], "little")


def of(kind):
    return [record for record in records if number(record, 0) == kind]


# CUpti_ActivityUnifiedMemoryCounter2: counter, value, start, end, address.
moves = [(number(record, 4), number(record, 8, 8), number(record, 32, 8)) for record in of(MANAGED)]
inside = all(managed.value <= address < managed.value + SIZE for _, _, address in moves)
totals = {kind: sum(value for counter, value, _ in moves if counter == kind) for kind in wanted}
print(f"to the GPU: {totals[HOST_TO_DEVICE]}, to the host: {totals[DEVICE_TO_HOST]}, all inside: {inside}")
print(f"faults: {totals[GPU_FAULTS]}")
print(f"kernels: {len(of(KERNEL))}, copies: {len(of(MEMCPY))}, memsets: {len(of(MEMSET))}")
