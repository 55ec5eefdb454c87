#!/usr/bin/env bash
# How fast capability sets are derived, beside a port of the C library's algorithm in the same program:
# medians of runs that take turns. Asked: 5 times as fast with 64 x 64 sets, twice with 2 x 4. Exit
# status 1 when it is not.
#
# NVABI_ALLOCATOR names a checkout of the C library (https://github.com/cubanismo/allocator), or is `fetch` to clone it:
# it is compiled and measured too.
#
# --instructions counts what a call with 2 x 4 sets takes by callgrind instead, which other work on the machine does
# not change. Asked: 3.5 times fewer than the port.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --release --package nvabi-devmem --example derive
if [ -n "${NVABI_ALLOCATOR:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    c=$NVABI_ALLOCATOR
    if [ "$c" = fetch ]; then
        c=$work/allocator
        git clone --quiet --depth 1 https://github.com/cubanismo/allocator "$c"
    fi
    cc -O2 -w -shared -fPIC -D_GNU_SOURCE -I"$c/include" -I"$c/src" -I"$c/src/cJSON" -o "$work/liballocator.so" \
        "$c"/src/*.c "$c"/src/constraints/*.c "$c/src/cJSON/cJSON.c" -ldl -lm
    export NVABI_ALLOCATOR_LIBRARY=$work/liballocator.so
fi
program=${CARGO_TARGET_DIR:-target}/release/examples/derive
if [ "${1:-}" = --instructions ]; then
    # What is there without a call is the program's beginning.
    counted() {
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | awk '/Collected/ { print $4 }'
    }
    for side in port derive; do
        echo "$side $(((($(counted $side 3000)) - ($(counted $side 1000))) / 2000))"
    done | awk '
        { took[$1] = $2; printf "%-7s %6d instructions\n", $1, $2 }
        END { ratio = took["port"] / took["derive"]; printf "%.2f times\n", ratio; exit ratio < 3.5 }'
    exit
fi
"$program"
