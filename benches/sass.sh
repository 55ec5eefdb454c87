#!/usr/bin/env bash
# How many lane instructions per second the emulator runs of machine code, on a tiled matrix product and a
# reduction that ptxas makes for sm_80 and sm_90, with every check on and with shared memory unwatched: by the
# time of the processor, which other work on the machine does not change, on one thread.
#
#   benches/sass.sh [RUNS]
#
# Asked of the matrix product: 20 million lane instructions a second with checks, 60 without. Runs alternate;
# medians are printed. CUDA_PATH names the folder with bin/ptxas; else cuda/toolkit.sh fetches it.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
cargo build --release --quiet --package nvabi-emu --example emu_speed
target=$(cargo metadata --format-version 1 --no-deps | jq -r .target_directory)
cuda=${CUDA_PATH:-$target/cuda-toolkit}
[ -x "$cuda/bin/ptxas" ] || cuda/toolkit.sh "$cuda"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for arch in 80 90; do
    sed "s/^\.target sm_80/.target sm_$arch/" cuda/kernels/ptx/classic.ptx > "$work/classic.ptx"
    "$cuda/bin/ptxas" -arch="sm_$arch" -O3 "$work/classic.ptx" -o "$work/sm_$arch.cubin"
done
for _ in $(seq "$runs"); do
    for arch in 80 90; do
        for kernel in matmul reduction; do
            for checks in checked unchecked; do
                [ "$checks" = checked ] && word="" || word=unchecked
                /usr/bin/time -f '%U %S' -o "$work/time" \
                    "$target/release/examples/emu_speed" "$work/sm_$arch.cubin" "$kernel" 1 $word > "$work/out"
                read -r _ _ millions _ _ < "$work/out"
                awk -v m="$millions" '{ print m / ($1 + $2) }' "$work/time" >> "$work/$arch-$kernel-$checks"
            done
        done
    done
done

printf '%-6s %-10s %-10s %28s\n' arch kernel checks 'million lanes/s of processor'
for arch in 80 90; do
    for kernel in matmul reduction; do
        for checks in checked unchecked; do
            printf '%-6s %-10s %-10s %28.0f\n' "sm_$arch" "$kernel" "$checks" \
                "$(median < "$work/$arch-$kernel-$checks")"
        done
    done
done
