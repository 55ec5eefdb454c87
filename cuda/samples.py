#!/usr/bin/env python3
"""Builds and runs NVIDIA's cuda-samples in the emulator, and writes what came of each into a page of the docs.

    cuda/samples.py SAMPLES CUDA BIN [--page FILE] [--jobs N] [--seconds N] [NAME…]

SAMPLES is a tree of cuda-samples 13, CUDA a folder of `toolkit13.sh`, BIN the folder with `nvabi` and its libraries.
Each sample is built by NVIDIA's nvcc of the sources and with the options that its CMakeLists.txt names, for sm_80: so
that without separate compilation, which leaves machine code alone, it has PTX. Samples that need a display or a
library of NVIDIA's other than the runtime and NVRTC are named, not built.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What samples look for or link, and what it is called on the page.
NEEDED = {
    "GLUT": "a display", "OpenGL": "a display", "EGL": "a display", "X11": "a display", "Vulkan": "a display",
    "cublas": "cuBLAS", "cusparse": "cuSPARSE", "cusolver": "cuSOLVER", "cufft": "cuFFT", "curand": "cuRAND",
    "nppc": "NPP", "nppisu": "NPP", "nppif": "NPP", "nvjpeg": "nvJPEG", "FreeImage": "FreeImage", "cudla": "cuDLA",
    "NVSCI": "NvSci", "nvJitLink": "nvJitLink", "MPI": "MPI", "OpenMP": "-Xcompiler=-fopenmp", "cuda_driver": "-lcuda",
    "nvrtc": "-lnvrtc", "cudart": None, "CUDAToolkit": None,
}


class Sample:
    """What the CMakeLists.txt of a sample says."""

    def __init__(self, folder):
        text = re.sub(r"#.*", "", (folder / "CMakeLists.txt").read_text())
        found = re.search(r"add_executable\(\s*(\S+)\s+([^)]*)\)", text)
        self.name = folder.name
        self.sources = found[2].split() if found else []
        asked = set(re.findall(r"find_package\(\s*(\w+)|CUDA::(\w+)", text))
        asked = [NEEDED.get(name, name) for pair in asked for name in pair if name]
        self.libraries = [name for name in asked if name and name.startswith("-")]
        self.needs = sorted({name for name in asked if name and not name.startswith("-")})
        self.separate = "CUDA_SEPARABLE_COMPILATION ON" in text and "cudadevrt" in text or "cdp" in folder.name
        # Kernels that the program loads from a file.
        self.fatbin = re.search(r'set\(CUDA_FATBIN_FILE\s+"[^"]*/([^"/]+)"', text)
        self.kernels = re.search(r'set\(CUDA_KERNEL_SOURCE\s+"[^"]*/([^"/]+)"', text)


def build(folder, sample, options):
    """Builds a sample where it lies; returns what failed, or None."""
    if options.built and os.access(folder / sample.name, os.X_OK):
        return None
    common = os.path.relpath(options.samples.resolve() / "Common", folder)
    flags = ["-std=c++17", "-lineinfo", "--extended-lambda", f"-I{common}", "-I."]
    flags += [f"-I{common}/UtilNPP"] if "NPP" in sample.name else []
    nvcc = ["timeout", "-k", "5", "300", options.cuda / "bin/nvcc"]
    commands = []
    if sample.fatbin and sample.kernels:
        commands.append([*nvcc, *flags, "-fatbin", "-arch=sm_80", sample.kernels[1], "-o", sample.fatbin[1]])
    # PTX is what runs: that machine code is not made saves minutes for some samples.
    machine = ["-rdc=true", "-arch=sm_80"] if sample.separate else ["-gencode=arch=compute_80,code=compute_80"]
    libraries = [f"-L{options.drivers}", f"-L{options.cuda}/lib64", *sample.libraries]
    commands.append([*nvcc, *flags, *machine, *sample.sources, "-o", sample.name, *libraries])
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        (folder / "build.log").write_text(done.stdout + done.stderr)
        if done.returncode in (124, 137):
            return "the compiler needs more than 300 s"
        if done.returncode:
            lines = (done.stderr + done.stdout).splitlines()
            wrong = [line for line in lines if re.search(r"error|undefined reference|cannot find", line)]
            return (wrong or lines or ["nvcc failed"])[0].replace(str(folder) + "/", "")
    return None


def run(program, options):
    """Runs a program in the emulator; returns its exit status, or a word on why it was ended, and what it wrote.

    The limit is processor time, which other work on the machine does not shorten: who uses it up is slow. Who waits for
    ten times as long without using it up, hangs.
    """
    command = ["timeout", "-k", "5", str(10 * options.seconds), options.bin / "nvabi", "emu", "--", f"./{program.name}"]
    # NVRTC is beside the runtime, whose stand-in comes first all the same.
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{options.cuda}/lib64", CUDA_PATH=str(options.cuda))
    quiet = {"capture_output": True, "stdin": subprocess.DEVNULL}
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds + 5))
    done = subprocess.run(command, cwd=program.parent, env=environment, preexec_fn=limit, **quiet)
    output = (done.stdout + done.stderr).decode(errors="replace")
    (program.parent / "run.log").write_text(output)
    if done.returncode in (124, 137):
        return "hangs", output
    return ("too long" if done.returncode == 128 + signal.SIGXCPU else done.returncode), output


def why(status, output):
    """The line of a run's output that says most about how it ended."""
    said = ("cuGetExportTable", "Emulated ./")
    lines = [line for line in output.splitlines() if line.strip() and not any(word in line for word in said)]
    for pattern in (r"nvabi-emu: .*", r"nvabi emu: .*", r".*\b(?:ailed|rror|FAILED|ERROR)\b.*", r".*waiv.*"):
        found = [line for line in lines if re.fullmatch(pattern, line.strip())]
        if found:
            return found[0].strip()
    return lines[-1].strip() if lines else ""


