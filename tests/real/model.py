"""Random copies, fills and prefetches of memory of every kind, in several streams and threads, against a model of it.

    model.py SEED STEPS THREADS

Each thread has a context and memory of its own. What is not as in the model ends it with 1, and names the seed, the
thread, the step, and what was done before.
"""
import ctypes
import os
import random
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
Size, Pointer, Handle = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
SIZES = (1, 7, 100, 4096, 4097, 70000, 300000, 2 << 20, (3 << 20) + 11)
# Of a program's own pages: a copy of them may go on when the call is back, so each is waited for.
PAGEABLE = "pageable"
# What a program reads and writes by itself.
SEEN = ("pinned", "managed", PAGEABLE)
FILLS = {
    1: ("cuMemsetD8Async", ctypes.c_ubyte),
    2: ("cuMemsetD16Async", ctypes.c_ushort),
    4: ("cuMemsetD32Async", ctypes.c_uint),
}


def end(text):
    """Ends all threads."""
    print(text, file=sys.stderr, flush=True)
    os._exit(1)


def call(name, *args):
    if result := getattr(cuda, name)(*args):
        end(f"{name} ended with {result}")


def made(kind, name, *args):
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value


class Memory:
    """Bytes of one kind, and what they must be."""

    def __init__(self, kind, data, stream):
        self.kind, self.model, self.stream = kind, bytearray(data), stream
        size = Size(len(data))
        if kind == PAGEABLE:
            self.own = ctypes.create_string_buffer(len(data))
            self.at = ctypes.addressof(self.own)
        elif kind == "pinned":
            self.at = made(Handle, "cuMemAllocHost_v2", size).value
        elif kind == "managed":
            self.at = made(Pointer, "cuMemAllocManaged", size, 1).value
        elif kind == "pool":
            self.at = made(Pointer, "cuMemAllocAsync", size, stream).value
            call("cuStreamSynchronize", stream)
        else:
            self.at = made(Pointer, "cuMemAlloc_v2", size).value
        self.store(0, data)

    def store(self, at, data):
        self.model[at:at + len(data)] = data
        if self.kind in SEEN:
            ctypes.memmove(self.at + at, data, len(data))
        else:
            call("cuMemcpyHtoD_v2", Pointer(self.at + at), data, Size(len(data)))

    def bytes(self):
        call("cuCtxSynchronize")
        if self.kind in SEEN:
            return ctypes.string_at(self.at, len(self.model))
        back = ctypes.create_string_buffer(len(self.model))
        call("cuMemcpyDtoH_v2", back, Pointer(self.at), Size(len(self.model)))
        return back.raw

    def free(self):
        call("cuCtxSynchronize")
        if self.kind == "pinned":
            call("cuMemFreeHost", Handle(self.at))
        elif self.kind == "pool":
            call("cuMemFreeAsync", Pointer(self.at), self.stream)
        elif self.kind != PAGEABLE:
            call("cuMemFree_v2", Pointer(self.at))


