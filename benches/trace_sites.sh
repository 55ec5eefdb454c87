#!/usr/bin/env bash
# What a branch site costs in instructions: twelve kernels with and without the pass, as PTX and, where
# CUDA's tools are, as SASS.
#
#   benches/trace_sites.sh [ARCH…]
#
# A kernel's set-up and end are measured by a build that records nothing, and shown by themselves; the
# rest is divided by the places where events are stored, so that what the compiler copied counts as often
# as it is there. Loops are not unrolled: code that records is unrolled less, and would seem cheap.
# Asked: at most 18 SASS instructions a site and no global atomic.
# The scheme that was given to begin with has 37, the nearest peer 78.
#
# CUDA_PATH is CUDA's folder; without it, cuda/toolkit.sh fetches one.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
archs=("$@")
[ $# -gt 0 ] || archs=(sm_80 sm_90)

cargo build --quiet -p nvabi-pass
cuda=${CUDA_PATH:-$PWD/$target/cuda-toolkit}
cuda/toolkit.sh "$cuda"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# NAME OPTIONS ARCH: $work/NAME.{ptx,sass}
build() {
    local plugin=()
    [ "$2" = none ] || plugin=(-fpass-plugin="$target/debug/libnvabi_pass.so")
    NVABI_TRACE_PASS=$2 clang++-19 -x cuda --cuda-device-only --cuda-path="$cuda" --cuda-gpu-arch="$3" \
        -nocudainc -nocudalib -Wno-unknown-cuda-version -Xclang -target-feature -Xclang +ptx75 \
        -O2 -fno-unroll-loops -S "${plugin[@]}" cuda/kernels/classic.cu -o "$work/$1.ptx"
    "$cuda/bin/ptxas" -arch="$3" "$work/$1.ptx" -o "$work/$1.cubin"
    "$cuda/bin/cuobjdump" -sass "$work/$1.cubin" >"$work/$1.sass" 2>/dev/null
}

# FILE: per kernel, its instructions, the places that store an event, and global atomics
count_ptx() {
    awk '/\.entry /{sub(/.*\.entry /, ""); sub(/\(.*/, ""); k = $0; inside = 0}
         /^\{/{inside = 1} /^\}/{inside = 0}
         inside && /;/ && !/^[ \t]*(\.|\/\/|\{ *\.reg|[$a-zA-Z_0-9]+:)/{n[k]++; if (/st\.global\.cs\.v2/) m[k]++}
         END{for (k in n) print k, n[k], m[k] + 0}' "$1" | sort
}
count_sass() {
    awk '/Function :/{k = $3} /^[ \t]+\/\*[0-9a-f]+\*\/ .*;/ && !/NOP/{n[k]++; if (/STG\.E\.EF\.64/) m[k]++}
         /ATOMG|[^A-Z]RED\./{a[k]++}
         END{for (k in n) print k, n[k], m[k] + 0, a[k] + 0}' "$1" | sort
}

for arch in "${archs[@]}"; do
    build plain none "$arch"
    build setup "kinds=" "$arch"
    build sites "kinds=branch" "$arch"
    for name in plain setup sites; do
        count_ptx "$work/$name.ptx" >"$work/$name.p"
        count_sass "$work/$name.sass" >"$work/$name.s"
    done
    echo "$arch            sites   set-up         a site        global atomics"
    echo "                          PTX   SASS     PTX   SASS  at sites"
    paste -d' ' "$work"/{plain,setup,sites}.p "$work"/{plain,setup,sites}.s | awk '
        {
            sites = $9 - $6; placed = $20 - $16
            if (sites == 0 || placed == 0) next
            ptx = ($8 - $5) / sites; sass = ($19 - $15) / placed
            printf "%-16s %5d  %5d  %5d   %5.1f  %5.1f  %d\n", $1, placed, $5 - $2, $15 - $11, ptx, sass, $21 - $17
            all += sites; allplaced += placed; allptx += $8 - $5; allsass += $19 - $15; kernels++
            if (sass > most) most = sass
        }
        END {
            printf "%-16s %5d  %5s  %5s   %5.1f  %5.1f  (worst kernel %.1f)\n\n", kernels " kernels", allplaced, "", "", allptx / all, allsass / allplaced, most
        }'
done
