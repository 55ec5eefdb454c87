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

# The first tag of each distinct set of headers, extracted, with a file for each surface that the specs name: the
# floor reads the headers that the sweep reads, but for drm's one and those of faults. The tables that tell the calls
# are not C that compiles alone.
tags=$(awk '$1 ~ /^[0-9]/ && !seen[$2]++ { print $1 }' abi-specs/lock/tags)
include() { ls "$@" 2> /dev/null | sed 's/.*/#include "&"/' || true; }
for tag in $tags; do
    mkdir "$work/$tag"
    git -C "$NVABI_HEADERS" archive "$tag" src/common/{sdk,shared/inc,inc,unix/common/inc} \
        src/nvidia/{arch/nvalloc/unix/include,generated/g_allclasses.h} src/nvidia-modeset/interface \
        kernel-open/{common/inc,nvidia-uvm} | tar x -C "$work/$tag"
    (cd "$work/$tag"
     sdk=src/common/sdk/nvidia/inc unix=src/nvidia/arch/nvalloc/unix/include
     include $sdk/*.h $sdk/{alloc,class,ctrl}/*.h $sdk/ctrl/*/*.h $unix/{nv_escape,nv-ioctl*}.h > rm.c
     include kernel-open/nvidia-uvm/uvm_{,linux_}ioctl.h > uvm.c
     include src/nvidia-modeset/interface/*.h > modeset.c
     include src/nvidia/generated/g_allclasses.h > classes.c
     (printf '#include "%s"\n' nvtypes.h nvmisc.h; include kernel-open/nvidia-uvm/cl*.h) > methods.c)
done
parse() {
    cd "$1"
    check() { "$clang" -fsyntax-only -w -ffreestanding -I. "$@"; }
    local sdk=src/common/sdk/nvidia/inc kernel=kernel-open/common/inc
    check -I$sdk -Isrc/common/shared/inc -Isrc/nvidia/arch/nvalloc/unix/include rm.c
    check -I$kernel -Ikernel-open/nvidia-uvm uvm.c
    check -Isrc/nvidia-modeset/interface -I$sdk -Isrc/common/inc -Isrc/common/unix/common/inc modeset.c
    check -I$sdk classes.c
    check -I$kernel -Ikernel-open/nvidia-uvm methods.c
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
    seconds "$nvabi" verify --family x86 >> "$work/sweep.txt"
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
