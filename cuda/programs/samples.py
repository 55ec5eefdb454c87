"""NVIDIA's cuda-samples 12.8 and later: built of the sources and with the options that each CMakeLists.txt names."""

import ctypes.util
import os
import re

from program import Program

# What samples look for, and what it is called on the page.
NEEDED = {
    "GLUT": "a display", "OpenGL": "a display", "EGL": "a display", "X11": "a display", "Vulkan": "a display",
    "FreeImage": "FreeImage", "cudla": "cuDLA", "NVSCI": "NvSci", "MPI": "MPI",
}
# Libraries of CUDA by the names of CMake, where these are others than the linker's.
LINKED = {"cuda_driver": "cuda", "cudart_static": "cudart", "cufft_static": "cufft_static_nocallback"}
# What comes with a library of CUDA by the targets of CMake.
BESIDE = {"cusolver": {"cublas", "cusparse"}}
NAMES = {
    "cublas": "cuBLAS", "cusparse": "cuSPARSE", "cusolver": "cuSOLVER", "cufft": "cuFFT", "curand": "cuRAND",
    "nppc": "NPP", "nppisu": "NPP", "nppif": "NPP", "nvjpeg": "nvJPEG", "cudadevrt": "CUDA's device runtime",
}
# What samples that compute for long are called with, and what is set to less in the sources of those that do not ask.
SMALL_MATRIX = ["-file=../cuSolverSp_LowlevelQR/lap2D_5pt_n32.mtx"]
ARGUMENTS = {
    "cuSolverRf": SMALL_MATRIX,
    "cuSolverSp_LinearSolver": [*SMALL_MATRIX, "-R=lu"],
    "cuSolverSp_LowlevelCholesky": SMALL_MATRIX,
    "cuSolverSp_LowlevelQR": SMALL_MATRIX,
    "bandwidthTest": ["--mode=range", "--start=1000000", "--end=4000000", "--increment=1000000"],
    "eigenvalues": ["-iters-timing=1"],
    "FDTD3d": ["--dimx=64", "--dimy=64", "--dimz=64", "--timesteps=2"],
    "globalToShmemAsyncCopy": ["-wA=128", "-hA=128", "-wB=128", "-hB=128"],
    "matrixMul": ["-wA=64", "-hA=64", "-wB=64", "-hB=64"],
    "matrixMul_nvrtc": ["-wA=64", "-hA=64", "-wB=64", "-hB=64"],
    "p2pBandwidthLatencyTest": ["--numElems=100000"],
    "radixSortThrust": ["-n=65536", "-iterations=1"],
    "reduction": ["-n=65536"],
    "reductionMultiBlockCG": ["-n=65536"],
    "threadFenceReduction": ["-n=65536"],
    "transpose": ["-dimX=128", "-dimY=128"],
    "UnifiedMemoryPerf": ["-kernel-iterations=1"],
}
# What samples that draw are called with to compute a picture and compare it with the one beside them, with no display.
WITHOUT_DISPLAY = {
    "bicubicTexture": ["-mode=2", "-file=2_bicubic.ppm"],
    "bilateralFilter": ["-radius=5", "-file=ref_05.ppm"],
    "bindlessTexture": ["-file=ref_bindlessTexture.bin"],
    "boxFilter": ["-radius=14", "-file=ref_14.ppm"],
    "FunctionPointers": ["-mode=2", "-file=ref_shared.pgm"],
    "imageDenoising": ["-kernel=1", "-file=ref_knn.ppm"],
    "Mandelbrot": ["-mode=0", "-file=Mandelbrot_fp32.ppm"],
    "marchingCubes": ["-dump=0", "-file=posArray.bin"],
    "nbody": ["-compare", "-numbodies=512"],
    "oceanFFT": ["-qatest"],
    "particles": ["-file=ref_particles.bin"],
    "randomFog": ["-qatest"],
    "recursiveGaussian": ["-sigma=10", "-file=ref_10.ppm"],
    "simpleGL": ["-file=ref_simpleGL.bin"],
    "simpleTexture3D": ["-file=ref_texture3D.bin"],
    "smokeParticles": ["-qatest"],
    "SobelFilter": ["-mode=2", "-file=ref_shared.pgm"],
    "volumeFiltering": ["-file=ref_volumefilter.ppm"],
    "volumeRender": ["-file=ref_volume.ppm"],
}
ARGUMENTS |= WITHOUT_DISPLAY
# They are linked with what they draw with all the same.
DRAWING = ["glut", "GLU", "GL"]
GEMM = {"M_TILES": 16, "N_TILES": 16, "K_TILES": 16}
SMALLER = {
    "alignedTypes": {"MEM_SIZE": 500000, "NUM_ITERATIONS": 1},
    "bf16TensorCoreGemm": GEMM,
    "BlackScholes": {"OPT_N": 40000, "NUM_ITERATIONS": 2},
    "BlackScholes_nvrtc": {"OPT_N": 40000, "NUM_ITERATIONS": 2},
    "conjugateGradient": {"N": 4096},
    "conjugateGradientCudaGraphs": {"N": 4096},
    "conjugateGradientMultiBlockCG": {"N": 4096},
    "conjugateGradientMultiDeviceCG": {"N": 65536},
    "conjugateGradientPrecond": {"N": 1024},
    "conjugateGradientUM": {"N": 4096},
    "convolutionSeparable": {"imageW": 384, "imageH": 384, "iterations": 1},
    "convolutionTexture": {"imageW": 384, "imageH": 192, "iterations": 1},
    "cudaTensorCoreGemm": GEMM,
    "dct8x8": {"BENCHMARK_SIZE": 1},
    "dmmaTensorCoreGemm": GEMM,
    "fastWalshTransform": {"log2Data": 14},
    "histogram": {"byteCount": 1 << 20, "numRuns": 1},
    "HSOpticalFlow": {"nSolverIters": 10, "nWarpIters": 1},
    "immaTensorCoreGemm": GEMM,
    "mergeSort": {"N": 65536},
    "quasirandomGenerator": {"N": 65536, "numIterations": 1},
    "quasirandomGenerator_nvrtc": {"N": 65536, "numIterations": 1},
    "scan": {"iCycles": 1},
    "simpleMultiCopy": {"N": 1 << 14},
    "simplePitchLinearTexture": {"NUM_REPS": 1},
    "simpleStreams": {"n": 1 << 18},
    "sortingNetworks": {"N": 65536},
    "StreamPriorities": {"TOTAL_SIZE": 1 << 20, "EACH_SIZE": 1 << 19},
    "tf32TensorCoreGemm": GEMM,
}
GPUS = {
    "conjugateGradientMultiDeviceCG": 2,
    "memMapIPCDrv": 2,
    "simpleCUFFT_2d_MGPU": 2,
    "simpleCUFFT_MGPU": 2,
    "simpleP2P": 2,
    "streamOrderedAllocationIPC": 2,
    "streamOrderedAllocationP2P": 2,
    "vectorAddMMAP": 2,
}
# Words of the output of samples that end with status 0 whatever comes out.
FAILS_WITH = {}


