#!/usr/bin/env bash
# How long a sweep over every locked tag takes, from a git repository to a verified lock, beside the
# floor: `clang -fsyntax-only` over each distinct set of headers, on as many cores.
#
#   NVABI_HEADERS=path/to/headers.git benches/sweep.sh [RUNS]
#
# Asked: the sweep ≤ 15 s on two cores where the floor is about 7 s; `diff` ≤ 30 ms, `ranges` over
# everything ≤ 100 ms, `add` of one tag ≤ 1 s, whole processes. Runs alternate; medians are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-3}
: "${NVABI_HEADERS:?set NVABI_HEADERS to a git repository of the driver}"
clang=$(command -v clang-19 || command -v clang) || { echo "skipped: no clang"; exit 0; }
export clang

cargo build --quiet --release --package nvabi-cli --features headers
nvabi=$(realpath "${CARGO_TARGET_DIR:-target}/release/nvabi")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first tag of each distinct set of headers, extracted, with its rm and uvm units as in the specs.
tags=$(awk '$1 ~ /^[0-9]/ && !seen[$2]++ { print $1 }' abi-specs/lock/tags)
for tag in $tags; do
    mkdir "$work/$tag"
    git -C "$NVABI_HEADERS" archive "$tag" src/common/sdk/nvidia/inc src/common/shared/inc \
        src/nvidia/arch/nvalloc/unix/include kernel-open/common/inc kernel-open/nvidia-uvm |
        tar x -C "$work/$tag"
    (cd "$work/$tag" && ls src/common/sdk/nvidia/inc/*.h src/common/sdk/nvidia/inc/{alloc,class,ctrl}/*.h \
        src/common/sdk/nvidia/inc/ctrl/*/*.h src/nvidia/arch/nvalloc/unix/include/{nv_escape,nv-ioctl*}.h \
        2> /dev/null | sed 's/.*/#include "&"/' > rm.c || true
     printf '#include "kernel-open/nvidia-uvm/%s"\n' uvm_ioctl.h uvm_linux_ioctl.h > uvm.c)
done
parse() {
    cd "$1"
    "$clang" -fsyntax-only -w -ffreestanding -I. -Isrc/common/sdk/nvidia/inc -Isrc/common/shared/inc \
        -Isrc/nvidia/arch/nvalloc/unix/include rm.c
    "$clang" -fsyntax-only -w -ffreestanding -I. -Ikernel-open/common/inc -Ikernel-open/nvidia-uvm uvm.c
}
export -f parse
seconds() { /usr/bin/time -f %e -o "$work/time" "$@" > /dev/null 2> "$work/errors" || { cat "$work/errors"; exit 1; }; cat "$work/time"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
floor() { printf "$work/%s\n" $tags | xargs -P "$(nproc)" -I{} bash -c 'parse {}'; }
export -f floor
export work tags

cp -r abi-specs "$work/specs"
newest=$(tail -2 abi-specs/lock/tags | head -1 | cut -d' ' -f1)
# `diff` says by its status that there is a difference.
cat > "$work/diff.sh" <<X
"$nvabi" diff 530.41.03 535.43.02 || [ \$? = 1 ]
X
for _ in $(seq "$runs"); do
    seconds bash -c floor >> "$work/floor.txt"
    seconds "$nvabi" verify --family "" >> "$work/sweep.txt"
    seconds "$nvabi" add "$newest" --specs "$work/specs" --no-snapshots >> "$work/add.txt"
    for _ in 1 2 3 4 5; do
        seconds bash "$work/diff.sh" >> "$work/diff.txt"
        seconds "$nvabi" ranges >> "$work/ranges.txt"
    done
done
floor=$(median < "$work/floor.txt")
sweep=$(median < "$work/sweep.txt")
echo "distinct sets of headers:   $(wc -w <<< "$tags")"
echo "floor, clang alone:         $floor s"
echo "sweep of all tags, verify:  $sweep s ($(awk -v a="$sweep" -v b="$floor" 'BEGIN { printf "%.1f", a / b }') × the floor)"
# Measured where its authors' tree was studied, not here: a figure to set beside, not a race.
echo "gVisor's parser, all tags:  57 s, for its 273 structs and 326 constants alone"
echo "add of one tag:             $(median < "$work/add.txt") s"
echo "diff:                       $(median < "$work/diff.txt") s"
echo "ranges over everything:     $(median < "$work/ranges.txt") s"
