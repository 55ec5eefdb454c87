"""Contexts, memory of each kind, copies, streams, events, graphs and modules of libcuda, on each device of the machine.

Every result is compared byte for byte; what differs, or fails, ends it with 1 and says what.
"""
import ctypes
import mmap
import os
import random
import stat
import subprocess
import sys
import tempfile
import time

cuda = ctypes.CDLL("libcuda.so.1")
OUT_OF_MEMORY = 2
# CU_CTX_SCHED_YIELD: who waits lets the simulator have the processor. `contexts` has the other ways to wait, and other
# programs that of 0.
YIELDS = 2
Size, Pointer = ctypes.c_size_t, ctypes.c_uint64


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        sys.exit(f"{name} ended with {result}")


def made(kind, name, *args):
    """What a function returns through its first argument."""
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value


def same(found, expected, what):
    found, expected = bytes(found), bytes(expected)
    if found != expected:
        at = next(at for at, (a, b) in enumerate(zip(found, expected)) if a != b)
        sys.exit(f"{what}: byte {at} is {found[at]:#x}, not {expected[at]:#x}")


def fresh(size):
    return random.Random(size).randbytes(size)


def device_memory(size):
    return made(Pointer, "cuMemAlloc_v2", Size(size))


def at(pointer, offset):
    return Pointer(pointer.value + offset)


def read(pointer, size):
    found = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", found, pointer, Size(size))
    return found.raw


def copies():
    for size in (1, 3, 4096, 4097, 65535, (1 << 20) + 1, 24 << 20):
        data = fresh(size)
        memory = device_memory(size + 64)
        for offset in (0, 13):
            call("cuMemcpyHtoD_v2", at(memory, offset), data, Size(size))
            same(read(at(memory, offset), size), data, f"{size} bytes at {offset}")
        call("cuMemFree_v2", memory)


def large():
    """As much as 256 MiB at an odd place of the device, from one of the program and to another one."""
    size = (256 << 20) - 5
    data = random.Random(size).randbytes(1 << 20) * 256
    host, back = ctypes.create_string_buffer(data, len(data)), ctypes.create_string_buffer(size)
    memory = device_memory(size + 64)
    call("cuMemcpyHtoD_v2", at(memory, 13), ctypes.byref(host, 3), Size(size))
    call("cuMemcpyDtoH_v2", back, at(memory, 13), Size(size))
    same(back.raw, data[3:size + 3], f"{size} bytes at odd places")
    call("cuMemFree_v2", memory)


def keep_copying(seconds, comes_back):
    size, end = 16 << 20, time.monotonic() + seconds
    host, memory = made(ctypes.c_void_p, "cuMemAllocHost_v2", Size(size)), device_memory(size)
    while time.monotonic() < end:
        call("cuMemcpyHtoD_v2", memory, host, Size(size))
        if comes_back:
            call("cuMemcpyDtoH_v2", host, memory, Size(size))


def lasting(_):
    """Copies for as long as it takes others to see that the device is busy."""
    keep_copying(1.5, comes_back=True)


def up(_):
    """The same to the device alone, which has no kernel then, for several looks."""
    keep_copying(4, comes_back=False)


def streams():
    stream = made(ctypes.c_void_p, "cuStreamCreate", 1)
    begin, end = made(ctypes.c_void_p, "cuEventCreate", 0), made(ctypes.c_void_p, "cuEventCreate", 0)
    size = 4 << 20
    pinned = made(ctypes.c_void_p, "cuMemAllocHost_v2", Size(size))
    back = made(ctypes.c_void_p, "cuMemAllocHost_v2", Size(size))
    data, memory = fresh(size), device_memory(size)
    ctypes.memmove(pinned, data, size)
    call("cuEventRecord", begin, stream)
    call("cuMemcpyHtoDAsync_v2", memory, pinned, Size(size), stream)
    call("cuMemcpyDtoHAsync_v2", back, memory, Size(size), stream)
    call("cuEventRecord", end, stream)
    call("cuStreamSynchronize", stream)
    call("cuEventQuery", end)
    same(ctypes.string_at(back, size), data, "a stream")
    took = made(ctypes.c_float, "cuEventElapsedTime", begin, end).value
    if not 0 < took < 60000:
        sys.exit(f"the copies took {took} ms")
    call("cuMemFreeHost", pinned)
    call("cuMemFreeHost", back)
    call("cuMemFree_v2", memory)
    for event in (begin, end):
        call("cuEventDestroy_v2", event)
    call("cuStreamDestroy_v2", stream)


def free():
    """Bytes of the device that are left, and all that it has."""
    all_of_it = Size()
    left = made(Size, "cuMemGetInfo_v2", ctypes.byref(all_of_it))
    return left.value, all_of_it.value


def full(device):
    """A device that is filled has room for no more, and a context that goes gives all of it back."""
    piece = 1 << 30
    before, total = free()
    context, count = made(ctypes.c_void_p, "cuCtxCreate_v2", YIELDS, device), 0
    while (result := cuda.cuMemAlloc_v2(ctypes.byref(Pointer()), Size(piece))) == 0:
        count += 1
    left, _ = free()
    if result != OUT_OF_MEMORY or left >= piece or not total - 2 * piece < count * piece < total:
        sys.exit(f"{count} GiB of {total} bytes are taken, {left} are left: {result}")
    call("cuCtxDestroy_v2", context)
    if free()[0] != before:
        sys.exit(f"of {before} bytes {free()[0]} came back")


