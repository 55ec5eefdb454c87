#!/usr/bin/env bash
# The four commands of the README, on the GPU where there is one, in the emulator elsewhere. Ends with 0
# when the answer names the line of the bug.
#
#     NVABI=target/debug/nvabi CUDA_PATH=/usr/local/cuda examples/diverge/run.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
nvabi=$(realpath "${NVABI:-$(command -v nvabi || echo "$here/../../target/debug/nvabi")}")

skip() {
    echo "skipped: $*"
    exit 0
}
[ -x "$nvabi" ] || skip "no nvabi at $nvabi; NVABI names it"
command -v clang++-19 >/dev/null || skip "no clang++-19"
if [ -z "${CUDA_PATH:-}" ]; then
    export CUDA_PATH=${TMPDIR:-/tmp}/nvabi-cuda-toolkit-$(id -u)
    "$here/../../cuda/toolkit.sh" "$CUDA_PATH" || skip "no CUDA in CUDA_PATH, and none could be fetched"
fi

emulate=--emulate
if [ -e /dev/nvidia0 ]; then
    emulate=
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

set -x
"$nvabi" trace cc -O2 "$here/collide.cu" -o collide
LD_LIBRARY_PATH=$CUDA_PATH/lib64 "$nvabi" trace record $emulate -o good.nvtrace -- ./collide "$here/good.txt"
LD_LIBRARY_PATH=$CUDA_PATH/lib64 "$nvabi" trace record $emulate -o bad.nvtrace -- ./collide "$here/bad.txt"
"$nvabi" trace diff good.nvtrace bad.nvtrace | tee answer.txt || true
{ set +x; } 2>/dev/null

line=$(grep -n 'if (at == wall)' "$here/collide.cu" | cut -d: -f1)
if ! grep -q "collide.cu:$line" answer.txt; then
    echo "the answer does not name collide.cu:$line" >&2
    exit 1
fi
