"""Rodinia's programs for CUDA, with its own options and inputs that are made here."""

import math
import random
import struct

from program import Program

# Names that CUDA 13 has no more, and what takes their place there. Members of cudaDeviceProp are only printed.
OLD = [
    "-DcudaThreadSynchronize=cudaDeviceSynchronize", "-DcudaThreadExit=cudaDeviceReset", "-DclockRate=minor",
    "-DdeviceOverlap=asyncEngineCount", "-DcomputeMode=integrated",
]
FLAGS = ["-O2", "-lineinfo", "-w"]


def numbers(count, low, high, seed):
    """A number a line."""
    chosen = random.Random(seed)
    return lambda path: path.write_text("".join(f"{chosen.uniform(low, high):.6f}\n" for _ in range(count)))


def graph(nodes):
    """A tree with some edges more, as bfs reads it."""
    def write(path):
        chosen = random.Random(1)
        edges = [[chosen.randrange(nodes) for _ in range(2)] for _ in range(nodes)]
        for node in range(1, nodes):
            edges[(node - 1) // 2].append(node)
        lines, start = [str(nodes)], 0
        for each in edges:
            lines.append(f"{start} {len(each)}")
            start += len(each)
        lines += ["0", str(start)]
        lines += [f"{to} {chosen.randrange(1, 10)}" for each in edges for to in each]
        path.write_text("\n".join(lines) + "\n")
    return write


def mesh(side):
    """Cells of a closed surface, each with its area, four neighbours and their normals, counted from one."""
    def write(path):
        lines = [str(side * side)]
        sides = [(1, 0), (-1, 0), (0, 1), (0, -1)]
        for at in range(side * side):
            row, column = divmod(at, side)
            cell = ["1.0"]
            for down, right in sides:
                cell += [str((row + down) % side * side + (column + right) % side + 1), str(right), str(down), "0"]
            lines.append(" ".join(cell))
        path.write_text("\n".join(lines) + "\n")
    return write


def keys(count):
    return lambda path: path.write_text("\n".join(str(number) for number in [count, *range(count)]) + "\n")


def text(words):
    return lambda path: path.write_text(words)


def letters(count):
    """Bytes of which some are much more frequent than others."""
    chosen = random.Random(2)
    return lambda path: path.write_bytes(bytes(min(255, int(chosen.expovariate(0.05))) for _ in range(count)))


def storms(count):
    """Records of 49 characters, with latitude and longitude where nn looks for them."""
    def write(path):
        chosen = random.Random(3)
        row = "2012 {:2d} {:2d} 12 {:3d} {:9s} {:5.1f} {:5.1f} {:4d} {:4d}"
        lines = []
        for at in range(count):
            where = chosen.uniform(7, 70), chosen.uniform(0, 358)
            lines.append(row.format(at % 12 + 1, at % 28 + 1, at % 999, "STORM", *where, 30, 900)[:48].ljust(48))
        path.write_text("\n".join(lines) + "\n")
    return write


def bitmap(side):
    """A picture of 24 bits, as its header says."""
    def write(path):
        pixels = bytes((x * y + channel * 40) % 256 for y in range(side) for x in range(side) for channel in range(3))
        header = struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54)
        header += struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, len(pixels), 0, 0, 0, 0)
        path.write_bytes(header + pixels)
    return write


def picture(width, height):
    """A picture of grey numbers, in letters."""
    def write(path):
        rows = [" ".join(str(100 + (x * 7 + y * 13) % 100) for x in range(width)) for y in range(height)]
        path.write_text(f"P2\n{width} {height}\n255\n" + "\n".join(rows) + "\n")
    return write


