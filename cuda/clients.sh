#!/usr/bin/env bash
# Puts programs that others wrote for CUDA, and that hand PTX to the driver, into a folder for PYTHONPATH: numba
# and tinygrad, with NVRTC, which tinygrad compiles with. Packages of pip, some 170 MB; nothing is installed.
# Does nothing where the folder is there.
#
#     cuda/clients.sh DIR
set -euo pipefail
to=${1:?"the folder to put the packages into"}

mkdir -p "$(dirname "$to")"
to=$(cd "$(dirname "$to")" && pwd)/$(basename "$to")
exec 9>"$to.lock"
flock 9
[ -e "$to" ] && exit 0
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT

get() {
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$work/clients" "$@"
}
get numba==0.61.2 numpy==2.1.3 tinygrad==0.11.0
get --no-deps nvidia-cuda-nvrtc-cu12==12.9.86
# The name that tinygrad looks for.
ln -s libnvrtc.so.12 "$work/clients/nvidia/cuda_nvrtc/lib/libnvrtc.so"
mv "$work/clients" "$to"
