#!/usr/bin/env bash
# Unpacks the source of gVisor from Debian's archive into a folder, once, and prints where its checkout is.
#
#   NVABI_GVISOR=$(tests/gvisor.sh target/gvisor) cargo test
#
# Debian's is of July 2024; NVABI_GVISOR may be any checkout. Debian alone, see debian.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?usage: gvisor.sh FOLDER}
package=golang-gvisor-gvisor-dev
suites="bookworm-backports trixie sid"

. "$here/tests/debian.sh"
if [ ! -d "$folder/pkg/sentry/devices/nvproxy" ]; then
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    folder=$(cd "$(dirname "$folder")" && pwd)/${folder##*/}
    work=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    archive "$work" deb "$suites" main "set NVABI_GVISOR to a checkout"
    # Of a version that several suites have, one may be gone from the archive already.
    for version in $(apt-cache "${own[@]}" madison "$package" | awk '{ print $3 }'); do
        (cd "$work" && apt-get "${own[@]}" download -qq "$package=$version" >&2) && break
    done
    dpkg-deb -x "$work/$package"_*.deb "$work/root" || fail "$package cannot be had"
    source=$(find "$work/root" -type d -path '*/gvisor.dev/gvisor' -print -quit)
    mv "${source:?$package holds no gvisor.dev/gvisor}" "$folder"
    [ -d "$folder/pkg/sentry/devices/nvproxy" ] || fail "$package holds no pkg/sentry/devices/nvproxy"
fi
cd "$folder" && pwd
