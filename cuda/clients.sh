#!/usr/bin/env bash
# Puts programs that others wrote for CUDA, and that hand PTX or machine code to the driver, into a folder for
# PYTHONPATH: numba, Triton, and tinygrad with NVRTC, which it compiles with. Packages of pip, some 340 MB; nothing is
# installed. Does nothing where the folder is there.
#
#     cuda/clients.sh DIR
set -euo pipefail
to=${1:?"the folder to put the packages into"}

mkdir -p "$(dirname "$to")"
to=$(cd "$(dirname "$to")" && pwd)/$(basename "$to")
exec 9>"$to.lock"
flock 9
# One that this script made before it brought all of them is made anew.
[ -e "$to/numba" ] && [ -e "$to/tinygrad" ] && [ ! -e "$to/triton" ] && rm -rf "$to"
[ -e "$to" ] && exit 0
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT

get() {
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$work/clients" "$@"
}
get numba==0.61.2 numpy==2.1.3 tinygrad==0.11.0
get --no-deps nvidia-cuda-nvrtc-cu12==12.9.86 triton==3.5.1
# The name that tinygrad looks for.
ln -s libnvrtc.so.12 "$work/clients/nvidia/cuda_nvrtc/lib/libnvrtc.so"
mv "$work/clients" "$to"
