#!/usr/bin/env bash
# Puts CUDA 13 with NVIDIA's own compiler into a folder: nvcc and what it calls, headers, libdevice, both runtimes.
# Packages of pip, 110 MB; nothing is installed. Does nothing where the folder is there. More of NVIDIA's packages can be
# named, for their headers and libraries.
#
#     cuda/toolkit13.sh DIR [PACKAGE…]            # nvidia-cuda-nvrtc==13.0.88 nvidia-cublas==13.0.2.14
#     DIR/bin/nvcc -arch=sm_80 program.cu -o program
set -euo pipefail
to=${1:?"the folder to put CUDA into"}
shift

mkdir -p "$(dirname "$to")"
to=$(cd "$(dirname "$to")" && pwd)/$(basename "$to")
exec 9>"$to.lock"
flock 9
if [ -x "$to/bin/nvcc" ]; then
    [ $# = 0 ] && exit 0
    echo "${0##*/}: $to is there: name another folder to have $* in it" >&2
    exit 1
fi
[ ! -e "$to" ] || { echo "${0##*/}: $to is there and has no nvcc: name another folder" >&2 && exit 1; }
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT

python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work/wheels" \
    nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 \
    nvidia-cuda-cccl==13.0.85 nvidia-cuda-profiler-api==13.0.85 nvidia-curand==10.4.0.35 "$@"
for wheel in "$work"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/all"
done
cuda=$work/all/nvidia/cu13
# Of cuRAND the headers are wanted, because much of it is in them.
rm -f "$cuda"/lib/libcurand*
# pip's packages have neither the right to run nor the links of an installation.
chmod +x "$cuda"/bin/* "$cuda/nvvm/bin/cicc"
ln -s lib "$cuda/lib64"
for library in "$cuda"/lib/*.so.*; do
    ln -sf "${library##*/}" "${library%%.so.*}.so"
done
mv "$cuda" "$to"
