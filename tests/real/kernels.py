"""Kernels that NVIDIA's libcuda launches: those of cuda/kernels/ptx, compiled by its own compiler for the device, and
those that it has for copies and memsets. Every result is compared with one computed here; what differs, or fails, ends
it with 1 and says what.

    kernels.py FOLDER           FOLDER has the PTX, and another beside it, by-hand, too
    kernels.py FOLDER MISTAKE   launches a kernel that goes wrong, and prints how its context ended
    kernels.py FOLDER groups    the kernels of groups.cu, which FOLDER has as PTX and as machine code
    kernels.py FOLDER functions the same of functions.cu; what it prints comes in any order
    kernels.py FOLDER endless   a graph that loops until a kernel of it goes wrong
    kernels.py FOLDER asserted  its kernel that goes wrong, as machine code
"""
import array
import ctypes
import os
import pathlib
import random
import re
import struct
import sys

cuda = ctypes.CDLL("libcuda.so.1")
Size, Pointer, Handle = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
FOLDER = pathlib.Path(sys.argv[1])
# CU_CTX_SCHED_YIELD: who waits lets the simulator have the processor.
YIELDS = 2


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        sys.exit(f"{name} ended with {result}")


def made(kind, name, *args):
    """What a function returns through its first argument."""
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value


def up(kind, values):
    """Numbers in the device's memory: where, and as what."""
    data = array.array(kind, values).tobytes()
    memory = made(Pointer, "cuMemAlloc_v2", Size(len(data)))
    call("cuMemcpyHtoD_v2", memory, data, Size(len(data)))
    # The bytes may still be under way, and streams do not wait for them.
    call("cuCtxSynchronize")
    return memory


def down(kind, memory, count):
    found = array.array(kind, bytes(count * array.array(kind).itemsize))
    buffer = (ctypes.c_char * (count * found.itemsize)).from_buffer(found)
    call("cuMemcpyDtoH_v2", buffer, memory, Size(count * found.itemsize))
    del buffer
    return list(found)


def packed(args):
    held = [ctypes.c_int32(arg) if isinstance(arg, int) else arg for arg in args]
    return (Handle * len(held))(*[ctypes.cast(ctypes.byref(arg), Handle) for arg in held]), held


def launch(module, name, grid, block, *args, stream=None, together=False):
    function = made(Handle, "cuModuleGetFunction", module, name.encode())
    pointers, held = packed(args)
    sizes = [*grid, 1, 1][:3] + [*block, 1, 1][:3] + [0, stream, pointers]
    if together:
        call("cuLaunchCooperativeKernel", function, *sizes)
    else:
        call("cuLaunchKernel", function, *sizes, None)
    return held


def finished(name):
    result = cuda.cuCtxSynchronize()
    if result:
        sys.exit(f"{name} ended with {result}")


def same(found, expected, what):
    if found != expected:
        at = next((at for at, (a, b) in enumerate(zip(found, expected)) if a != b), "the end")
        sys.exit(f"{what}: {at} is {found[at]}, not {expected[at]}")


def numbers(count, low, high, seed=1):
    source = random.Random(seed)
    return [source.randrange(low, high) for _ in range(count)]


def load(name):
    """The PTX says a version that older drivers do not know, and uses nothing of it."""
    text = re.sub(rb"(?m)^\.version .*", b".version 7.8", (FOLDER / f"{name}.ptx").read_bytes())
    return made(Handle, "cuModuleLoadData", text + b"\0")


def reduction(module):
    values = numbers(3000, -1000, 1000)
    data, total = up("i", values), up("i", [0])
    launch(module, "reduction", [5], [256], data, total, len(values))
    finished("reduction")
    same(down("i", total, 1), [sum(values)], "reduction")


def matmul(module):
    n = 48
    a, b = ([value / 4 for value in numbers(n * n, -8, 9, seed)] for seed in (2, 3))
    expected = [sum(a[i * n + k] * b[k * n + j] for k in range(n)) for i in range(n) for j in range(n)]
    out = up("f", [0] * (n * n))
    launch(module, "matmul", [3, 3], [16, 16], up("f", a), up("f", b), out, n)
    finished("matmul")
    same(down("f", out, n * n), expected, "matmul")


def histogram(module):
    values = numbers(5000, 0, 256)
    bins = up("I", [0] * 256)
    launch(module, "histogram", [4], [256], up("B", values), bins, len(values))
    finished("histogram")
    same(down("I", bins, 256), [values.count(value) for value in range(256)], "histogram")


