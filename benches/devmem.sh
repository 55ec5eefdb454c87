#!/usr/bin/env bash
# How fast capability sets are derived, beside a port of the C library's algorithm in the same program:
# medians of runs that take turns. Asked: 5 times as fast with 64 x 64 sets, twice with 2 x 4. Exit
# status 1 when it is not.
#
# NVABI_ALLOCATOR names a checkout of the C library (cubanismo/allocator): it is compiled and measured too.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --release --package nvabi-devmem --example derive
if [ -n "${NVABI_ALLOCATOR:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    c=$NVABI_ALLOCATOR
    cc -O2 -w -shared -fPIC -D_GNU_SOURCE -I"$c/include" -I"$c/src" -I"$c/src/cJSON" -o "$work/liballocator.so" \
        "$c"/src/*.c "$c"/src/constraints/*.c "$c/src/cJSON/cJSON.c" -ldl -lm
    export NVABI_ALLOCATOR_LIBRARY=$work/liballocator.so
fi
"${CARGO_TARGET_DIR:-target}/release/examples/derive"
