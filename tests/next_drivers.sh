#!/usr/bin/env bash
# Whether the tests still pass once new drivers are locked: adds one to every branch, and one of a
# new branch, to a copy of this tree, and runs the tests there.
#
#   NVABI_HEADERS=path/to/headers.git tests/next_drivers.sh [TEST ARGUMENTS]
#
# The new drivers are made up: the newest headers of the branch under a number that none has.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${NVABI_HEADERS:?set NVABI_HEADERS to a git repository of the driver}"
# The new drivers are of no use to a test that is ignored.
export NVABI_REQUIRE=${NVABI_REQUIRE:-headers,all-headers,clang}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work"
x86=${NVABI_HEADERS%%:*}
git clone --quiet --bare --shared "$x86" "$work/headers.git"
NVABI_HEADERS=$work/headers.git${NVABI_HEADERS#"$x86"}

cargo build --quiet --locked --package nvabi-cli --features headers
cp "$CARGO_TARGET_DIR/debug/nvabi" "$work/nvabi"
cd "$work"
tags() { awk '$1 ~ /^[0-9]/ { print $1 }' abi-specs/lock/tags; }
# Of each branch its newest tag, and what stands for the next one.
next() { tags | awk -F. '{ newest[$1] = $0 } END { for (branch in newest) print newest[branch], branch ".999.01" }' | sort -V; }
add() { git -C headers.git tag "$2" "$1^{}" && ./nvabi add "$2" --out text.md --no-snapshots; }
newest=$(tags | tail -1)
while read -r from new; do add "$from" "$new"; done < <(next)
branch=$((${newest%%.*} + 5)).1.01
add "$newest" "$branch"
# Once more, for the snapshots of all.
./nvabi add "$branch" --out text.md
cargo test --locked --workspace --features nvabi-cli/all "$@"
