"""A client for an Orin: launches kernels of a cubin by descriptions (QMD 3.0), and compares what is in memory."""
import struct
import sys
import time

from orin import allocate, compute, map_buffer, method, notifier, semaphore_va, submit, wait

# Where parameters begin in bank 0.
PARAMETERS = 0x160


def sections(elf):
    """The bytes of each section, by its name."""
    start, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + at * size) for at in range(count)]
    texts = headers[names][4]

    def name(at):
        return elf[texts + at:elf.index(b"\0", texts + at)].decode()

    return {name(header[0]): elf[header[4]:header[4] + header[5]] for header in headers}


cubin = sections(open(sys.argv[1], "rb").read())
SIZE = 1 << 16
code_fd, code = allocate(SIZE)
code_va = map_buffer(code_fd)
constants_fd, constants = allocate(SIZE)
constants_va = map_buffer(constants_fd)
qmd_fd, qmds = allocate(SIZE)
qmd_va = map_buffer(qmd_fd)
launches = 0


def describe(fields):
    """256 bytes with each value from its lowest bit on."""
    return sum(value << low for low, value in fields).to_bytes(256, "little")


def launch(kernel, grid, block, shared, *parameters):
    """Launches a kernel; the semaphore gets the number of the launch."""
    global launches
    launches += 1
    at = (launches - 1) * 0x2000
    text = cubin[".text." + kernel]
    code[at:at + len(text)] = text
    bank = struct.pack("<6I", *block, *grid).ljust(PARAMETERS, b"\0") + struct.pack(*parameters)
    constants[at:at + len(bank)] = bank
    fields = [(580, 3), (128, 0x3F), (384, grid[0]), (416, grid[1]), (448, grid[2]),
              (592, block[0]), (608, block[1]), (624, block[2]), (544, shared), (648, 64), (1536, code_va + at),
              (640, 1), (1024, constants_va + at), (1075, len(bank) + 15 >> 4),
              (823, 1), (768, semaphore_va), (832, launches)]
    qmds[at:at + 256] = describe(fields)
    submit(method(1, 0, compute) + method(1, 0x2B4, qmd_va + at >> 8) + method(1, 0x2C0, 9))


# a × b, with shared memory and barriers. Numbers are small, so that sums are exact in any order.
N = 64
floats = [float(i % 7) for i in range(N * N)]
buffers = [allocate(N * N * 4) for _ in range(3)]
a, b, c = [map_buffer(fd) for fd, _ in buffers]
for _, memory in buffers[:2]:
    memory[:] = struct.pack(f"<{N * N}f", *floats)
launch("matmul", (N // 16, N // 16, 1), (16, 16, 1), 2048, "<QQQI", a, b, c, N)
wait(1)
expected = [sum(floats[row * N + k] * floats[k * N + column] for k in range(N))
            for row in range(N) for column in range(N)]
assert struct.unpack(f"<{N * N}f", buffers[2][1][:]) == tuple(expected), "the product is wrong"

# A histogram, with atomics in shared and in global memory.
COUNT = 10_000
values = [i * i % 251 for i in range(COUNT)]
(data_fd, data), (bins_fd, bins) = allocate(SIZE), allocate(4096)
data[:COUNT] = bytes(values)
launch("histogram", (4, 1, 1), (256, 1, 1), 1024, "<QQI", map_buffer(data_fd), map_buffer(bins_fd), COUNT)
wait(2)
counted = [values.count(value) for value in range(256)]
assert list(struct.unpack("<256I", bins[:1024])) == counted, "the counts are wrong"
assert notifier[:16] == bytes(16)

# Where nothing is mapped, the channel fails: NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT.
launch("histogram", (4, 1, 1), (256, 1, 1), 1024, "<QQI", 0x12345000, map_buffer(bins_fd), COUNT)
end = time.monotonic() + 5
while notifier[14:16] == bytes(2):
    assert time.monotonic() < end, "no error comes"
assert struct.unpack_from("<I", notifier, 8)[0] == 31, notifier[:16].hex()
print("passed")
