#!/usr/bin/env bash
# How long NVIDIA's nvidia-smi takes, whole, on one and on eight simulated GPUs, beside the same without a driver.
#
#   NVABI_REAL=$(tests/real/fetch.sh 550.163.01) benches/smi.sh [RUNS]
#
# Of the first folder that NVABI_REAL names. Runs alternate, RUNS times each (default 15); medians in milliseconds, from
# start to end. `rm run` is into a machine that is up. Asked for: at most 3 times the program without a
# driver, or 0.5 s; eight GPUs at most twice as long as one. The program itself makes as many calls for each GPU, and
# sleeps 5 ms for each, between two looks at the clocks of GPU and CPU, on a real machine too: the last column is
# without that, and the last line counts calls. With calls that take no time, eight GPUs were twice as long as one only
# where all else took 30 ms, which is more than the program takes without a driver.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
runs=${1:-15}
real=$(head -n 1 <<<"${NVABI_REAL:?a folder of tests/real/fetch.sh}")
smi=$real/bin/nvidia-smi version=$(basename "$real")
nvabi=${NVABI:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/nvabi}
[ -n "${NVABI:-}" ] || cargo build --quiet --locked --release --package nvabi-cli
work=$(mktemp -d)
export XDG_RUNTIME_DIR=$work
trap 'for n in 1 8; do "$nvabi" rm down "bench$n" 2>/dev/null || true; done; rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$real/lib
for n in 1 8; do "$nvabi" rm up "bench$n" --tag "$version" --gpu a100 --gpus "$n" 2>/dev/null; done

without() { "$smi" || [ $? = 9 ]; }
run() { "$nvabi" rm run "bench$1" -- "$smi"; }
sim() { "$nvabi" rm sim --tag "$version" --gpu a100 --gpus "$1" -- "$smi"; }

for _ in $(seq "$runs"); do
    for how in without "run 1" "run 8" "sim 1" "sim 8"; do
        begin=${EPOCHREALTIME/./}
        # shellcheck disable=SC2086
        $how >/dev/null 2>&1
        echo $((${EPOCHREALTIME/./} - begin)) >>"$work/$how"
    done
done
printf 'nvidia-smi %s, %d runs: milliseconds, medians; without sleeps\n' "$version" "$runs"
for how in without "run 1" "run 8" "sim 1" "sim 8"; do
    median=$(sort -n "$work/$how" | awk '{ v[NR] = $1 } END { printf "%.1f", v[int((NR + 1) / 2)] / 1000 }')
    sleeps=$((5 * $(tr -dc 0-9 <<<"${how}0") / 10))
    printf '%-10s %8s %8s\n' "$how" "$median" "$(awk "BEGIN { printf \"%.1f\", $median - $sleeps }")"
done
calls() { run "$1" 2>&1 >/dev/null | sed -n 's/.*Simulated *\([0-9]*\) calls.*/\1/p'; }
printf 'calls of one GPU: %s, of eight: %s\n' "$(calls 1)" "$(calls 8)"
