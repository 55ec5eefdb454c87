#!/bin/sh
# Installs libnvabi_alloc, its headers and its pkg-config file.
#
#   devmem/c/install.sh PREFIX [LIBRARY]
#
# Afterwards `ldconfig` makes a library below /usr or /usr/local known; below another PREFIX, LD_LIBRARY_PATH does.
#
# LIBRARY is what `cargo build --release --package nvabi-devmem-c` made, unless given. DESTDIR goes before PREFIX.
set -eu

prefix=${1:?PREFIX}
here=$(cd "$(dirname "$0")" && pwd)
library=${2:-${CARGO_TARGET_DIR:-$here/../../target}/release/libnvabi_alloc.so}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
to=${DESTDIR:-}$prefix
install -D -m 644 -t "$to/include" "$here/../include/nvabi-alloc.h" "$here/../include/nvabi-devmem.h"
# Programs ask for the version of the interface, compilers for the newest one.
interface=$(sed -n 's/^#define NVABI_ALLOC_VERSION \([0-9]*\)$/\1/p' "$here/../include/nvabi-alloc.h")
install -D -m 755 "$library" "$to/lib/libnvabi_alloc.so.$interface"
ln -sf "libnvabi_alloc.so.$interface" "$to/lib/libnvabi_alloc.so"
mkdir -p "$to/lib/pkgconfig"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/nvabi-alloc.pc.in" >"$to/lib/pkgconfig/nvabi-alloc.pc"