def room():
    """Memory that is taken is told, and comes back."""
    before, total = free()
    memory = device_memory(64 << 20)
    taken, _ = free()
    call("cuMemFree_v2", memory)
    after, _ = free()
    if before - taken < 64 << 20 or after != before or not 0 < before <= total:
        sys.exit(f"of {total} bytes {before} are free, then {taken}, then {after}")
    result = cuda.cuMemAlloc_v2(ctypes.byref(Pointer()), Size(total + 1))
    if result != OUT_OF_MEMORY:
        sys.exit(f"more memory than there is: {result}")


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""
    _fields_ = [(side + name, kind) for side in ("src", "dst") for name, kind in (
        ("X", Size), ("Y", Size), ("Type", ctypes.c_int), ("Host", ctypes.c_void_p), ("Device", Pointer),
        ("Array", ctypes.c_void_p), ("Pitch", Size))] + [("Width", Size), ("Height", Size)]


HOST, DEVICE, ARRAY = 1, 2, 3


def there_and_back(data, width, height, **device):
    """Copies lines to what `device` says, and what is there then."""
    host = ctypes.create_string_buffer(data, len(data))
    back = ctypes.create_string_buffer(len(data))
    for side, other, memory in (("src", "dst", host), ("dst", "src", back)):
        how = Copy2D(Width=width, Height=height)
        own = {"Type": HOST, "Host": ctypes.addressof(memory), "Pitch": width}
        for where, fields in ((side, own), (other, device)):
            for name, value in fields.items():
                setattr(how, where + name, value)
        call("cuMemcpy2D_v2", ctypes.byref(how))
    return back.raw


def both_ways(data, width, height, **device):
    same(there_and_back(data, width, height, **device), data, f"{width} by {height} bytes")


def surfaces():
    for width, height in ((1000, 33), (7, 1), (64, 300)):
        data, pitch = fresh(width * height), Size()
        memory = made(Pointer, "cuMemAllocPitch_v2", ctypes.byref(pitch), Size(width), Size(height), 4)
        if pitch.value < width:
            sys.exit(f"a pitch of {pitch.value} bytes for {width}")
        both_ways(data, width, height, Type=DEVICE, Device=memory, Pitch=pitch.value)
        call("cuMemFree_v2", memory)
    # Arrays of words: width and height in words and lines, the format, and components.
    for width, height, components in ((64, 16, 1), (33, 70, 4), (5, 3, 2)):
        of = (ctypes.c_uint64 * 3)(width, height, 3 | components << 32)
        array = made(ctypes.c_void_p, "cuArrayCreate_v2", ctypes.byref(of))
        line = width * components * 4
        both_ways(fresh(line * height), line, height, Type=ARRAY, Array=array)
        call("cuArrayDestroy", array)


def own_pages():
    """Memory of the program's that libcuda registers, and what the device calls it."""
    size = 1 << 20
    pages = mmap.mmap(-1, size)
    view = (ctypes.c_ubyte * size).from_buffer(pages)
    start = ctypes.c_void_p(ctypes.addressof(view))
    call("cuMemHostRegister_v2", start, Size(size), 2)
    made(Pointer, "cuMemHostGetDevicePointer_v2", start, 0)
    pages[:] = fresh(size)
    memory = device_memory(size)
    call("cuMemcpyHtoD_v2", memory, start, Size(size))
    same(read(memory, size), fresh(size), "registered memory")
    call("cuMemHostUnregister", start)
    call("cuMemFree_v2", memory)


def managed(device):
    size = 2 << 20
    memory = made(Pointer, "cuMemAllocManaged", Size(size), 1)
    view = (ctypes.c_ubyte * size).from_address(memory.value)
    same(view, bytes(size), "managed memory that is new")
    ctypes.memmove(memory.value, fresh(size), size)
    for advice, of in ((1, device), (2, device), (3, device), (5, device), (6, device), (4, device), (3, -1)):
        call("cuMemAdvise", memory, Size(size), advice, of)
    for destination in (device, -1):
        call("cuMemPrefetchAsync", memory, Size(size), destination, None)
        call("cuCtxSynchronize")
    same(view, fresh(size), "managed memory that came back")
    call("cuMemFree_v2", memory)
    memory = made(Pointer, "cuMemAllocManaged", Size(size), 1)
    same((ctypes.c_ubyte * size).from_address(memory.value), bytes(size), "managed memory that is new again")
    call("cuMemFree_v2", memory)


def virtual():
    """Memory and addresses apart: cuMemCreate and cuMemMap."""
    # CUmemAllocationProp: pinned memory, for files, of a device; CUmemAccessDesc: that reads and writes.
    device = made(ctypes.c_int, "cuCtxGetDevice").value
    wanted = (ctypes.c_int * 8)(1, 1, 1, device)
    size = made(Size, "cuMemGetAllocationGranularity", ctypes.byref(wanted), 0)
    memory = made(Pointer, "cuMemCreate", size, ctypes.byref(wanted), Pointer(0))
    place = made(Pointer, "cuMemAddressReserve", size, Size(0), Pointer(0), Pointer(0))
    call("cuMemMap", place, size, Size(0), memory, Pointer(0))
    call("cuMemSetAccess", place, size, (ctypes.c_int * 3)(1, device, 3), Size(1))
    call("cuMemcpyHtoD_v2", place, fresh(4096), Size(4096))
    same(read(place, 4096), fresh(4096), "memory that was mapped")
    # A file that stands for it, for another program.
    file = made(ctypes.c_int, "cuMemExportToShareableHandle", memory, 1, Pointer(0)).value
    child("imports", str(file), str(size.value), str(device), files=[file])
    same(read(place, 8), b"imported", "what another program wrote")
    os.close(file)
    call("cuMemUnmap", place, size)
    call("cuMemRelease", memory)
    call("cuMemAddressFree", place, size)


