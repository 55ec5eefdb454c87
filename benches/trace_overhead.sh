#!/usr/bin/env bash
# What recording costs twelve kernels: without the pass, with branches, with all events, and with all
# events of every 8th warp. In the emulator by instructions that warps execute, which is the same on every
# machine; benches/gpu.sh measures the time of the kernels on a GPU. Ends with 1 where a kernel computes
# something else when it is recorded.
#
#   benches/trace_overhead.sh
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo build --quiet -p nvabi-pass
cargo build --quiet --release -p nvabi-cuda-shim -p nvabi-cudart-shim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/emu"
ln -s "$target/release/libnvabi_cuda.so" "$work/emu/libcuda.so.1"
ln -s "$target/release/libnvabi_cudart.so" "$work/emu/libcudart.so.12"

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

# A line of each kernel in $work/NAME.out
run() {
    for name in plain branches all sampled; do
        local every=1
        [ $name != sampled ] || every=8
        rm -f "$work/counts"
        LD_LIBRARY_PATH=$work/emu NVABI_EMU_COUNTS=$work/counts \
            "$work/program" "$work/$name.ptx" "$every" 1 1 >"$work/$name.out"
        mv "$work/counts" "$work/$name.counts"
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
run
paste -d' ' "$work"/{plain,branches,all,sampled}.counts | awk '{print $1, $2, $5, $8, $11}' >"$work/table"
table instructions
