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
#
# Beside it stands the recorder as it was first thought of (trace_sites_first.cu), at the same sites: lane 0, an index
# moved by a global atomic, 16 bytes an event. Of that scheme 37 instructions a site are reported, of the nearest
# peer 78.
#
# A branch that is recorded stays one: what ptxas and LLVM would have made of it without, such as one test
# of four, counts as the site's cost, too. That is most of what stencil has over the others.
#
# RODINIA is the folder of a tree of Rodinia; its kernels are measured, too, without the first recorder. Those that
# lose as many instructions by recording as sites cost (`hotspot3D`) say nothing.
#
# CUDA_PATH is CUDA's folder; without it, cuda/toolkit.sh fetches one.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
archs=("$@")
[ $# -gt 0 ] || archs=(sm_80 sm_90)

cargo build --quiet -p nvabi-pass
cuda=${CUDA_PATH:-$target/cuda-toolkit}
cuda/toolkit.sh "$cuda"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# NAME OPTIONS ARCH [SOURCE FLAG…]: $work/NAME.{ptx,sass}
build() {
    local plugin=() source=${4:-cuda/kernels/classic.cu} flags=("${@:5}")
    [ "$2" = none ] || plugin=(-fpass-plugin="$target/debug/libnvabi_pass.so")
    [ $# -gt 3 ] || flags=(-nocudainc -nocudalib)
    NVABI_TRACE_PASS=$2 clang++-19 -x cuda --cuda-device-only --cuda-path="$cuda" --cuda-gpu-arch="$3" \
        "${flags[@]}" -Wno-unknown-cuda-version -Xclang -target-feature -Xclang +ptx75 \
        -O2 -fno-unroll-loops -S "${plugin[@]}" "$source" -o "$work/$1.ptx"
    "$cuda/bin/ptxas" -arch="$3" "$work/$1.ptx" -o "$work/$1.cubin"
    "$cuda/bin/cuobjdump" -sass "$work/$1.cubin" >"$work/$1.sass" 2>/dev/null
}

# As build, with the first recorder in the place of the pass's own.
first() {
    clang++-19 -x cuda --cuda-device-only --cuda-gpu-arch="$3" -nocudainc -nocudalib -Wno-unknown-cuda-version \
        -Xclang -target-feature -Xclang +ptx75 -O2 -fno-unroll-loops -emit-llvm -c \
        -Xclang -disable-llvm-passes cuda/kernels/classic.cu -o "$work/plain.bc"
    clang++-19 -x cuda --cuda-device-only --cuda-gpu-arch="$3" -nocudainc -nocudalib -Wno-unknown-cuda-version \
        -Xclang -target-feature -Xclang +ptx75 -O2 -emit-llvm -c benches/trace_sites_first.cu -o "$work/first.bc"
    opt-19 -load-pass-plugin "$target/debug/libnvabi_pass.so" "$work/plain.bc" -o "$work/recorded.bc" \
        -passes="function(simplifycfg,sroa,early-cse,simplifycfg),nvabi-trace<$2>"
    llvm-extract-19 --delete --rfunc='__nvabi_.*' "$work/recorded.bc" -o "$work/bare.bc"
    llvm-link-19 "$work/bare.bc" "$work/first.bc" -o "$work/linked.bc"
    clang++-19 -x ir -Wno-override-module --target=nvptx64-nvidia-cuda -march="$3" -Xclang -target-feature \
        -Xclang +ptx75 -O2 -fno-unroll-loops -S "$work/linked.bc" -o "$work/$1.ptx"
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
    awk '/Function :/{k = $3} /^[ \t]+\/\*[0-9a-f]+\*\/ .*;/ && !/NOP/{n[k]++; if (/STG\.E\.(EF\.64|128)/) m[k]++}
         /ATOMG|ATOM\.E|[^A-Z]RED\./{a[k]++}
         END{for (k in n) print k, n[k], m[k] + 0, a[k] + 0}' "$1" | sort
}

for arch in "${archs[@]}"; do
    build plain none "$arch"
    build setup "kinds=" "$arch"
    build sites "kinds=branch" "$arch"
    first first_setup "kinds=" "$arch"
    first first "kinds=branch" "$arch"
    for name in plain setup sites first_setup first; do
        count_ptx "$work/$name.ptx" >"$work/$name.p"
        count_sass "$work/$name.sass" >"$work/$name.s"
    done
    echo "$arch            sites   set-up         a site        global    first recorder:  global"
    echo "                          PTX   SASS     PTX   SASS  atomics   SASS a site      atomics"
    paste -d' ' "$work"/{plain,setup,sites}.p "$work"/{plain,setup,sites,first_setup,first}.s | awk '
        {
            sites = $9 - $6; placed = $20 - $16; others = $28 - $24
            if (sites == 0 || placed == 0 || others == 0) next
            ptx = ($8 - $5) / sites; sass = ($19 - $15) / placed; first = ($27 - $23) / others
            printf "%-16s %5d  %5d  %5d   %5.1f  %5.1f  %7d   %11.1f      %7d\n", $1, placed, $5 - $2, $15 - $11, ptx, sass, $21 - $17, first, $29 - $25
            all += sites; allplaced += placed; allptx += $8 - $5; allsass += $19 - $15; kernels++
            allfirst += $27 - $23; allothers += others
            if (sass > most) most = sass
        }
        END {
            printf "%-16s %5d  %5s  %5s   %5.1f  %5.1f  %7s   %11.1f      (worst kernel of ours %.1f)\n\n", kernels " kernels", allplaced, "", "", allptx / all, allsass / allplaced, "", allfirst / allothers, most
        }'
done

# A source of Rodinia: a line of each kernel that has sites.
foreign() {
    local source=$RODINIA/cuda/$2 name
    local flags=(-w -Dblock_size=192 -I"$(dirname "$source")" "-I$RODINIA/cuda/"{util,hybridsort,lud/common})
    build plain none "$1" "$source" "${flags[@]}"
    build setup "kinds=" "$1" "$source" "${flags[@]}"
    build sites "kinds=branch" "$1" "$source" "${flags[@]}"
    for name in plain setup sites; do
        count_sass "$work/$name.sass" >"$work/$name.s"
    done
    join "$work/plain.s" "$work/setup.s" | join - "$work/sites.s" | awk -v source="$2" '
        $9 > $6 {printf "%-34s %-34.34s %5d %6d %7.1f\n", source, $1, $9 - $6, $5 - $2, ($8 - $5) / ($9 - $6)}'
}

sources="bfs/bfs.cu backprop/backprop_cuda.cu hotspot/hotspot.cu lud/cuda/lud_kernel.cu nn/nn_cuda.cu nw/needle.cu
    pathfinder/pathfinder.cu srad/srad_v1/main.cu srad/srad_v2/srad.cu streamcluster/streamcluster_cuda.cu
    lavaMD/kernel/kernel_gpu_cuda_wrapper.cu b+tree/kernel/kernel_gpu_cuda_wrapper.cu
    b+tree/kernel/kernel_gpu_cuda_wrapper_2.cu cfd/euler3d.cu myocyte/main.cu dwt2d/dwt_cuda/fdwt53.cu
    huffman/vlc_kernel_sm64huff.cu hotspot3D/3D.cu"
for arch in "${archs[@]}"; do
    [ -n "${RODINIA:-}" ] || break
    echo "Rodinia, $arch                     kernel                              sites set-up  a site"
    for source in $sources; do
        foreign "$arch" "$source"
    done | sort -k5n | awk '
        {print; kernels++; above += $5 > 18}
        END {print kernels, "kernels,", above, "above 18"; print ""}'
done