def bitonic(module):
    values = numbers(512, -9999, 9999)
    data = up("i", values)
    launch(module, "bitonic", [2], [256], data)
    finished("bitonic")
    same(down("i", data, 512), sorted(values[:256]) + sorted(values[256:]), "bitonic")


def divergent(module):
    limits = numbers(300, -3, 90)
    out = up("i", [0] * 300)
    launch(module, "divergent", [3], [128], up("i", limits), out, 300)
    finished("divergent")
    same(down("i", out, 300), [sum(k for k in range(min(n, 40)) if k % 3) for n in limits], "divergent")


def graph(module):
    """A captured stream: a memset, two kernels one behind the other, and a copy; launched twice."""
    stream, values = made(Handle, "cuStreamCreate", 1), numbers(512, -99, 99)
    data, total, back = up("i", values), up("i", [7]), (ctypes.c_int32 * 1)()
    call("cuStreamBeginCapture_v2", stream, 0)
    call("cuMemsetD32Async", total, 0, Size(1), stream)
    launch(module, "bitonic", [2], [256], data, stream=stream)
    launch(module, "reduction", [2], [256], data, total, len(values), stream=stream)
    call("cuMemcpyDtoHAsync_v2", back, total, Size(4), stream)
    captured = Handle()
    call("cuStreamEndCapture", stream, ctypes.byref(captured))
    runnable = made(Handle, "cuGraphInstantiateWithFlags", captured, ctypes.c_uint64(0))
    for _ in range(2):
        back[0] = 0
        call("cuGraphLaunch", runnable, stream)
        call("cuStreamSynchronize", stream)
        same(list(back), [sum(values)], "a graph")
    same(down("i", data, 512), sorted(values[:256]) + sorted(values[256:]), "a graph's kernel")


def banks(module):
    """Parameters of the most that there may be, which lie in both halves of a bank of constants, and constants there."""
    word = lambda at: (at ^ 0x5A5A5) * 0x9E3779B1 & 0xFFFFFFFF
    filled = lambda size: array.array("I", map(word, range(0, size, 4))).tobytes()
    sums = lambda *parts: sum(word(at) * by for at, by in parts) & 0xFFFFFFFF
    words, lanes, out = (ctypes.c_char * 32756).from_buffer_copy(filled(32756)), range(8), up("I", [0] * 8)
    launch(module, "large", [1], [8], out, words)
    finished("32,764 bytes of parameters")
    constant = (0, 1), (32752, 3), (32408, 5), (25976, 7), (32736, 11), (32740, 13)
    expected = [sums(*constant, (32384 + 4 * lane, 17), (25952 + 4 * lane, 19)) for lane in lanes]
    same(down("I", out, 8), expected, "32,764 bytes of parameters")
    launch(module, "small", [1], [8], out, 70)
    finished("a small kernel beside a large one")
    same(down("I", out, 8), list(range(70, 78)), "a small kernel beside a large one")
    table, size = Pointer(), Size()
    call("cuModuleGetGlobal_v2", ctypes.byref(table), ctypes.byref(size), module, b"table")
    call("cuMemcpyHtoD_v2", table, filled(size.value), size)
    launch(module, "constants", [1], [8], out)
    finished("64 KiB of constants")
    expected = [sums((32764 + 4 * lane, 1), (65408 + 4 * lane, 3), (65532, 5), (48 + 4 * lane, 7)) for lane in lanes]
    same(down("I", out, 8), expected, "64 KiB of constants")


