#!/usr/bin/env bash
# Compiles the kernels of this folder to PTX: `compile.sh [OUT [FLAGS…]]`. Without arguments it renews
# the copies in ptx/ that tests run where there is no clang 19.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-ptx}
shift || true
[ $# -gt 0 ] || set -- -O2 --cuda-gpu-arch=sm_80
for source in *.cu; do
    "${CLANG:-clang++-19}" -x cuda --cuda-device-only -S -std=c++17 -nocudainc -nocudalib \
        -gline-directives-only -fdebug-compilation-dir=. \
        -Xclang -target-feature -Xclang +ptx83 "$@" "$source" -o "$out/${source%.cu}.ptx"
done
