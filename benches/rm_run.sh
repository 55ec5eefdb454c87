#!/usr/bin/env bash
# How long `nvabi rm run` takes into a machine that is up, beside starting the program itself and `nvabi rm sim`.
#
#   benches/rm_run.sh [RUNS] [GPUS]
#
# One program, which says when its main begins: the time until then, and from its start to its end. Runs alternate,
# RUNS times each (default 31), on a machine with GPUS a100 (default 8); medians in milliseconds.
set -euo pipefail
# Elsewhere EPOCHREALTIME may have a comma.
export LC_ALL=C
cd "$(dirname "$0")/.."
runs=${1:-31}
gpus=${2:-8}
nvabi=${NVABI:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/nvabi}
[ -n "${NVABI:-}" ] || cargo build --quiet --locked --release --package nvabi-cli
work=$(mktemp -d)
export XDG_RUNTIME_DIR=$work
trap '"$nvabi" rm down bench 2>/dev/null || true; rm -rf "$work"' EXIT
cc -O2 -static -x c -o "$work/main" - <<'C'
#include <stdio.h>
#include <time.h>
int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("%lld\n", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
    return 0;
}
C
machine=(--gpu a100 --gpus "$gpus")
"$nvabi" rm up bench "${machine[@]}" 2>/dev/null

plain() { "$@"; }
run() { "$nvabi" rm run bench -- "$@"; }
sim() { "$nvabi" rm sim "${machine[@]}" -- "$@"; }

for _ in $(seq "$runs"); do
    for how in plain run sim; do
        begin=${EPOCHREALTIME/./}
        main=$("$how" "$work/main" 2>/dev/null)
        end=${EPOCHREALTIME/./}
        echo $((main - begin)) >>"$work/$how.main"
        echo $((end - begin)) >>"$work/$how.whole"
    done
done
median() { sort -n "$work/$1" | awk '{ v[NR] = $1 } END { printf "%.1f", v[int((NR + 1) / 2)] / 1000 }'; }
printf '%d runs, %d GPUs: milliseconds, medians\n' "$runs" "$gpus"
printf '%-14s %12s %12s\n' "" "before main" "whole"
for how in plain run sim; do
    case $how in plain) name="the program" ;; run) name="rm run" ;; sim) name="rm sim" ;; esac
    printf '%-14s %12s %12s\n' "$name" "$(median $how.main)" "$(median $how.whole)"
done