# Kernels of graphs with conditions: one counts how often it runs, and another one as well, until it goes wrong.
COUNTS = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry counted(.param .u64 count) {
  .reg .b32 %r<2>; .reg .b64 %d;
  ld.param.u64 %d, [count]; ld.u32 %r0, [%d]; add.u32 %r0, %r0, 1; st.u32 [%d], %r0; ret;
}
.visible .entry counted_to_five(.param .u64 count) {
  .reg .b32 %r<2>; .reg .b64 %d; .reg .pred %p;
  ld.param.u64 %d, [count]; ld.u32 %r0, [%d]; add.u32 %r0, %r0, 1; st.u32 [%d], %r0;
  setp.eq.u32 %p, %r0, 5; membar.sys; mov.u64 %d, 0; @%p st.u32 [%d], %r0; ret;
}
"""
IF, WHILE = 0, 1


def node(graph, before, kind, layout, *fields):
    """A new node, and its parameters (CUgraphNodeParams), of which libcuda writes some."""
    params = ctypes.create_string_buffer(256)
    struct.pack_into("<i", params, 0, kind)
    struct.pack_into("<" + layout, params, 16, *fields)
    after = (Handle * len(before))(*before)
    return made(Handle, "cuGraphAddNode", graph, after, Size(len(before)), params), params


def kernel_node(graph, before, function, *args):
    pointers, held = packed(args)
    fields = function.value, 1, 1, 1, 1, 1, 1, 0, ctypes.addressof(pointers), 0, 0, 0
    return node(graph, before, 0, "Q7I4xQQQQ", *fields)[0]


def conditional_graph(module, kind, default, body, counts):
    """A condition that nothing changes, a kernel that runs where it holds, and one behind both; ready to run."""
    context, graph = made(Handle, "cuCtxGetCurrent"), made(Handle, "cuGraphCreate", 0)
    handle = made(ctypes.c_uint64, "cuGraphConditionalHandleCreate", graph, context, default, 1)
    condition, params = node(graph, [], 13, "QiIQQ", handle.value, kind, 1, 0, context.value)
    (graphs,) = struct.unpack_from("<Q", params, 32)
    function = lambda name: made(Handle, "cuModuleGetFunction", module, name)
    kernel_node(Handle.from_address(graphs), [], function(body), counts)
    kernel_node(graph, [condition], function(b"counted"), Pointer(counts.value + 4))
    return made(Handle, "cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))


def conditions():
    """Libcuda decides on the device what it launches, by a kernel of its own that launches the body."""
    module, stream = made(Handle, "cuModuleLoadData", COUNTS + b"\0"), made(Handle, "cuStreamCreate", 1)
    for kind, default in (IF, 0), (IF, 1), (WHILE, 0):
        counts = up("i", [0, 0])
        runnable = conditional_graph(module, kind, default, b"counted", counts)
        for launches in 1, 2, 3:
            call("cuGraphLaunch", runnable, stream)
            call("cuStreamSynchronize", stream)
            same(down("i", counts, 2), [launches * default, launches], f"condition {kind}, {default}")


def endless():
    """A loop without an end, but for a kernel that goes wrong at its fifth time."""
    counts, module = Pointer(), made(Handle, "cuModuleLoadData", COUNTS + b"\0")
    call("cuMemHostAlloc", ctypes.byref(counts), Size(8), 2)
    runnable = conditional_graph(module, WHILE, 1, b"counted_to_five", counts)
    call("cuGraphLaunch", runnable, made(Handle, "cuStreamCreate", 1))
    print("endless", cuda.cuCtxSynchronize(), list((ctypes.c_int32 * 2).from_address(counts.value)))


def two_streams(module):
    """One waits for the other by an event."""
    first, second = (made(Handle, "cuStreamCreate", 1) for _ in range(2))
    event = made(Handle, "cuEventCreate", 2)
    values = numbers(512, -9999, 9999)
    data, total = up("i", values), up("i", [0])
    launch(module, "bitonic", [2], [256], data, stream=first)
    call("cuEventRecord", event, first)
    call("cuStreamWaitEvent", second, event, 0)
    launch(module, "reduction", [1], [256], data, total, 256, stream=second)
    call("cuStreamSynchronize", second)
    same(down("i", total, 1), [sum(sorted(values[:256]))], "two streams")


def cooperative(module):
    """Each block waits until all of the grid have written what the others read."""
    values = numbers(1024, -100, 100)
    count, middle, out = up("i", [0]), up("i", [0] * 1024), up("i", [0] * 1024)
    launch(module, "grid_barrier", [16], [64], count, up("i", values), middle, out, together=True)
    finished("a cooperative launch")
    same(down("i", out, 1024), [2 * value for value in reversed(values)], "a cooperative launch")


def waiting(module):
    """The same of a plain launch: a GPU runs as many blocks at once."""
    values = numbers(1024, -100, 100)
    count, middle, out = up("i", [0]), up("i", [0] * 1024), up("i", [0] * 1024)
    launch(module, "grid_barrier", [16], [64], count, up("i", values), middle, out)
    finished("blocks that wait for each other")
    same(down("i", out, 1024), [2 * value for value in reversed(values)], "blocks that wait")


# What cooperative_groups does for this_grid().sync(), in our own words: libcuda gives each cooperative launch a place,
# whose second word blocks count in. Its highest bit turns over when the last has come. Between rounds, each block reads
# what the next wrote in the round before.
GRID_SYNC = b"""
.version 7.8
.target sm_80
.address_size 64
.func sync(.reg .b64 %place, .reg .b32 %block, .reg .b32 %blocks, .reg .b32 %thread) {
  .reg .b32 %r<8>; .reg .pred %p<4>;
  bar.sync 0; setp.ne.u32 %p0, %thread, 0; @%p0 bra joined;
  setp.ne.u32 %p1, %block, 0; mov.u32 %r0, 1; sub.u32 %r1, 0x80000001, %blocks; selp.u32 %r0, %r0, %r1, %p1;
  membar.gl; atom.global.add.u32 %r2, [%place+4], %r0;
wait:
  ld.volatile.global.u32 %r3, [%place+4]; xor.b32 %r3, %r3, %r2; setp.ge.s32 %p2, %r3, 0; @%p2 bra wait;
  membar.gl;
joined:
  bar.sync 0; ret;
}
.visible .entry grid_sync(.param .u64 data, .param .u32 rounds) {
  .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .pred %p<4>;
  ld.param.u64 %d0, [data]; ld.param.u32 %r0, [rounds];
  mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %d1, {%r2, %r1};
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %tid.x;
  mul.wide.u32 %d2, %r3, 4; add.u64 %d2, %d0, %d2;
  add.u32 %r6, %r3, 1; rem.u32 %r6, %r6, %r4; mul.wide.u32 %d3, %r6, 4; add.u64 %d3, %d0, %d3;
again:
  setp.ne.u32 %p0, %r5, 0; @%p0 bra read;
  ld.volatile.global.u32 %r7, [%d3];
read:
  call sync, (%d1, %r3, %r4, %r5);
  @%p0 bra written;
  add.u32 %r7, %r7, 1; st.volatile.global.u32 [%d2], %r7;
written:
  call sync, (%d1, %r3, %r4, %r5);
  sub.u32 %r0, %r0, 1; setp.ne.u32 %p1, %r0, 0; @%p1 bra again;
  ret;
}
"""

def grid_sync():
    """A grid that meets by the place of its launch, twice in each of five rounds, and once more in another launch."""
    module = made(Handle, "cuModuleLoadData", GRID_SYNC + b"\0")
    blocks, rounds = 24, 5
    data = list(range(0, 100 * blocks, 100))
    memory = up("i", data)
    for _ in range(2):
        launch(module, "grid_sync", [blocks], [96], memory, rounds, together=True)
        finished("a grid that synchronises")
        data = turned(data, rounds)
        same(down("i", memory, blocks), data, "a grid that synchronises")


def turned(data, rounds):
    """What a ring of blocks has after rounds in which each takes what the next had, and one more."""
    for _ in range(rounds):
        data = [data[(at + 1) % len(data)] + 1 for at in range(len(data))]
    return data


def groups(module):
    """CUDA's own cooperative_groups: a grid that meets, and parts of blocks."""
    ring = list(range(0, 2400, 100))
    memory = up("i", ring)
    launch(module, "rounds", [len(ring)], [96], memory, 5, together=True)
    finished("rounds of a grid")
    same(down("i", memory, len(ring)), turned(ring, 5), "rounds of a grid")
    values = numbers(3000, -1000, 1000)
    data, sums = up("i", values), up("i", [0] * 8)
    launch(module, "subtract_sum", [8], [128], data, sums, len(values), together=True)
    finished("a sum of a grid")
    same(down("i", data, len(values)), [value - sum(values) for value in values], "a sum of a grid")
    values = numbers(128, -100, 100)
    out = up("i", [0] * (6 * len(values)))
    launch(module, "parts", [1], [len(values)], up("i", values), out)
    finished("parts of a block")
    same(down("i", out, 6 * len(values)), [word for at in range(len(values)) for word in parts(values, at)], "parts")


