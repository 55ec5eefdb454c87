#!/usr/bin/env bash
# Gets headers of NVIDIA's driver from Debian's archive, where the driver's open part is a source package,
# and prints the folder that they are in: what NVABI_HEADERS is to be set to.
#
#   export NVABI_HEADERS=$(tests/debian_headers.sh [FOLDER])
#
# FOLDER is target/debian-headers unless given; it gets a folder for each version that the lock knows, the
# newest two at least. Debian alone, see debian.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/target}/debian-headers}
package=nvidia-open-gpu-kernel-modules
suites="bookworm trixie sid experimental"
# At least so many versions, or it fails.
least=2

. "$here/tests/debian.sh"
# The folders of `folder` that are complete.
there() { find "$folder" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*' | wc -l; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ "$(there)" -ge "$least" ]; then
    echo "$folder"
    exit
fi
work=$(mktemp -d "$folder/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/get"
archive "$work" deb-src "$suites" contrib "set NVABI_HEADERS to a clone of the driver"

versions=$(apt-cache "${own[@]}" showsrc --only-source "$package" | sed -n 's/^Version: //p' | sort -Vu)
for version in $versions; do
    tag=${version%-*}
    is_known "$tag" || continue
    [ -d "$folder/$tag" ] && continue
    # Of a version that several suites have, one may be gone from the archive already.
    (cd "$work/get" && apt-get "${own[@]}" source -qq --download-only --tar-only --only-source "$package=$version" >&2) ||
        continue
    mkdir "$work/$tag"
    tar -xf "$work/get/${package}_$tag.orig.tar".* -C "$work/$tag" --strip-components=1
    [ -d "$work/$tag/src/common/sdk/nvidia/inc" ] || fail "$package $version holds no src/common/sdk/nvidia/inc"
    mv "$work/$tag" "$folder/$tag"
done
[ "$(there)" -ge "$least" ] || fail "of $package there are $(there) versions in $suites that the lock knows"
echo "$folder"
