#!/usr/bin/env python3
"""Makes a wheel of what was built, for `pip install`: the command, the emulator's libraries, and the scripts that bring
CUDA and compile with clang.

    cargo build --release -p nvabi-cli -p 'nvabi-cu*-shim'
    cuda/wheel.py target/release OUT
"""

import base64
import hashlib
import pathlib
import platform
import re
import stat
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = [
    f"libnvabi_{name}.so"
    for name in ["cuda", "cudart", "cudart13", "cublas", "cublas13", "cublaslt", "cublaslt13"]
]
# For recording, where they were built.
OPTIONAL = ["libnvabi_pass.so", "libnvabi_record.so"]
# What `nvabi emu` looks for beside itself, and scripts by the names that users call them.
SCRIPTS = {
    "nvabi-toolkit": HERE / "toolkit13.sh",
    "nvabi-toolkit-clang": HERE / "toolkit.sh",
    "nvabi-nvcc": HERE / "nvcc.sh",
}
# What `nvabi-nvcc` looks for beside itself.
BESIDE = ["include/nvabi_nvcc.h", "ptx_only/fatbinary", "ptx_only/ptxas"]


def version():
    manifest = (HERE.parent / "Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\]\nversion = "(.*)"', manifest, re.M).group(1)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    built, out = map(pathlib.Path, sys.argv[1:])
    name, number = "nvabi_emu", version()
    tag = f"py3-none-linux_{platform.machine()}"
    info, scripts = f"{name}-{number}.dist-info", f"{name}-{number}.data/scripts"
    binaries = ["nvabi", *LIBRARIES, *(file for file in OPTIONAL if (built / file).exists())]
    files = {f"{scripts}/{file}": (built / file).read_bytes() for file in binaries}
    files |= {f"{scripts}/{file}": path.read_bytes() for file, path in SCRIPTS.items()}
    files |= {f"{scripts}/{file}": (HERE / file).read_bytes() for file in BESIDE}
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: nvabi-emu\nVersion: {number}\nLicense: MIT OR Apache-2.0\n"
        "Summary: Run and check CUDA programs without a GPU\n"
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: nvabi\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}\n")
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{name}-{number}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | (0o755 if "/scripts/" in path else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(wheel)


if __name__ == "__main__":
    main()
