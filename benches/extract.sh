#!/usr/bin/env bash
# How long `nvabi extract` takes beside `clang -fsyntax-only` on the same translation units.
#
#   NVABI_HEADERS=path/to/headers.git benches/extract.sh [TAG] [RUNS]
#
# Both read the same headers from the same tag; runs alternate and medians are compared.
# Asked: records ≤ 1.2 × clang, with every constant ≤ 4 ×, at most 200 MiB of memory.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-550.163.01}
runs=${2:-11}
: "${NVABI_HEADERS:?set NVABI_HEADERS to a git repository of the driver}"
clang=$(command -v clang-19 || command -v clang) || { echo "skipped: no clang"; exit 0; }

cargo build --quiet --release --package nvabi-cli --features headers
nvabi=${CARGO_TARGET_DIR:-target}/release/nvabi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$NVABI_HEADERS" archive "$tag" src/common src/nvidia/arch/nvalloc/unix/include \
    src/nvidia-modeset/interface kernel-open/common/inc kernel-open/nvidia-uvm \
    kernel-open/nvidia-drm | tar x -C "$work"

# The same units as in abi-specs: surface, include folders, headers.
unit() {
    local name=$1 include=$2; shift 2
    (cd "$work" && for header in "$@"; do echo "#include \"$work/$header\""; done) > "$work/$name.c"
    local flags=""
    for folder in $include; do flags+=" -I$work/$folder"; done
    echo "$clang -fsyntax-only -w -ffreestanding $flags $work/$name.c" >> "$work/all.sh"
}
rm=$(cd "$work" && ls src/common/sdk/nvidia/inc/*.h src/common/sdk/nvidia/inc/{alloc,class,ctrl}/*.h \
    src/common/sdk/nvidia/inc/ctrl/*/*.h \
    src/nvidia/arch/nvalloc/unix/include/{nv_escape,nv-chardev-numbers,nv-unix-nvos-params-wrappers}.h \
    src/nvidia/arch/nvalloc/unix/include/nv-ioctl*.h)
echo "set -e" > "$work/all.sh"
unit rm "src/common/sdk/nvidia/inc src/common/shared/inc src/nvidia/arch/nvalloc/unix/include" $rm
unit uvm "kernel-open/common/inc kernel-open/nvidia-uvm" \
    kernel-open/nvidia-uvm/uvm_ioctl.h kernel-open/nvidia-uvm/uvm_linux_ioctl.h
unit modeset "src/nvidia-modeset/interface src/common/sdk/nvidia/inc src/common/inc src/common/unix/common/inc" \
    $(cd "$work" && ls src/nvidia-modeset/interface/*.h)
# What the drm unit needs of the system's DRM headers, so that both parse it everywhere.
mkdir -p "$work/stubs/drm"
cat > "$work/stubs/drm/drm.h" <<'H'
#include <stdint.h>
#include <linux/types.h>
#include <linux/ioctl.h>
#define DRM_COMMAND_BASE 0x40
#define DRM_IOWR(nr, type) _IOWR('d', nr, type)
#define DRM_IOW(nr, type) _IOW('d', nr, type)
#define DRM_IOR(nr, type) _IOR('d', nr, type)
#define DRM_IO(nr) _IO('d', nr)
H
unit drm "kernel-open/common/inc stubs" kernel-open/nvidia-drm/nvidia-drm-ioctl.h
bash "$work/all.sh"

# Seconds of processor time (user and system) and KiB of one run.
once() { /usr/bin/time -f '%U %S %M' -o "$work/time" "$@" > /dev/null 2>&1
         awk '{ printf "%.3f %d\n", $1 + $2, $3 }' "$work/time"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for _ in $(seq "$runs"); do
    once bash "$work/all.sh" >> "$work/clang.txt"
    once "$nvabi" extract "$tag" --json --no-constants >> "$work/records.txt"
    once "$nvabi" extract "$tag" --json >> "$work/everything.txt"
done
base=$(cut -d' ' -f1 "$work/clang.txt" | median)
printf '%-26s %8s %8s %10s\n' "" "cpu s" "ratio" "peak MiB"
for what in clang records everything; do
    time=$(cut -d' ' -f1 "$work/$what.txt" | median)
    peak=$(cut -d' ' -f2 "$work/$what.txt" | median)
    awk -v w="$what" -v t="$time" -v b="$base" -v p="$peak" \
        'BEGIN { printf "%-26s %8.3f %8.2f %10.1f\n", w, t, t / b, p / 1024 }'
done