def smaller(values):
    """What replaces the values of variables and macros."""
    return [(rf"(\b{name} = |#define {name} )[^;,\n]+", rf"\g<1>{value}") for name, value in values.items()]


def programs(root, options):
    folders = sorted({path.parent for path in root.glob("Samples/*/*/CMakeLists.txt")})
    return [sample(root, folder, options) for folder in folders]


def sample(root, folder, options):
    text = re.sub(r"#.*", "", (folder / "CMakeLists.txt").read_text())
    found = re.search(r"add_executable\(\s*(\S+)\s+([^)]*)\)", text)
    sources = found[2].split() if found else []
    packages = set(re.findall(r"find_package\(\s*(\w+)", text)) - {"CUDAToolkit"}
    linked = {LINKED.get(name, name) for name in re.findall(r"CUDA::(\w+)", text)}
    linked = linked.union(*(BESIDE.get(name, set()) for name in linked))
    separate = "CUDA_SEPARABLE_COMPILATION ON" in text and "cudadevrt" in text or "cdp" in folder.name
    lacking = {name for name in linked | ({"cudadevrt"} if separate else set()) if options.machine.lacks(name)}
    draws = folder.name in WITHOUT_DISPLAY and all(map(ctypes.util.find_library, DRAWING))
    packages -= {"OpenGL", "GLUT"} if draws else set()
    # Not CUDA's, but it may be beside CUDA's libraries.
    reads_pictures = "FreeImage" in packages and not options.machine.lacks("freeimage")
    packages -= {"FreeImage"} if reads_pictures else set()
    needs = {NEEDED.get(name, name) for name in packages - {"OpenMP"}} | {NAMES.get(name, name) for name in lacking}
    # The runtime is what nvcc links by itself.
    libraries = [f"-l{name}" for name in sorted(linked - {"cudart"})]
    libraries += ["-Xcompiler=-fopenmp", "-lgomp"] if "OpenMP" in packages else []
    libraries += [f"-l{name}" for name in DRAWING] if draws else []
    # What that needs in turn is beside it.
    libraries += ["-lfreeimage", "-Xlinker", f"-rpath-link={options.cuda}/lib64"] if reads_pictures else []
    common = os.path.relpath(root / "Common", folder)
    flags = ["-std=c++17", "-lineinfo", "--extended-lambda", f"-I{common}", "-I."]
    named = re.findall(r"include_directories\((?:\s*\w+ (?:PRIVATE|PUBLIC))?([^)]*)\)", text)
    flags += [f"-I{path}" for path in " ".join(named).split() if "$" not in path]
    machine = options.machine.linked if separate else options.machine.code
    # Kernels that the program loads from a file.
    builds = []
    kernels = re.search(r'set\(CUDA_KERNEL_SOURCE\s+"[^"]*/([^"/]+)"', text)
    for kind, name in re.findall(r'set\(CUDA_(FATBIN|PTX)_FILE\s+"[^"]*/([^"/]+)"', text) if kernels else []:
        code = ["-arch=compute_80"] if kind == "PTX" else machine
        builds.append([*flags, f"-{kind.lower()}", *code, kernels[1], "-o", name])
    copies = {}
    if folder.name in SMALLER:
        copies = {f"small-{source}": (source, smaller(SMALLER[folder.name])) for source in sources}
        sources = list(copies)
    builds.append([*flags, *machine, *sources, "-o", folder.name, *options.libraries, *libraries])
    # Headers that the program hands to NVRTC are looked for beside it.
    copied = re.findall(r"(?:/\.\./include|\$\{CUDA_INCLUDE_DIR\})/(?:cccl/)?([\w.]+)", text)
    inputs = {name: header(options.cuda, name) for name in copied}
    return Program(
        folder.name,
        folder,
        folder.name,
        builds if sources else [],
        ARGUMENTS.get(folder.name, []),
        inputs,
        copies,
        sorted(needs),
        fails_with=FAILS_WITH.get(folder.name, ""),
        gpus=GPUS.get(folder.name, 1),
    )


def header(cuda, name):
    """A link to what the toolkit has, which 13 keeps in a folder of its own."""
    def write(path):
        found = [folder / name for folder in (cuda / "include", cuda / "include/cccl") if (folder / name).exists()]
        path.unlink(missing_ok=True)
        path.symlink_to(found[0] if found else cuda / "include" / name)
    return write