def imports(file, size, device):
    """The other program of `virtual`."""
    memory = made(Pointer, "cuMemImportFromShareableHandle", ctypes.c_void_p(int(file)), 1)
    size = Size(int(size))
    place = made(Pointer, "cuMemAddressReserve", size, Size(0), Pointer(0), Pointer(0))
    call("cuMemMap", place, size, Size(0), memory, Pointer(0))
    call("cuMemSetAccess", place, size, (ctypes.c_int * 3)(1, int(device), 3), Size(1))
    same(read(place, 4096), fresh(4096), "memory of another program")
    call("cuMemcpyHtoD_v2", place, b"imported", Size(8))


class Ipc(ctypes.Structure):
    """CUipcMemHandle and CUipcEventHandle."""
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def shared(device):
    """Memory and an event that another program opens."""
    memory = device_memory(1 << 20)
    call("cuMemcpyHtoD_v2", memory, fresh(4097), Size(4097))
    event = made(ctypes.c_void_p, "cuEventCreate", 4 | 2)
    call("cuEventRecord", event, None)
    handles = [made(Ipc, "cuIpcGetMemHandle", memory), made(Ipc, "cuIpcGetEventHandle", event)]
    child("opens", *(bytes(handle.bytes).hex() for handle in handles), str(device))
    same(read(at(memory, 100), 6), b"opened", "what another program wrote")
    call("cuEventDestroy_v2", event)
    call("cuMemFree_v2", memory)


def opens(memory, event, _):
    """The other program of `shared`."""
    memory, event = (Ipc.from_buffer_copy(bytes.fromhex(text)) for text in (memory, event))
    place = made(Pointer, "cuIpcOpenMemHandle_v2", memory, 1)
    same(read(place, 4097), fresh(4097), "memory of another program")
    call("cuMemcpyHtoD_v2", at(place, 100), b"opened", Size(6))
    opened = made(ctypes.c_void_p, "cuIpcOpenEventHandle", event)
    call("cuEventSynchronize", opened)
    call("cuIpcCloseMemHandle", place)


def child(name, *words, files=()):
    """Another program, which does its part on the device that the last word names."""
    done = subprocess.run([sys.executable, __file__, name, *words], pass_fds=files)
    if done.returncode:
        sys.exit(f"{name} ended with {done.returncode}")


def waits():
    """What a stream waits for, calls and writes; a pool of memory in it; and a graph."""
    least, greatest = ctypes.c_int(), ctypes.c_int()
    call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    stream = made(ctypes.c_void_p, "cuStreamCreateWithPriority", 1, greatest)
    calls = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: calls.append(len(calls)))
    memory = device_memory(64)
    call("cuLaunchHostFunc", stream, function, None)
    call("cuStreamWriteValue32_v2", stream, memory, 7, 0)
    call("cuStreamWaitValue32_v2", stream, memory, 7, 1)
    call("cuLaunchHostFunc", stream, function, None)
    told = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda _, status, given: calls.append(given) if status == 0 else None)
    call("cuStreamAddCallback", stream, told, ctypes.c_void_p(2), 0)
    pool = made(Pointer, "cuMemAllocAsync", Size(1 << 20), stream)
    call("cuMemFreeAsync", pool, stream)
    call("cuStreamSynchronize", stream)
    same(read(memory, 4), (7).to_bytes(4, "little"), "a stream's write")
    graph, node, whole = made(ctypes.c_void_p, "cuGraphCreate", 0), ctypes.c_void_p(), ctypes.c_void_p()
    of = (ctypes.c_void_p * 2)(ctypes.cast(function, ctypes.c_void_p), None)
    call("cuGraphAddHostNode", ctypes.byref(node), graph, None, Size(0), ctypes.byref(of))
    call("cuGraphInstantiateWithFlags", ctypes.byref(whole), graph, ctypes.c_uint64(0))
    call("cuGraphLaunch", whole, stream)
    call("cuStreamSynchronize", stream)
    if calls != [0, 1, 2, 3]:
        sys.exit(f"called {calls}")
    call("cuMemFree_v2", memory)
    call("cuStreamDestroy_v2", stream)


