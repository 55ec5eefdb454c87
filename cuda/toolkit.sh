#!/usr/bin/env bash
# Puts the parts of CUDA that clang needs into a folder that it takes as --cuda-path: headers, libdevice,
# ptxas and the runtime of 12.3, with headers of libcu++ 12.6 (older packages lack nv/target), cuRAND and the
# profiler, and from 13 what 12's packages lack (fatbinary, nvlink, cuobjdump, nvdisasm). Packages of pip, 135 MB;
# nothing is installed. Does nothing where the folder is there.
#
#     cuda/toolkit.sh DIR
set -euo pipefail
to=${1:?"the folder to put CUDA into"}

mkdir -p "$(dirname "$to")"
to=$(cd "$(dirname "$to")" && pwd)/$(basename "$to")
exec 9>"$to.lock"
flock 9
# One that this script made before it brought all of them is made anew.
[ -e "$to/bin/fatbinary-13" ] && [ ! -e "$to/include/cuda_profiler_api.h" ] && rm -rf "$to"
[ -e "$to" ] && exit 0
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT

get() {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work/wheels" "$@"
}
get nvidia-cuda-runtime-cu12==12.3.101 nvidia-cuda-nvcc-cu12==12.3.107
get nvidia-cuda-cccl-cu12==12.6.77 nvidia-curand-cu12==10.3.4.101 nvidia-cuda-profiler-api-cu12==12.9.79
get nvidia-cuda-nvcc==13.0.88 nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm
for wheel in "$work"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/all"
done

from=$work/all/nvidia
mkdir -p "$work/cuda/bin" "$work/cuda/lib64"
cp -r "$from/cuda_runtime/include" "$from/cuda_nvcc/nvvm" "$work/cuda/"
cp -rn "$from/cuda_nvcc/include/." "$work/cuda/include/" 2>/dev/null || true
cp "$from/cuda_runtime/lib/libcudart.so.12" "$work/cuda/lib64/"
ln -s libcudart.so.12 "$work/cuda/lib64/libcudart.so"
cp -r "$from/cuda_cccl/include/." "$from/curand/include/." "$from/cuda_profiler_api/include/." "$work/cuda/include/"
cp "$from/cuda_nvcc/bin/ptxas" "$work/cuda/bin/"
for tool in nvlink cuobjdump nvdisasm; do
    cp "$from/cu13/bin/$tool" "$work/cuda/bin/"
done
cp "$from/cu13/bin/fatbinary" "$work/cuda/bin/fatbinary-13"
cat >"$work/cuda/bin/fatbinary" <<'SCRIPT'
#!/bin/sh
# clang 19 names images as fatbinary did up to CUDA 12.
for arg; do
    shift
    case $arg in
    --image=profile=compute_*) arg=${arg#*compute_} arg="--image3=kind=ptx,sm=${arg%%,*},${arg#*,}" ;;
    --image=profile=sm_*) arg=${arg#*sm_} arg="--image3=kind=elf,sm=${arg%%,*},${arg#*,}" ;;
    esac
    set -- "$@" "$arg"
done
exec "$0-13" "$@"
SCRIPT
chmod +x "$work"/cuda/bin/*
mv "$work/cuda" "$to"
