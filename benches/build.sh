#!/usr/bin/env bash
# How long the root package takes to build once its dependencies are built, beside rustc on what
# bindgen makes of the same headers, and how long a stranger's first build takes.
#
#   [NVABI_HEADERS=path/to/headers.git] benches/build.sh [RUNS]
#
# Asked: build script ≤ 0.3 s, cargo check ≤ 1.5 s, with `full` ≤ 6 s, with `all-drivers` ≤ 10 s; a
# cold build at most 30 crates in ≤ 15 s on two cores. Runs alternate; medians are printed. The checks
# do not run the build script again.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-7}
export CARGO_TARGET_DIR=$(mktemp -d)
work=$(mktemp -d)
trap 'rm -rf "$CARGO_TARGET_DIR" "$work"' EXIT
seconds() { /usr/bin/time -f %e -o "$work/time" "$@" > /dev/null 2>&1 || { "$@"; exit 1; }; cat "$work/time"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

cargo fetch --locked --quiet
cold=$(seconds cargo build --offline --features driver-550)
crates=$(ls "$CARGO_TARGET_DIR/debug/.fingerprint" | sed 's/-[0-9a-f]*$//' | sort -u | wc -l)

cargo check --quiet --offline --features driver-550
cargo check --quiet --offline --features driver-550,full
cargo check --quiet --offline --features all-drivers
all=$(sed -n 's/^driver-\([0-9]*\) = .*/CARGO_FEATURE_DRIVER_\1=1/p' Cargo.toml)
script=$(ls -t "$CARGO_TARGET_DIR"/debug/build/nvabi-*/build-script-build | head -1)
mkdir "$work/out"

# The peer: bindgen's Rust for the types that the closure has, and for everything, with layout tests.
peer=no
if [ -n "${NVABI_HEADERS:-}" ] && command -v bindgen > /dev/null; then
    peer=yes
    git -C "$NVABI_HEADERS" archive 550.163.01 src/common src/nvidia/arch/nvalloc/unix/include | tar x -C "$work"
    inc=$work/src/common/sdk/nvidia/inc
    (for h in "$inc"/*.h "$inc"/{alloc,class,ctrl}/*.h "$inc"/ctrl/*/*.h; do echo "#include \"$h\""; done) > "$work/all.h"
    # What bindgen is given is surface rm, so that is what it is compared with.
    git clone --quiet . "$work/rm"
    for spec in "$work"/rm/abi-specs/driver-*.toml; do
        awk 'BEGIN { keep = 1 } /^\[/ { keep = $0 !~ /^\[(surface\.(uvm|modeset|drm)|uvm)\]/ } keep' "$spec" > "$work/spec"
        cp "$work/spec" "$spec"
    done
    alone() { (cd "$work/rm" && CARGO_TARGET_DIR=$work/rm/target "$@"); }
    alone cargo check --quiet --offline --features driver-550,full
    bindgen "$work/all.h" --rust-target 1.85 --rust-edition 2024 -o "$work/all.rs" -- -ffreestanding -I"$inc" \
        -I"$work/src/common/shared/inc" -I"$work/src/nvidia/arch/nvalloc/unix/include" 2> /dev/null
fi

for _ in $(seq "$runs"); do
    OUT_DIR=$work/out CARGO_FEATURE_DRIVER_550=1 seconds "$script" >> "$work/script.txt"
    OUT_DIR=$work/out seconds env $all "$script" >> "$work/script-all.txt"
    touch src/lib.rs
    seconds cargo check --offline --features all-drivers >> "$work/all.txt"
    touch src/lib.rs
    seconds cargo check --offline --features driver-550 >> "$work/check.txt"
    touch src/lib.rs
    seconds cargo check --offline --features driver-550,full >> "$work/full.txt"
    if [ "$peer" = yes ]; then
        touch "$work/rm/src/lib.rs"
        alone seconds cargo check --offline --features driver-550,full >> "$work/rm.txt"
        seconds rustc --edition 2024 --crate-type lib --emit=metadata -A warnings "$work/all.rs" \
            -o "$work/all.rmeta" >> "$work/bindgen.txt"
    fi
done
echo "cold build, driver-550:      $cold s, $crates crates"
echo "build script, driver-550:    $(median < "$work/script.txt") s"
echo "build script, all-drivers:   $(median < "$work/script-all.txt") s"
echo "cargo check, all-drivers:    $(median < "$work/all.txt") s"
echo "cargo check, driver-550:     $(median < "$work/check.txt") s"
echo "cargo check, full:           $(median < "$work/full.txt") s"
if [ "$peer" = yes ]; then
    echo "cargo check, full, rm alone: $(median < "$work/rm.txt") s"
    echo "rustc on bindgen's output:   $(median < "$work/bindgen.txt") s (all of rm)"
else
    echo "rustc on bindgen's output:   skipped: needs NVABI_HEADERS and bindgen (cargo install bindgen-cli)"
fi