def parts(values, at):
    """What a thread of `parts` leaves."""

    def around(size):
        first = at // size * size
        return first, values[first : first + size]

    first, eight = around(8)
    alike = [number for number, value in enumerate(around(16)[1], around(16)[0]) if (value ^ values[at]) & 3 == 0]
    positive = [number for number, value in enumerate(around(32)[1], around(32)[0]) if value > 0]
    return [
        max(eight),
        sum(values[first:at]),
        sum(value for value in around(32)[1] if (value ^ values[at]) & 1 == 0),
        len(alike) * 100 + alike.index(at),
        values[positive[0]] * 64 + positive.index(at) if values[at] > 0 else -1,
        (values[at + 3] if at % 8 < 5 else values[at]) - at // 8,
    ]


def functions(module):
    """What kernels print, and the memory that they take while they run."""
    launch(module, "printed", [2], [40], 4)
    finished("printing")
    out = up("i", [0] * 96)
    launch(module, "heap", [2], [48], out, 3)
    finished("memory for each thread")
    same(down("i", out, 96), [sum(at + i for turn in range(3) for i in range(at % 48 % 7 + 1 + turn * 50)) for at in range(96)], "heap")
    launch(module, "too_much", [1], [1], out)
    finished("too much memory")
    same(down("i", out, 1), [2], "too much memory")


