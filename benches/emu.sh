#!/usr/bin/env bash
# How many lane instructions per second the emulator runs, on a tiled matrix product and a reduction,
# with every check on: by the time of the processor, which other work on the machine does not change,
# and by the clock, on one thread and on all cores in turn, which shows that blocks run in parallel.
#
#   benches/emu.sh [RUNS]
#
# Asked: 30 million lane instructions a second per core. Runs alternate; medians are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
cargo build --release --quiet --package nvabi-emu --example emu_speed
target=$(cargo metadata --format-version 1 --no-deps | jq -r .target_directory)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cores=$(nproc)
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for _ in $(seq "$runs"); do
    for kernel in matmul reduction; do
        for threads in 1 "$cores"; do
            /usr/bin/time -f '%U %S' -o "$work/time" \
                "$target/release/examples/emu_speed" cuda/kernels/ptx/classic.ptx "$kernel" "$threads" > "$work/out"
            read -r _ _ millions seconds _ < "$work/out"
            awk -v m="$millions" '{ print m / ($1 + $2) }' "$work/time" >> "$work/$kernel-$threads-cpu"
            echo "$millions $seconds" | awk '{ print $1 / $2 }' >> "$work/$kernel-$threads-wall"
        done
    done
done

printf '%-10s %8s %28s %22s %10s\n' kernel threads 'million lanes/s of processor' 'million lanes/s' 'to 1'
for kernel in matmul reduction; do
    for threads in $(printf '%s\n' 1 "$cores" | sort -nu); do
        wall=$(median < "$work/$kernel-$threads-wall")
        [ "$threads" -ne 1 ] || alone=$wall
        printf '%-10s %8s %28.0f %22.0f %9sx\n' "$kernel" "$threads" \
            "$(median < "$work/$kernel-$threads-cpu")" "$wall" "$(echo "$wall $alone" | awk '{ printf "%.2f", $1 / $2 }')"
    done
done