class Program:
    """What one thread does."""

    def __init__(self, seed, thread, device):
        self.random, self.name, self.device = random.Random(f"{seed} {thread}"), f"seed {seed}, thread {thread}", device
        self.context = made(Handle, "cuCtxCreate_v2", 0, device)
        # One beside the one that all contexts have, which does not wait for it.
        self.streams = [Handle(0)] + [made(Handle, "cuStreamCreate", flags) for flags in (0, 1, 1)]
        self.last, self.done, self.all = self.streams[0], [], []
        for _ in range(6):
            self.alloc()

    def alloc(self):
        kind = self.random.choice(("device", "device", "pool", *SEEN))
        data = self.random.randbytes(self.random.choice(SIZES))
        self.all.append(Memory(kind, data, self.streams[1]))

    def part(self, memory, most=None, unit=1):
        """A place in memory, and how many units from there."""
        count = self.random.randint(1, min(len(memory.model), most or len(memory.model)) // unit)
        return self.random.randint(0, len(memory.model) // unit - count) * unit, count

    def next_stream(self):
        """A stream, which waits for what was done before."""
        stream = self.random.choice(self.streams)
        event = made(Handle, "cuEventCreate", 2)
        call("cuEventRecord", event, self.last)
        call("cuStreamWaitEvent", stream, event, 0)
        call("cuEventDestroy_v2", event)
        self.last = stream
        return stream

    def copy(self, to, stream):
        source = self.random.choice([it for it in self.all if it is not to])
        at, count = self.part(to, len(source.model))
        begin = self.random.randint(0, len(source.model) - count)
        self.done.append(f"{count} bytes of {source.kind} at {begin} to {to.kind} at {at}")
        call("cuMemcpyAsync", Pointer(to.at + at), Pointer(source.at + begin), Size(count), stream)
        to.model[at:at + count] = source.model[begin:begin + count]
        if PAGEABLE in (to.kind, source.kind):
            call("cuCtxSynchronize")

    def fill(self, memory, stream):
        unit = self.random.choice([unit for unit in FILLS if unit <= len(memory.model) and memory.at % unit == 0])
        at, count = self.part(memory, unit=unit)
        value, (name, kind) = self.random.getrandbits(8 * unit), FILLS[unit]
        self.done.append(f"{count} times {unit} bytes to {memory.kind} at {at}")
        call(name, Pointer(memory.at + at), kind(value), Size(count), stream)
        memory.model[at:at + count * unit] = value.to_bytes(unit, "little") * count

    def fill_lines(self, memory, stream):
        pitch = self.random.randint(1, min(512, len(memory.model)))
        width, lines = self.random.randint(1, pitch), self.random.randint(1, min(50, len(memory.model) // pitch))
        at = self.random.randint(0, len(memory.model) - pitch * lines)
        value = self.random.getrandbits(8)
        self.done.append(f"{lines} lines of {width} bytes, each {pitch} on, to {memory.kind} at {at}")
        place = Pointer(memory.at + at), Size(pitch)
        call("cuMemsetD2D8Async", *place, ctypes.c_ubyte(value), Size(width), Size(lines), stream)
        for line in range(at, at + pitch * lines, pitch):
            memory.model[line:line + width] = bytes([value]) * width

    def prefetch(self, memory, stream):
        if memory.kind == "managed":
            self.done.append("prefetch")
            to = self.random.choice((-1, self.device))  # CU_DEVICE_CPU
            call("cuMemPrefetchAsync", Pointer(memory.at), Size(len(memory.model)), to, stream)

    def store(self, memory, _):
        if memory.kind in SEEN:
            call("cuCtxSynchronize")
            at, count = self.part(memory, 100)
            memory.store(at, self.random.randbytes(count))

    def replace(self, memory, _):
        memory.free()
        self.all.remove(memory)
        self.alloc()

    def check(self, memory, _=None):
        found, expected = memory.bytes(), bytes(memory.model)
        if found != expected:
            at = next(at for at, (a, b) in enumerate(zip(found, expected)) if a != b)
            what = f"byte {at} of {len(found)} of {memory.kind} is {found[at]:#x}, not {expected[at]:#x}"
            end(f"{self.name}: {what}, after {len(self.done)} steps, the last of which were {self.done[-6:]}")

    def step(self):
        memory, stream = self.random.choice(self.all), self.next_stream()
        kinds = [self.copy] * 8 + [self.store, self.replace] + [self.check] * 4
        # A program's own pages are filled by nobody else.
        if memory.kind != PAGEABLE:
            kinds += [self.fill] * 4 + [self.fill_lines] * 2 + [self.prefetch]
        self.random.choice(kinds)(memory, stream)

    def finish(self):
        for memory in self.all:
            self.check(memory)
            memory.free()
        call("cuCtxDestroy_v2", self.context)


def failed(args):
    """What goes wrong in one thread is no success of the others."""
    sys.excepthook(args.exc_type, args.exc_value, args.exc_traceback)
    end("a thread failed")


def run(seed, steps, thread, device):
    program = Program(seed, thread, device)
    for _ in range(steps):
        program.step()
    program.finish()


threading.excepthook = failed
seed, steps, count = map(int, sys.argv[1:])
call("cuInit", 0)
devices = made(ctypes.c_int, "cuDeviceGetCount").value
threads = [threading.Thread(target=run, args=(seed, steps, thread, thread % devices)) for thread in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("devices:", devices)
