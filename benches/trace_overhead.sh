#!/usr/bin/env bash
# What recording costs twelve kernels: without the pass, with branches, with all events, and with all
# events of every 8th warp. In the emulator by instructions that warps execute, which is the same on every
# machine, and on a GPU, where there is one, by the time of the kernels.
#
#   benches/trace_overhead.sh [RUNS]
#
# On a GPU, runs alternate and medians are printed. Ends with 1 where a kernel computes something else
# when it is recorded.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo build --quiet -p nvabi-pass
cargo build --quiet --release -p nvabi-cuda-shim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/emu"
for name in libcuda.so.1 libcudart.so.12; do
    ln -s "$target/release/libnvabi_cuda.so" "$work/emu/$name"
done

# NAME KINDS
build() {
    local plugin=()
    [ "$1" = plain ] || plugin=(-fpass-plugin="$target/debug/libnvabi_pass.so")
    NVABI_TRACE_PASS=kinds=$2 clang++-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib \
        -Wno-unknown-cuda-version -Xclang -target-feature -Xclang +ptx75 -O2 -S "${plugin[@]}" \
        cuda/kernels/classic.cu -o "$work/$1.ptx"
}
build plain ""
build branches branch
build all all
cp "$work/all.ptx" "$work/sampled.ptx"

# FOLDER SCALE RUNS: a line of each kernel in $work/NAME.out
run() {
    for name in plain branches all sampled; do
        local every=1
        [ $name != sampled ] || every=8
        rm -f "$work/counts"
        LD_LIBRARY_PATH=$1 NVABI_EMU_COUNTS=$work/counts "$work/program" "$work/$name.ptx" "$every" "$2" "$3" >"$work/$name.out"
        [ ! -e "$work/counts" ] || mv "$work/counts" "$work/$name.counts"
    done
    for name in branches all sampled; do
        if ! diff <(cut -d' ' -f1,2 "$work/plain.out") <(cut -d' ' -f1,2 "$work/$name.out"); then
            echo "recording $name changes what these kernels compute" >&2
            exit 1
        fi
        awk -v name=$name '$4 {print "note: " name ", " $1 ": " $4 " words did not fit"}' "$work/$name.out"
    done
}

# UNIT: the table of $work/table, which has kernel, plain, branches, all, sampled
table() {
    printf '%-11s %14s %9s %9s %9s\n' kernel "plain, $1" branches all sampled
    awk '{
            printf "%-11s %14s", $1, $2
            for (i = 3; i <= 5; i++) {
                factor = $i / $2
                printf " %8.2fx", factor
                if (!(i in best) || factor < best[i]) {best[i] = factor; least[i] = $1}
                if (factor > worst[i]) {worst[i] = factor; most[i] = $1}
            }
            print ""
        }
        END {
            split("- - branches all sampled", names)
            for (i = 3; i <= 5; i++)
                printf "%s: best %.2fx (%s), worst %.2fx (%s)\n", names[i], best[i], least[i], worst[i], most[i]
        }' "$work/table"
}

cc -O2 benches/trace_overhead.c -o "$work/program" -L"$work/emu" -l:libcuda.so.1
echo "In the emulator, by executed instructions of warps:"
run "$work/emu" 1 1
paste -d' ' "$work"/{plain,branches,all,sampled}.counts | awk '{print $1, $2, $5, $8, $11}' >"$work/table"
table instructions

echo
if [ ! -e /dev/nvidia0 ]; then
    echo "skipped: no GPU, so no time of kernels"
    exit 0
fi
cc -O2 benches/trace_overhead.c -o "$work/program" -l:libcuda.so.1
echo "On $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1), by the time of kernels:"
for _ in $(seq "$runs"); do
    run "${LD_LIBRARY_PATH:-}" 64 5
    paste -d' ' "$work"/{plain,branches,all,sampled}.out | awk '{print $1, $3, $7, $11, $15}' >>"$work/times"
done
# The median of each column, kernel by kernel.
for kernel in $(cut -d' ' -f1 "$work/plain.out"); do
    printf %s "$kernel"
    for column in 2 3 4 5; do
        awk -v k="$kernel" -v c=$column '$1 == k {print $c}' "$work/times" | sort -n | awk '{v[NR] = $1} END {printf " %s", v[int((NR + 1) / 2)]}'
    done
    echo
done >"$work/table"
table ms