def film(width, height, frames):
    """Grey pictures as an AVI of uncompressed frames: a bright ring on a dark ground, which moves."""
    def chunk(name, data):
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def write(path):
        size = width * height
        pictures = []
        for frame in range(frames):
            middle = width / 2 + frame, height / 2
            far = lambda x, y: abs(math.hypot(x - middle[0], y - middle[1]) - height / 4)
            pictures.append(bytes(max(20, int(220 - 12 * far(x, y))) for y in range(height) for x in range(width)))
        main = struct.pack("<14I", 33333, 0, 0, 0x10, frames, 0, 1, size, width, height, 0, 0, 0, 0)
        stream = struct.pack("<4s4sIHHIIIIIIII4h", b"vids", b"RGB ", 0, 0, 0, 0, 1, 30, 0, frames, size, 0, 0,
                             0, 0, width, height)
        form = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 0, size, 0, 0, 0, 0)
        headers = chunk(b"avih", main)
        headers += chunk(b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", form))
        movie = b"movi" + b"".join(chunk(b"00db", each) for each in pictures)
        index, offset = b"", 4
        for each in pictures:
            index += b"00db" + struct.pack("<III", 0x10, offset, len(each))
            offset += 8 + len(each) + len(each) % 2
        body = b"AVI " + chunk(b"LIST", b"hdrl" + headers) + chunk(b"LIST", movie) + chunk(b"idx1", index)
        path.write_bytes(chunk(b"RIFF", body))
    return write


# What cfd does 2000 times.
ITERATIONS = [(r"(#define iterations|const int iterations =) *\d+", r"\1 4")]
CFD = ["small.txt"], {"small.txt": mesh(24)}
# Name, folder, sources, options of nvcc, arguments, inputs.
LIST = [
    ("backprop", "backprop", ["backprop.c", "facetrain.c", "imagenet.c", "backprop_cuda.cu"], [], ["1024"], {}),
    ("bfs", "bfs", ["bfs.cu"], ["-I../util"], ["graph.txt"], {"graph.txt": graph(2000)}),
    ("b+tree", "b+tree", ["main.c", "kernel/kernel_gpu_cuda_wrapper.cu", "kernel/kernel_gpu_cuda_wrapper_2.cu",
                          "util/timer/timer.c", "util/num/num.c", "util/cuda/cuda.cu"], [],
     ["file", "keys.txt", "command", "command.txt"],
     {"keys.txt": keys(4000), "command.txt": text("j 60 30\nk 100\n")}),
    ("cfd euler3d", "cfd", ["small-euler3d.cu"], ["-I../hybridsort"], *CFD),
    ("cfd euler3d_double", "cfd", ["small-euler3d_double.cu"], ["-I../hybridsort"], *CFD),
    ("cfd pre_euler3d", "cfd", ["small-pre_euler3d.cu"], ["-I../hybridsort"], *CFD),
    ("cfd pre_euler3d_double", "cfd", ["small-pre_euler3d_double.cu"], ["-I../hybridsort"], *CFD),
    ("dwt2d", "dwt2d", ["main.cu", "dwt.cu", "components.cu", "dwt_cuda/fdwt53.cu", "dwt_cuda/fdwt97.cu",
                        "dwt_cuda/common.cu", "dwt_cuda/rdwt97.cu", "dwt_cuda/rdwt53.cu"], ["-I."],
     ["small.bmp", "-d", "192x192", "-f", "-5", "-l", "3"], {"../../data/dwt2d/small.bmp": bitmap(192)}),
    ("dwt2d of 9/7", "dwt2d", ["main.cu", "dwt.cu", "components.cu", "dwt_cuda/fdwt53.cu", "dwt_cuda/fdwt97.cu",
                               "dwt_cuda/common.cu", "dwt_cuda/rdwt97.cu", "dwt_cuda/rdwt53.cu"], ["-I."],
     ["small.bmp", "-d", "192x192", "-f", "-9", "-l", "2"], {"../../data/dwt2d/small.bmp": bitmap(192)}),
    ("gaussian", "gaussian", ["gaussian.cu"], ["-I../util"], ["-s", "48"], {}),
    ("heartwall", "heartwall", ["main.cu", "AVI/avilib.c", "AVI/avimod.c"], ["-I./AVI"], ["small.avi", "2"],
     {"small.avi": film(656, 744, 3)}),
    ("hotspot", "hotspot", ["hotspot.cu"], ["-I../util"], ["64", "2", "4", "temp.txt", "power.txt", "output.txt"],
     {"temp.txt": numbers(64 * 64, 320, 340, 4), "power.txt": numbers(64 * 64, 0, 0.001, 5)}),
    ("hotspot3D", "hotspot3D", ["3D.cu"], [], ["64", "8", "4", "power.txt", "temp.txt", "output.txt"],
     {"temp.txt": numbers(64 * 64 * 8, 320, 340, 4), "power.txt": numbers(64 * 64 * 8, 0, 0.001, 5)}),
    ("huffman", "huffman", ["main_test_cu.cu", "stats_logger.cpp", "vlc_kernel_sm64huff.cu", "scan.cu",
                            "pack_kernels.cu", "cpuencode.cpp"], [], ["letters"], {"letters": letters(65536)}),
    ("hybridsort", "hybridsort", ["main.cu", "bucketsort.cu", "mergesort.cu"], ["-I."], ["r"], {}),
    ("kmeans", "kmeans", ["cluster.c", "getopt.c", "kmeans.c", "kmeans_clustering.c", "kmeans_cuda.cu", "rmse.c"],
     [], ["-o", "-i", "points.txt"], {}),
    ("lavaMD", "lavaMD", ["main.c", "kernel/kernel_gpu_cuda_wrapper.cu", "util/num/num.c", "util/timer/timer.c",
                          "util/device/device.cu"], ["-Xcompiler=-fopenmp"], ["-boxes1d", "2"], {}),
    ("leukocyte", "leukocyte/CUDA", ["find_ellipse_kernel.cu"], ["-c"], [], {}),
    ("lud", "lud/cuda", ["lud.cu", "lud_kernel.cu", "../common/common.c"], ["-I../common", "-I../../util"],
     ["-s", "96", "-v"], {}),
    ("mummergpu", "mummergpu/src", ["mummergpu.cu"], ["-c"], [], {}),
    ("myocyte", "myocyte", ["main.cu"], [], ["3", "1", "0"],
     {"../../data/myocyte/y.txt": numbers(91, 0.1, 1, 6), "../../data/myocyte/params.txt": numbers(16, 0.1, 1, 7)}),
    ("myocyte of many", "myocyte", ["main.cu"], [], ["3", "32", "1"],
     {"../../data/myocyte/y.txt": numbers(91, 0.1, 1, 6), "../../data/myocyte/params.txt": numbers(16, 0.1, 1, 7)}),
    ("nn", "nn", ["nn_cuda.cu"], ["-I../util"], ["storms.txt", "-r", "5", "-lat", "30", "-lng", "90"],
     {"storms.txt": text("storms.db\n"), "storms.db": storms(2000)}),
    ("nw", "nw", ["needle.cu"], ["-I../util"], ["128", "10"], {}),
    ("particlefilter_float", "particlefilter", ["ex_particle_CUDA_float_seq.cu"], ["-use_fast_math"],
     ["-x", "32", "-y", "32", "-z", "3", "-np", "256"], {}),
    ("particlefilter_naive", "particlefilter", ["ex_particle_CUDA_naive_seq.cu"], ["-use_fast_math"],
     ["-x", "32", "-y", "32", "-z", "3", "-np", "256"], {}),
    ("pathfinder", "pathfinder", ["pathfinder.cu"], ["-I../util"], ["1000", "20", "4"], {}),
    ("srad_v1", "srad/srad_v1", ["main.cu"], [], ["2", "0.5", "64", "64"],
     {"../../../data/srad/image.pgm": picture(502, 458)}),
    ("srad_v2", "srad/srad_v2", ["srad.cu"], [], ["64", "64", "0", "31", "0", "31", "0.5", "2"], {}),
    ("streamcluster", "streamcluster", ["streamcluster_cuda_cpu.cpp", "streamcluster_cuda.cu",
                                        "streamcluster_header.cu"], [],
     ["4", "8", "8", "256", "256", "50", "none", "output.txt", "1"], {}),
]


# What a program prints whose result is not the one that it expects; it ends with status 0 all the same.
FAILS_WITH = {"lud": "dismatch", "huffman": "FAIL!"}


def programs(root, options):
    has_old = "clockRate" in (options.cuda / "include/driver_types.h").read_text()
    return [program(root / "cuda", options, [] if has_old else OLD, *row) for row in LIST]


def program(root, options, old, name, folder, sources, flags, arguments, inputs):
    binary = "nvabi-" + "".join(letter if letter.isalnum() else "-" for letter in name)
    copies = {source: (source.removeprefix("small-"), ITERATIONS) for source in sources if source.startswith("small-")}
    build = [*FLAGS, *options.machine.code, *old, *flags, *sources, "-o", binary, *options.libraries, "-lcuda"]
    inputs = {path: with_folder(write) for path, write in inputs.items()}
    fails_with = FAILS_WITH.get(name, "")
    return Program(name, root / folder, binary, [build], arguments, inputs, copies, fails_with=fails_with)


def with_folder(write):
    """Programs name folders of data that a script of Rodinia's would have fetched."""
    def make(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
    return make
