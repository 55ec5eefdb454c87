"""Where programs run: how they are built for it, and what it says of them."""

import os
import re

# What machine code is made for; of other cards that of the first, which they have to run as well.
ARCHITECTURES = {"a100": 80, "rtx3090": 86, "l4": 89, "h100": 90}


class Emulator:
    """nvabi's own libcuda, libcudart and cuBLAS, which run PTX."""

    # PTX is what runs: that machine code is not made saves minutes for some programs.
    code = ["-gencode=arch=compute_80,code=compute_80"]
    # Where units are linked nvcc leaves machine code alone.
    linked = ["-rdc=true", "-arch=sm_80"]
    # What programs are linked with, and the emulator's libraries in their place.
    libraries = {
        "libcuda.so": "libnvabi_cuda.so",
        "libcublas.so": "libnvabi_cublas13.so",
        "libcublasLt.so": "libnvabi_cublaslt13.so",
    }
    # Lines that say most about how a run ended, the best first.
    says = [r"nvabi-emu: .*", r"nvabi emu: .*"]

    def __init__(self, options):
        self.options = options
        self.libraries = {name: options.bin / library for name, library in self.libraries.items()}

    def lacks(self, library):
        """Whether there is no such library of CUDA to link a program with."""
        return library not in ("cuda", "cudart", "nvrtc", "cublas")

    def command(self, gpus):
        return [self.options.bin / "nvabi", "emu", "--devices", str(gpus), "--"]

    def environment(self):
        # NVRTC is beside the runtime, whose stand-in comes first all the same.
        return {"LD_LIBRARY_PATH": f"{self.options.cuda}/lib64"}

    def finding(self, output):
        """What it found wrong in a program that may have ended well; nothing otherwise."""
        last = output.splitlines()[-1:]
        errors = re.search(r"(\d+) errors?", last[0]) if last else None
        return errors and errors.group(1) != "0"


class Simulator:
    """A simulated GPU, NVIDIA's libcuda, CUDA's static runtime: machine code runs, and what libcuda makes of PTX."""

    says = [r"(?!left-at-exit)[a-z]+(-[a-z]+)* +\[\d+\] .*"]

    def __init__(self, options):
        self.options = options
        # Machine code for the card, or PTX that libcuda compiles for it.
        arch = 80 if options.ptx else ARCHITECTURES.get(options.gpu, 80)
        kind = "compute" if options.ptx else "sm"
        self.code = [f"-gencode=arch=compute_{arch},code={kind}_{arch}", "-cudart", "static"]
        # What starts kernels from kernels is linked by default.
        if self.lacks("cudadevrt"):
            self.code += ["-cudadevrt", "none"]
        self.linked = ["-rdc=true", *self.code]
        self.libraries = {"libcuda.so": options.real / "lib/libcuda.so.1"}

    def lacks(self, library):
        if library == "cuda":
            return False
        # An archive of nothing has the eight bytes of every archive.
        files = (self.options.cuda / "lib64" / f"lib{library}{end}" for end in (".so", ".a", "_static.a"))
        return not any(file.exists() and file.stat().st_size > 8 for file in files)

    def command(self, gpus):
        machine = ["--tag", self.options.real.name, "--gpu", self.options.gpu, "--gpus", str(gpus)]
        return [self.options.bin / "nvabi", "rm", "sim", *machine, "--"]

    def environment(self):
        return {"LD_LIBRARY_PATH": os.pathsep.join([f"{self.options.real}/lib", f"{self.options.cuda}/lib64"])}

    def finding(self, output):
        return re.search(r"(?m)^ *kernel-finding ", output)
