"""NVIDIA's cuda-samples 13: built of the sources and with the options that each CMakeLists.txt names, for sm_80.
Without separate compilation, which leaves machine code alone, each has PTX."""

import os
import re

from program import Program

# What samples look for or link, and what it is called on the page.
NEEDED = {
    "GLUT": "a display", "OpenGL": "a display", "EGL": "a display", "X11": "a display", "Vulkan": "a display",
    "cublas": "-lcublas", "cusparse": "cuSPARSE", "cusolver": "cuSOLVER", "cufft": "cuFFT", "curand": "cuRAND",
    "nppc": "NPP", "nppisu": "NPP", "nppif": "NPP", "nvjpeg": "nvJPEG", "FreeImage": "FreeImage", "cudla": "cuDLA",
    "NVSCI": "NvSci", "nvJitLink": "nvJitLink", "MPI": "MPI", "OpenMP": "-Xcompiler=-fopenmp -lgomp",
    "cuda_driver": "-lcuda", "nvrtc": "-lnvrtc", "cudart": None, "CUDAToolkit": None,
}


def programs(root, options):
    folders = sorted({path.parent for path in root.glob("Samples/*/*/CMakeLists.txt")})
    return [sample(root, folder, options) for folder in folders]


def sample(root, folder, options):
    text = re.sub(r"#.*", "", (folder / "CMakeLists.txt").read_text())
    found = re.search(r"add_executable\(\s*(\S+)\s+([^)]*)\)", text)
    sources = found[2].split() if found else []
    asked = set(re.findall(r"find_package\(\s*(\w+)|CUDA::(\w+)", text))
    asked = [NEEDED.get(name, name) for pair in asked for name in pair if name]
    libraries = sorted({word for name in asked if name and name.startswith("-") for word in name.split()})
    needs = sorted({name for name in asked if name and not name.startswith("-")})
    separate = "CUDA_SEPARABLE_COMPILATION ON" in text and "cudadevrt" in text or "cdp" in folder.name
    common = os.path.relpath(root / "Common", folder)
    flags = ["-std=c++17", "-lineinfo", "--extended-lambda", f"-I{common}", "-I."]
    named = re.findall(r"target_include_directories\(\s*\S+\s+\w+\s+([^)]*)\)", text)
    flags += [f"-I{path}" for path in " ".join(named).split() if "$" not in path]
    builds = []
    # Kernels that the program loads from a file.
    fatbin = re.search(r'set\(CUDA_FATBIN_FILE\s+"[^"]*/([^"/]+)"', text)
    kernels = re.search(r'set\(CUDA_KERNEL_SOURCE\s+"[^"]*/([^"/]+)"', text)
    if fatbin and kernels:
        builds.append([*flags, "-fatbin", "-arch=sm_80", kernels[1], "-o", fatbin[1]])
    # PTX is what runs: that machine code is not made saves minutes for some samples.
    machine = ["-rdc=true", "-arch=sm_80"] if separate else ["-gencode=arch=compute_80,code=compute_80"]
    if sources:
        builds.append([*flags, *machine, *sources, "-o", folder.name, *options.libraries, *libraries])
    return Program(folder.name, folder, folder.name, builds if sources else [], needs=needs)