def own_kernels():
    """Copies on the device and fills are kernels of libcuda's."""
    for size in (1, 4097, 100_003, 4 << 20):
        data = random.Random(size).randbytes(size)
        source, target = up("B", data), made(Pointer, "cuMemAlloc_v2", Size(size))
        call("cuMemcpyDtoD_v2", target, source, Size(size))
        same(bytes(down("B", target, size)), data, f"{size} bytes on the device")
    for name, kind, value in (("cuMemsetD8_v2", "B", 0x5A), ("cuMemsetD16_v2", "H", 0x1234), ("cuMemsetD32_v2", "I", 0xDEADBEEF)):
        count = 300_007
        memory = up(kind, [0] * count)
        call(name, memory, value, Size(count))
        same(down(kind, memory, count), [value] * count, name)
    pitch = Size()
    memory = made(Pointer, "cuMemAllocPitch_v2", ctypes.byref(pitch), Size(1000), Size(77), 4)
    call("cuMemsetD2D32_v2", memory, pitch, 0xABCD1234, Size(250), Size(77))
    for row in (0, 5, 76):
        same(down("I", Pointer(memory.value + row * pitch.value), 250), [0xABCD1234] * 250, f"row {row}")


def special(module):
    """Square roots, exponentials and local memory, as far as they are exact."""
    n, count = 300, 3
    values = [value / 64 for value in numbers(n * count, -256, 257)]
    out = up("f", [0] * (n * count))
    launch(module, "softmax", [count], [128], up("f", values), out, n)
    finished("softmax")
    found = down("f", out, n * count)
    for row in range(count):
        part = found[row * n : (row + 1) * n]
        if abs(sum(part) - 1) > 1e-4 or min(part) < 0:
            sys.exit(f"softmax: row {row} sums up to {sum(part)}")
        largest = max(range(n), key=lambda at: values[row * n + at])
        if part[largest] != max(part):
            sys.exit(f"softmax: the largest of row {row} is elsewhere")


def mistake(name):
    module, memory = load("mistakes"), up("i", [3, -1] * 32)
    launch(module, name, [1], [64], memory, memory, 64)
    print(name, cuda.cuCtxSynchronize())


call("cuInit", 0)
if len(sys.argv) > 2:
    made(Handle, "cuCtxCreate_v2", YIELDS, 0)
    both = {"groups": groups, "functions": functions}
    machine_code = lambda name: made(Handle, "cuModuleLoadData", (FOLDER / f"{name}.cubin").read_bytes())
    if part := both.get(sys.argv[2]):
        part(load(sys.argv[2]))
        part(machine_code(sys.argv[2]))
        print(sys.argv[2])
    elif sys.argv[2] == "asserted":
        # libcuda tells of it there.
        os.dup2(1, 2)
        launch(machine_code("functions"), "checked", [1], [64], 40)
        print("asserted", cuda.cuCtxSynchronize())
    elif sys.argv[2] == "endless":
        endless()
    else:
        mistake(sys.argv[2])
    sys.exit()
count = made(ctypes.c_int, "cuDeviceGetCount").value
for device in range(count):
    context = made(Handle, "cuCtxCreate_v2", YIELDS, device)
    own_kernels()
    classic = load("classic")
    for part in (reduction, matmul, histogram, bitonic, divergent, special, graph, two_streams):
        part(classic)
    warps = load("warps")
    cooperative(warps)
    waiting(warps)
    grid_sync()
    version = made(ctypes.c_int, "cuDriverGetVersion").value
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: of Hopper conditions do not run yet.
    if version >= 12030 and made(ctypes.c_int, "cuDeviceGetAttribute", 75, device).value < 9:
        conditions()
    # So many parameters are of CUDA 12.1 on.
    if version >= 12010:
        text = (FOLDER.parent / "by-hand/banks.ptx").read_bytes()
        banks(made(Handle, "cuModuleLoadData", text + b"\0"))
    call("cuCtxDestroy_v2", context)
print("devices:", count)
