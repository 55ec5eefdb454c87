#!/usr/bin/env bash
# Gets PyTorch of PyPI with NVIDIA's libraries, 3 GB that take 6 GB unpacked, and prints its folder: what NVABI_TORCH is
# to be set to.
#
#   export NVABI_TORCH=$(tests/real/torch.sh [FOLDER])
#
# FOLDER is `nvabi/torch` of the caller's cache. The version is the last for CUDA 12.4, which drivers of 550 know.
set -euo pipefail

folder=${1:-${XDG_CACHE_HOME:-${HOME:?name a folder}/.cache}/nvabi/torch}
mkdir -p "$(dirname "$folder")"
if [ ! -e "$folder/torch/version.py" ]; then
    work=$(mktemp -d "$(dirname "$folder")/.torch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip install -q --disable-pip-version-check --only-binary :all: --target "$work/torch" torch==2.6.0 numpy >&2 || {
        echo "torch.sh: no torch 2.6.0 from PyPI for this Python" >&2
        exit 1
    }
    rm -rf "$folder"
    mv "$work/torch" "$folder"
fi
cd "$folder" && pwd
