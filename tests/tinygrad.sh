#!/usr/bin/env bash
# Unpacks the Python package tinygrad into a folder, once, and prints the folder.
#
#   NVABI_TINYGRAD=$(tests/tinygrad.sh target/tinygrad) cargo test
set -euo pipefail

folder=${1:?usage: tinygrad.sh FOLDER}
if [ ! -d "$folder/tinygrad" ]; then
    rm -rf "$folder" "$folder.new"
    # The last version whose calls were compared; another one is asked for with TINYGRAD.
    python3 -m pip download --quiet --no-deps --dest "$folder.new/wheel" "tinygrad==${TINYGRAD:-0.14.0}" >&2
    (cd "$folder.new" && python3 -m zipfile -e wheel/*.whl . && rm -r wheel)
    mv "$folder.new" "$folder"
fi
cd "$folder" && pwd
