#!/usr/bin/env bash
# Builds the book as HTML in target/book, with the atlas in target/book/atlas.
#
#   docs/build.sh               needs mdbook (cargo install mdbook --locked) and builds the command
#   docs/build.sh --no-atlas    the pages alone
#   NVABI=PATH docs/build.sh    the atlas by this command
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v mdbook >/dev/null; then
    echo "mdbook is not installed: cargo install mdbook --locked" >&2
    exit 2
fi
mdbook build docs
# mdBook copies every file beside the pages; these two are no part of the book.
rm -f target/book/book.toml target/book/build.sh
if [ "${1:-}" != --no-atlas ]; then
    ${NVABI:-cargo nvabi} atlas --out target/book/atlas
fi
echo "target/book/index.html"