def outcome(folder, options):
    """A row of the page: the sample, what came of it, and a word on why."""
    sample = Sample(folder)
    name = sample.name
    if sample.needs:
        return name, "not tried", f"needs {', '.join(sample.needs)}"
    if not sample.sources:
        return name, "not tried", "has no program of its own"
    failed = build(folder, sample, options)
    if failed:
        return name, "not built", failed
    status, output = run(folder / name, options)
    errors = re.search(r"(\d+) errors?", output.splitlines()[-1]) if output else None
    if status in ("too long", "hangs"):
        return name, status, f"{options.seconds} s of processor time" if status == "too long" else why(0, output)
    if status == 0:
        return name, "runs", ""
    found = errors and errors.group(1) != "0"
    return name, "findings" if found else f"exit status {status}", why(status, output)


def page(rows):
    """The page, whose first table counts and whose second lists."""
    counts = {}
    for _, what, _ in rows:
        counts[what] = counts.get(what, 0) + 1
    lines = ["| outcome | samples |", "|---|--:|"]
    lines += [f"| {what} | {count} |" for what, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    lines += ["", "| sample | outcome | |", "|---|---|---|"]
    for name, what, reason in rows:
        reason = reason.replace("|", "\\|")
        room = 120 - len(f"| {name} | {what} |  |")
        lines.append(f"| {name} | {what} | {reason if len(reason) <= room else reason[:room - 1] + '…'} |")
    return "\n".join(lines) + "\n"


def merged(table, rows):
    """Rows in the place of those of the same samples in a page's table."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("| ")]
    known = [tuple(cell.strip().replace(r"\|", "|") for cell in row) for row in cells if len(row) == 3]
    new = {row[0]: row for row in rows}
    kept = [row for row in known if row[0] not in new and row[0] != "sample"]
    return sorted(kept + rows, key=lambda row: row[0].lower())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", type=pathlib.Path)
    parser.add_argument("cuda", type=pathlib.Path)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="only these samples; of a page the others' rows stay")
    parser.add_argument("--page", type=pathlib.Path, help="a page of the docs; its tables are renewed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="processor time that a sample may use")
    parser.add_argument("--built", action="store_true", help="run what was built before as it is")
    options = parser.parse_intermixed_args()
    options.cuda, options.bin = options.cuda.resolve(), options.bin.resolve()
    drivers = tempfile.TemporaryDirectory()
    options.drivers = pathlib.Path(drivers.name)
    (options.drivers / "libcuda.so").symlink_to(options.bin / "libnvabi_cuda.so")
    folders = sorted({path.parent for path in options.samples.resolve().glob("Samples/*/*/CMakeLists.txt")})
    if options.names:
        folders = [folder for folder in folders if folder.name in options.names]

    def one(folder):
        name, what, reason = outcome(folder, options)
        # Where things lie on this machine is nobody's business.
        for path in [folder, options.cuda, HERE, options.samples.resolve()]:
            reason = reason.replace(f"{path}/", "")
        row = name, what, reason
        print("\t".join(row), flush=True)
        return row

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        rows = sorted(pool.map(one, folders), key=lambda row: row[0].lower())
    if options.page:
        start = "<!-- by cuda/samples.py -->\n"
        head, _, table = (options.page.read_text() if options.page.exists() else "").partition(start)
        if options.names:
            rows = merged(table, rows)
        options.page.write_text(head + start + page(rows))


if __name__ == "__main__":
    sys.exit(main())