def later(_):
    """What streams copy and fill in lines, and words of 64 bits that they write and wait for."""
    stream = made(ctypes.c_void_p, "cuStreamCreate", 1)
    width, height, pitch, size = 333, 77, 512, 64 << 10
    data, memory, other = fresh(width * height), device_memory(size), device_memory(size)
    host, back = ctypes.create_string_buffer(data, len(data)), ctypes.create_string_buffer(len(data))
    lines = Copy2D(Width=width, Height=height, srcType=HOST, srcHost=ctypes.addressof(host), srcPitch=width,
                   dstType=DEVICE, dstDevice=memory.value, dstPitch=pitch, dstX=7, dstY=2)
    call("cuMemcpy2DAsync_v2", ctypes.byref(lines), stream)
    within = Copy2D(Width=width, Height=height, srcType=DEVICE, srcDevice=memory.value, srcPitch=pitch, srcX=7, srcY=2,
                    dstType=DEVICE, dstDevice=other.value, dstPitch=640, dstX=1)
    call("cuMemcpy2DAsync_v2", ctypes.byref(within), stream)
    out = Copy2D(Width=width, Height=height, srcType=DEVICE, srcDevice=other.value, srcPitch=640, srcX=1,
                 dstType=HOST, dstHost=ctypes.addressof(back), dstPitch=width)
    call("cuMemcpy2DAsync_v2", ctypes.byref(out), stream)
    call("cuStreamSynchronize", stream)
    same(back, data, "lines in a stream")
    call("cuMemsetD8Async", memory, 0, Size(4096), stream)
    call("cuMemsetD2D16Async", at(memory, 2), Size(64), 0xabcd, Size(5), Size(3), stream)
    call("cuMemsetD2D32Async", at(memory, 1024), Size(64), 0x12345678, Size(4), Size(2), stream)
    expected = bytearray(4096)
    for line in range(3):
        expected[2 + line * 64:12 + line * 64] = b"\xcd\xab" * 5
    for line in range(2):
        expected[1024 + line * 64:1040 + line * 64] = (0x12345678).to_bytes(4, "little") * 4
    # The word is behind what is compared. Waits are for no less, for this bit, and for a bit that is missing.
    word, value = at(memory, 4096), 1 << 40 | 5
    call("cuStreamWriteValue64_v2", stream, word, ctypes.c_uint64(value), 0)
    for wanted, flags in ((value - 1, 0), (1 << 40, 2), (1 << 41, 3)):
        call("cuStreamWaitValue64_v2", stream, word, ctypes.c_uint64(wanted), flags)
    call("cuStreamSynchronize", stream)
    same(read(memory, 4096), expected, "lines that a stream filled")
    same(read(word, 8), value.to_bytes(8, "little"), "a word of 64 bits")
    for memory in (memory, other):
        call("cuMemFree_v2", memory)
    call("cuStreamDestroy_v2", stream)


