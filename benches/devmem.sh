#!/usr/bin/env bash
# How fast capability sets are derived, beside a port of the C library's algorithm in the same program:
# medians of runs that take turns. Asked: 5 times as fast with 64 x 64 sets, twice with 2 x 4. Exit
# status 1 when it is not.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --release --package nvabi-devmem --example derive
exec "${CARGO_TARGET_DIR:-target}/release/examples/derive"