def primary(device):
    """The primary context has the flags that it is given, and is gone when it is reset."""
    def state():
        is_active = ctypes.c_int()
        flags = ctypes.c_uint()
        call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(is_active))
        return flags.value & ~8, is_active.value

    before = state()
    for flags in (1, 2, 4, 16):
        call("cuDevicePrimaryCtxSetFlags_v2", device, flags)
        context = made(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", device)
        call("cuCtxPushCurrent_v2", context)
        copies()
        call("cuCtxPopCurrent_v2", ctypes.byref(context))
        if state() != (flags, 1):
            sys.exit(f"the primary context of the flags {flags} has {state()}")
        call("cuDevicePrimaryCtxReset_v2", device)
        call("cuDevicePrimaryCtxRelease_v2", device) if state()[1] else None
        if state()[1]:
            sys.exit("the primary context is there after its reset")
    call("cuDevicePrimaryCtxSetFlags_v2", device, before[0])


class Fill(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""
    _fields_ = [("Destination", Pointer), ("Pitch", Size), ("Value", ctypes.c_uint), ("ElementSize", ctypes.c_uint),
                ("Width", Size), ("Height", Size)]


def fills(_):
    """Memory that is filled: by bytes, words of two and four bytes, in lines, and in a graph."""
    memory, size = device_memory(4096), 4096
    for name, value, width in (("cuMemsetD8_v2", 0x5a, 1), ("cuMemsetD16_v2", 0x1234, 2),
                               ("cuMemsetD32_v2", 0x12345678, 4)):
        call(name, memory, value, Size(size // width))
        same(read(memory, size), value.to_bytes(width, "little") * (size // width), name)
    call("cuMemsetD8_v2", at(memory, 3), 0xa5, Size(5))
    call("cuMemsetD2D8_v2", at(memory, 64), Size(100), 0x77, Size(7), Size(3))
    expected = bytearray((0x12345678).to_bytes(4, "little") * (size // 4))
    expected[3:8] = b"\xa5" * 5
    for line in range(3):
        expected[64 + line * 100:71 + line * 100] = b"\x77" * 7
    graph, node = made(ctypes.c_void_p, "cuGraphCreate", 0), ctypes.c_void_p()
    how = Fill(Destination=memory.value + 1024, Pitch=64, Value=0xbeef, ElementSize=2, Width=9, Height=4)
    context = made(ctypes.c_void_p, "cuCtxGetCurrent")
    call("cuGraphAddMemsetNode", ctypes.byref(node), graph, None, Size(0), ctypes.byref(how), context)
    whole = made(ctypes.c_void_p, "cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
    call("cuGraphLaunch", whole, None)
    call("cuCtxSynchronize")
    for line in range(4):
        expected[1024 + line * 64:1042 + line * 64] = b"\xef\xbe" * 9
    same(read(memory, size), expected, "memory that was filled")
    call("cuGraphExecDestroy", whole)
    call("cuGraphDestroy", graph)
    call("cuMemFree_v2", memory)


class Tile(ctypes.Structure):
    """CUarrayMapInfo, of a tile of an array and a part of a pool."""
    _fields_ = [("ResourceType", ctypes.c_uint), ("Array", ctypes.c_void_p), ("SubresourceType", ctypes.c_uint),
                ("Pad", ctypes.c_uint), ("Level", ctypes.c_uint), ("Layer", ctypes.c_uint),
                ("Offset", ctypes.c_uint * 3), ("Extent", ctypes.c_uint * 3), ("Operation", ctypes.c_uint), ("HandleType", ctypes.c_uint),
                ("Handle", Pointer), ("At", ctypes.c_uint64), ("Devices", ctypes.c_uint), ("Flags", ctypes.c_uint),
                ("Reserved", ctypes.c_uint * 2)]


SPARSE_ARRAYS = 112


def sparse(device):
    """An array of which one tile has memory: what is written elsewhere is lost, and zeros are read."""
    if not made(ctypes.c_int, "cuDeviceGetAttribute", SPARSE_ARRAYS, int(device)).value:
        return
    line, lines = 128 * 16, 128
    of = (ctypes.c_uint32 * 10)(128, 0, lines, 0, 0, 0, 0x20, 4, 0x40)
    array = made(ctypes.c_void_p, "cuArray3DCreate_v2", ctypes.byref(of))
    tile = (ctypes.c_uint32 * 16)()
    call("cuArrayGetSparseProperties", ctypes.byref(tile), array)
    width, height = tile[0], tile[1]
    usage = (ctypes.c_uint32 * 8)(1, 0, 1, int(device))
    ctypes.memset(ctypes.addressof(usage) + 26, 1, 1)
    pool = made(Pointer, "cuMemCreate", Size(2 << 20), ctypes.byref(usage), Pointer(0))
    info = Tile(Array=array, Offset=(width, 0, 0), Extent=(width, height, 1), Operation=1, Handle=pool,
                Devices=1 << int(device))
    call("cuMemMapArrayAsync", ctypes.byref(info), 1, None)
    call("cuCtxSynchronize")
    data = fresh(line * lines)
    back = there_and_back(data, line, lines, Type=ARRAY, Array=array)
    for at_line in range(lines):
        for column in range(128 // width):
            start, length = at_line * line + column * width * 16, width * 16
            there = column == 1 and at_line < height
            expected = data[start:start + length] if there else bytes(length)
            same(back[start:start + length], expected, f"line {at_line} of the tile {column}")
    call("cuArrayDestroy", array)
    call("cuMemRelease", pool)


class Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D."""
    _fields_ = [(side + name, kind) for side in ("src", "dst") for name, kind in (
        ("X", Size), ("Y", Size), ("Z", Size), ("Lod", Size), ("Type", ctypes.c_int), ("Host", ctypes.c_void_p),
        ("Device", Pointer), ("Array", ctypes.c_void_p), ("Reserved", ctypes.c_void_p), ("Pitch", Size),
        ("Height", Size))] + [("Width", Size), ("Lines", Size), ("Depth", Size)]


def boxes(_):
    """A part of a box in the device's memory, whose other bytes stay as they are."""
    wide, high, deep = 100, 20, 5
    width, lines, depth, x, y, z = 33, 7, 3, 5, 4, 1
    data, ground = fresh(width * lines * depth), b"\x5a" * (wide * high * deep)
    memory, back = device_memory(len(ground)), ctypes.create_string_buffer(len(data))
    call("cuMemcpyHtoD_v2", memory, ground, Size(len(ground)))
    host = ctypes.create_string_buffer(data, len(data))
    for side, other, place in (("src", "dst", host), ("dst", "src", back)):
        how = Copy3D(Width=width, Lines=lines, Depth=depth)
        for name, value in (("Type", HOST), ("Host", ctypes.addressof(place)), ("Pitch", width), ("Height", lines)):
            setattr(how, side + name, value)
        for name, value in (("Type", DEVICE), ("Device", memory.value), ("Pitch", wide), ("Height", high), ("X", x),
                            ("Y", y), ("Z", z)):
            setattr(how, other + name, value)
        call("cuMemcpy3D_v2", ctypes.byref(how))
    same(back, data, "a box")
    expected = bytearray(ground)
    for line in range(lines * depth):
        begin = ((z + line // lines) * high + y + line % lines) * wide + x
        expected[begin:begin + width] = data[line * width:(line + 1) * width]
    same(read(memory, len(ground)), expected, "what is around a box")
    call("cuMemFree_v2", memory)


def kept(_):
    """Host memory of each kind, and what is said of it."""
    size = 1 << 16
    for flags in range(8):
        memory = made(ctypes.c_void_p, "cuMemHostAlloc", Size(size), flags)
        # Memory is mapped for the device whether that was asked or not.
        found = made(ctypes.c_uint, "cuMemHostGetFlags", memory).value
        if found & ~2 != flags & ~2:
            sys.exit(f"host memory of the flags {flags} has {found}")
        place = made(Pointer, "cuMemHostGetDevicePointer_v2", memory, 0)
        ctypes.memmove(memory, fresh(size), size)
        copy = device_memory(size)
        call("cuMemcpyDtoD_v2", copy, place, Size(size))
        same(read(copy, size), fresh(size), f"host memory of the flags {flags}")
        call("cuMemFree_v2", copy)
        call("cuMemFreeHost", memory)


def pools(device):
    """A pool of its own: what it holds is told, and trimmed."""
    # CUmemPoolProps: pinned memory of a device. Then attributes: 4 what is freed is kept up to, 5 reserved, 7 used.
    wanted = (ctypes.c_int * 24)(1, 0, 1, device)
    pool = made(ctypes.c_void_p, "cuMemPoolCreate", ctypes.byref(wanted))
    call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(ctypes.c_uint64(1 << 30)))
    stream, size = made(ctypes.c_void_p, "cuStreamCreate", 1), 3 << 20

    def told(attribute):
        value = ctypes.c_uint64()
        call("cuMemPoolGetAttribute", pool, attribute, ctypes.byref(value))
        return value.value

    memory = made(Pointer, "cuMemAllocFromPoolAsync", Size(size), pool, stream)
    call("cuMemcpyHtoDAsync_v2", memory, fresh(size), Size(size), stream)
    call("cuStreamSynchronize", stream)
    same(read(memory, size), fresh(size), "memory of a pool")
    reserved, used = told(5), told(7)
    call("cuMemFreeAsync", memory, stream)
    call("cuStreamSynchronize", stream)
    if not size <= used <= reserved or told(5) != reserved or told(7) != 0:
        sys.exit(f"of {reserved} bytes {used} are used, then {told(7)} of {told(5)}")
    call("cuMemPoolTrimTo", pool, Size(0))
    if told(5) != 0:
        sys.exit(f"a pool that is trimmed holds {told(5)} bytes")
    call("cuMemPoolDestroy", pool)
    call("cuStreamDestroy_v2", stream)


class Ticket(ctypes.Structure):
    """CUmemPoolPtrExportData: memory of a pool, for who has the pool's file."""
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def lends(device):
    """A pool that another program imports by its file, and two pieces of it: what each wrote, the other reads."""
    # CUmemPoolProps: pinned memory of a device, for files.
    pool = made(ctypes.c_void_p, "cuMemPoolCreate", ctypes.byref((ctypes.c_int * 24)(1, 1, 1, device)))
    sizes = 4097, (3 << 20) + 5
    pieces = [made(Pointer, "cuMemAllocFromPoolAsync", Size(size), pool, None) for size in sizes]
    for piece, size in zip(pieces, sizes):
        call("cuMemcpyHtoDAsync_v2", piece, fresh(size), Size(size), None)
    call("cuCtxSynchronize")
    file = made(ctypes.c_int, "cuMemPoolExportToShareableHandle", pool, 1, Pointer(0)).value
    tickets = [bytes(made(Ticket, "cuMemPoolExportPointer", piece).bytes).hex() for piece in pieces]
    child("borrows", str(file), *map(str, sizes), *tickets, str(device), files=[file])
    for piece, size in zip(pieces, sizes):
        same(read(piece, size), fresh(size)[::-1], f"{size} bytes that another program wrote to a pool")
        call("cuMemFreeAsync", piece, None)
    os.close(file)
    call("cuMemPoolDestroy", pool)


def borrows(file, *words):
    """The other program of `lends`."""
    pool = made(ctypes.c_void_p, "cuMemPoolImportFromShareableHandle", ctypes.c_void_p(int(file)), 1, Pointer(0))
    device, sizes, tickets = words[-1], map(int, words[:2]), words[2:4]
    call("cuMemPoolSetAccess", pool, (ctypes.c_int * 3)(1, int(device), 3), Size(1))
    for size, ticket in zip(sizes, tickets):
        ticket = Ticket.from_buffer_copy(bytes.fromhex(ticket))
        piece = made(Pointer, "cuMemPoolImportPointer", pool, ctypes.byref(ticket))
        same(read(piece, size), fresh(size), f"{size} bytes of a pool of another program")
        call("cuMemcpyHtoD_v2", piece, fresh(size)[::-1], Size(size))
        call("cuMemFreeAsync", piece, None)
    call("cuCtxSynchronize")
    call("cuMemPoolDestroy", pool)


def graphs(_):
    """There, on the device and back, in a graph that is launched twice."""
    size = 5000
    host, back = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    first, second = device_memory(size), device_memory(size)
    context = made(ctypes.c_void_p, "cuCtxGetCurrent")
    graph, last = made(ctypes.c_void_p, "cuGraphCreate", 0), None
    for source, destination in ((host, first), (first, second), (second, back)):
        how = Copy3D(Width=size, Lines=1, Depth=1)
        for side, memory in (("src", source), ("dst", destination)):
            is_device = isinstance(memory, Pointer)
            setattr(how, side + "Type", DEVICE if is_device else HOST)
            setattr(how, side + ("Device" if is_device else "Host"),
                    memory.value if is_device else ctypes.addressof(memory))
            setattr(how, side + "Pitch", size)
            setattr(how, side + "Height", 1)
        node = ctypes.c_void_p()
        call("cuGraphAddMemcpyNode", ctypes.byref(node), graph, last and ctypes.byref(last), Size(1 if last else 0),
             ctypes.byref(how), context)
        last = node
    whole = made(ctypes.c_void_p, "cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
    for data in (fresh(size), fresh(size)[::-1]):
        host.raw = data
        call("cuGraphLaunch", whole, None)
        call("cuCtxSynchronize")
        same(back, data, "a graph of copies")
    call("cuGraphExecDestroy", whole)
    call("cuGraphDestroy", graph)
    for memory in (first, second):
        call("cuMemFree_v2", memory)


def contexts(device):
    """Each way to wait, with and without mapped host memory, kept local memory and dumps of the context."""
    before = made(ctypes.c_void_p, "cuCtxGetCurrent")
    # CU_CTX_COREDUMP_ENABLE, _USER_COREDUMP_ENABLE since CUDA 12.1; the second is told as the first, with a pipe.
    # A process has them once: libcuda ends the next ones with CUDA_ERROR_OPERATING_SYSTEM.
    has_dumps = device == 0 and made(ctypes.c_int, "cuDriverGetVersion").value >= 12010
    dumps = {0x20: 0x20, 0x40: 0x20} if has_dumps else {}
    for flags in (1, 2, 4 | 8 | 16, *dumps):
        folder, back = tempfile.TemporaryDirectory(), os.getcwd()
        os.chdir(folder.name)
        context = made(ctypes.c_void_p, "cuCtxCreate_v2", flags, device)
        os.chdir(back)
        # Host memory is always mapped.
        if made(ctypes.c_uint, "cuCtxGetFlags").value & ~8 != dumps.get(flags, flags) & ~8:
            sys.exit(f"a context of the flags {flags} has others")
        memory = device_memory(4097)
        call("cuMemcpyHtoD_v2", memory, fresh(4097), Size(4097))
        same(read(memory, 4097), fresh(4097), f"a context of the flags {flags}")
        call("cuCtxDestroy_v2", context)
        folder.cleanup()
    if made(ctypes.c_void_p, "cuCtxGetCurrent").value != before.value:
        sys.exit("another context is current")


def limits(_):
    """Limits of a context are as they were set: of what memory is fetched at once, the driver is told."""
    for limit, values in ((0, (2048, 1024)), (1, (2 << 20, 1 << 20)), (5, (32, 64, 128))):
        for value in values:
            call("cuCtxSetLimit", limit, Size(value))
            found = made(Size, "cuCtxGetLimit", limit).value
            if found < value:
                sys.exit(f"limit {limit} was set to {value} and is {found}")


def dumps(device):
    """A context that dumps when its user writes to a pipe (CUDA_ENABLE_USER_TRIGGERED_COREDUMP): it has the pipe."""
    flags = made(ctypes.c_uint, "cuCtxGetFlags").value
    pipe = os.stat(os.environ["CUDA_COREDUMP_PIPE"])
    copies()
    print("dumps:", flags & 0x60, stat.S_ISFIFO(pipe.st_mode))


def forked(_):
    """A process that was forked has no CUDA, and takes none from the first one."""
    memory, driver = device_memory(4097), made(ctypes.c_int, "cuDriverGetVersion").value
    call("cuMemcpyHtoD_v2", memory, fresh(4097), Size(4097))
    process = os.fork()
    if process == 0:
        result = cuda.cuMemcpyHtoD_v2(memory, bytes(4097), Size(4097))
        # Before 550 it ends the first one's channel: docs/rm-sim.md.
        os._exit(cuda.cuInit(0) if result == 3 and driver >= 12040 else result)
    _, status = os.waitpid(process, 0)
    # CUDA_ERROR_NOT_INITIALIZED.
    if os.waitstatus_to_exitcode(status) != 3:
        sys.exit(f"a forked process ended with {os.waitstatus_to_exitcode(status)}")
    same(read(memory, 4097), fresh(4097), "what a forked process did not touch")
    call("cuMemFree_v2", memory)


def errors(_):
    """What is wrong is refused, and named."""
    own = made(ctypes.c_void_p, "cuCtxGetCurrent")
    place, name, text = Pointer(), ctypes.c_char_p(), ctypes.c_char_p()
    for expected, wrong in ((b"CUDA_ERROR_INVALID_VALUE", lambda: cuda.cuMemFree_v2(Pointer(0x1234))),
                            (b"CUDA_SUCCESS", lambda: cuda.cuCtxSetCurrent(None)),
                            (b"CUDA_ERROR_INVALID_CONTEXT", lambda: cuda.cuMemAlloc_v2(ctypes.byref(place), Size(1))),
                            (b"CUDA_SUCCESS", lambda: cuda.cuCtxSetCurrent(own))):
        result = wrong()
        call("cuGetErrorName", result, ctypes.byref(name))
        call("cuGetErrorString", result, ctypes.byref(text))
        if name.value != expected or not text.value:
            sys.exit(f"{name.value} ({text.value}) instead of {expected}")


CODE = b""".version 6.4
.target sm_70
.address_size 64
.visible .entry store(.param .u64 to)
{
    .reg .u64 %to;
    ld.param.u64 %to, [to];
    st.global.u32 [%to], 7;
    ret;
}
.visible .entry add(.param .u64 to, .param .u64 from)
{
    .reg .u64 %to, %from;
    .reg .u32 %value;
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    ld.global.u32 %value, [%from];
    add.u32 %value, %value, 1;
    st.global.u32 [%to], %value;
    ret;
}
"""


def modules():
    """Code is compiled and placed; how often it fits on a processor is told."""
    module = made(ctypes.c_void_p, "cuModuleLoadData", CODE)
    function = made(ctypes.c_void_p, "cuModuleGetFunction", module, b"store")
    most = made(ctypes.c_int, "cuFuncGetAttribute", 0, function).value
    fits = made(ctypes.c_int, "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, 128, Size(0)).value
    if most != 1024 or not 8 <= fits <= 32:
        sys.exit(f"blocks of {most} threads, {fits} of 128 on a processor")
    call("cuModuleUnload", module)


def peers(first, second):
    """From one device to another, before it reaches the other's memory and, where it can, after that."""
    contexts = [made(ctypes.c_void_p, "cuCtxCreate_v2", 0, int(device)) for device in (first, second)]
    places = []
    for context in contexts:
        call("cuCtxSetCurrent", context)
        places.append(device_memory((1 << 20) + 64))
    reaches = made(ctypes.c_int, "cuDeviceCanAccessPeer", int(first), int(second)).value
    large_to_peer(contexts)
    for is_enabled in range(1 + reaches):
        for size in (1, 4097, (1 << 20) + 1):
            data = random.Random(size + is_enabled).randbytes(size)
            call("cuCtxSetCurrent", contexts[0])
            call("cuMemcpyHtoD_v2", at(places[0], 3), data, Size(size))
            call("cuMemcpyPeer", at(places[1], 13), contexts[1], at(places[0], 3), contexts[0], Size(size))
            call("cuCtxSetCurrent", contexts[1])
            same(read(at(places[1], 13), size), data, f"{size} bytes to the other device")
            call("cuMemsetD8_v2", at(places[1], 13), 0, Size(size))
            call("cuMemcpyPeerAsync", at(places[1], 13), contexts[1], at(places[0], 3), contexts[0], Size(size), None)
            call("cuCtxSynchronize")
            same(read(at(places[1], 13), size), data, f"{size} bytes to the other device in a stream")
        if is_enabled:
            reached(contexts, places)
        elif reaches:
            call("cuCtxSetCurrent", contexts[0])
            call("cuCtxEnablePeerAccess", contexts[1], 0)
    print("peers:", reaches)
    for context in contexts:
        call("cuCtxDestroy_v2", context)


def large_to_peer(contexts):
    """As much as 256 MiB, at odd places of both."""
    size = (256 << 20) - 5
    data = random.Random(size).randbytes(1 << 20) * 256
    places = []
    for context in contexts:
        call("cuCtxSetCurrent", context)
        places.append(device_memory(size + 64))
    call("cuCtxSetCurrent", contexts[0])
    call("cuMemcpyHtoD_v2", at(places[0], 3), data, Size(size))
    call("cuMemcpyPeer", at(places[1], 13), contexts[1], at(places[0], 3), contexts[0], Size(size))
    call("cuCtxSetCurrent", contexts[1])
    same(read(at(places[1], 13), size), data[:size], f"{size} bytes to the other device")
    for context, place in zip(contexts, places):
        call("cuCtxSetCurrent", context)
        call("cuMemFree_v2", place)


def reached(contexts, places):
    """The first device copies and computes in the memory of the second."""
    call("cuCtxSetCurrent", contexts[0])
    call("cuMemcpyDtoD_v2", at(places[0], 1), at(places[1], 13), Size(4097))
    same(read(at(places[0], 1), 4097), read(at(places[1], 13), 4097), "what the other device has")
    store(places[1])
    call("cuCtxSynchronize")
    call("cuCtxSetCurrent", contexts[1])
    same(read(places[1], 4), word(7), "what a kernel of the other device stored")
    adds(contexts, places[0], places[1])


def adds(contexts, own, other):
    """A kernel of the first device reads what the second wrote to its memory, and stores to it what comes of that."""
    call("cuCtxSetCurrent", contexts[1])
    call("cuMemcpyHtoD_v2", other, word(40), Size(4))
    call("cuCtxSetCurrent", contexts[0])
    launch("add", own, other)
    launch("add", at(other, 4), own)
    call("cuCtxSynchronize")
    same(read(own, 4), word(41), "what a kernel read of the other device")
    call("cuCtxSetCurrent", contexts[1])
    same(read(other, 8), word(40) + word(42), "what a kernel wrote to the other device")


def word(value):
    return value.to_bytes(4, "little")


def given(first, second):
    """Memory that the second device gives to the first without access between contexts: mapped, and of a pool."""
    devices = [int(first), int(second)]
    contexts = [made(ctypes.c_void_p, "cuCtxCreate_v2", 0, device) for device in devices]
    call("cuCtxSetCurrent", contexts[0])
    own = device_memory(4096)
    wanted = (ctypes.c_int * 8)(1, 0, 1, devices[1])
    size = made(Size, "cuMemGetAllocationGranularity", ctypes.byref(wanted), 0)
    memory = made(Pointer, "cuMemCreate", size, ctypes.byref(wanted), Pointer(0))
    place = made(Pointer, "cuMemAddressReserve", size, Size(0), Pointer(0), Pointer(0))
    call("cuMemMap", place, size, Size(0), memory, Pointer(0))
    access = (ctypes.c_int * 6)(1, devices[1], 3, 1, devices[0], 3)
    print("mapped:", cuda.cuMemSetAccess(place, size, access, Size(2)), end=" ")
    pool = made(ctypes.c_void_p, "cuMemPoolCreate", ctypes.byref((ctypes.c_int * 24)(1, 0, 1, devices[1])))
    status = cuda.cuMemPoolSetAccess(pool, (ctypes.c_int * 3)(1, devices[0], 3), Size(1))
    print("pool:", status)
    if status:
        return
    adds(contexts, own, place)
    call("cuCtxSetCurrent", contexts[1])
    other = made(Pointer, "cuMemAllocFromPoolAsync", Size(4096), pool, None)
    call("cuCtxSynchronize")
    adds(contexts, own, other)


def store(place):
    launch("store", place)


def launch(name, *places):
    """Launches a kernel of CODE on the current device."""
    module = made(ctypes.c_void_p, "cuModuleLoadData", CODE)
    function = made(ctypes.c_void_p, "cuModuleGetFunction", module, name.encode())
    args = (ctypes.c_void_p * len(places))(*(ctypes.addressof(place) for place in places))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, args, None)


def strangers(first, second):
    """A kernel does not reach another device's memory that nobody let it reach."""
    contexts = [made(ctypes.c_void_p, "cuCtxCreate_v2", 0, int(device)) for device in (second, first)]
    call("cuCtxSetCurrent", contexts[0])
    place = device_memory(4096)
    call("cuCtxSetCurrent", contexts[1])
    store(place)
    print("strangers:", cuda.cuCtxSynchronize())


call("cuInit", 0)
if len(sys.argv) > 1:
    made(ctypes.c_void_p, "cuCtxCreate_v2", 0, int(sys.argv[-1]))
    globals()[sys.argv[1]](*sys.argv[2:])
    sys.exit()
count = made(ctypes.c_int, "cuDeviceGetCount").value
for device in range(count):
    context = made(ctypes.c_void_p, "cuCtxCreate_v2", YIELDS, device)
    for part in (copies, large, streams, room, surfaces, own_pages, virtual, waits, modules):
        part()
    for part in (managed, shared, fills, later, boxes, kept, pools, lends, graphs, sparse, contexts, limits, full, primary, forked,
                 errors):
        part(device)
    call("cuCtxDestroy_v2", context)
    context = made(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", device)
    call("cuCtxPushCurrent_v2", context)
    copies()
    call("cuCtxPopCurrent_v2", ctypes.byref(context))
    call("cuDevicePrimaryCtxRelease_v2", device)
if count > 1:
    peers(0, 1)
print("devices:", count)
