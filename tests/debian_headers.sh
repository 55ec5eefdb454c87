#!/usr/bin/env bash
# Gets headers of NVIDIA's driver from Debian's archive, where the driver's open part is a source package,
# and prints the folder that they are in: what NVABI_HEADERS is to be set to.
#
#   export NVABI_HEADERS=$(tests/debian_headers.sh [FOLDER])
#
# FOLDER is target/debian-headers unless given; it gets a folder for each version that the lock knows, the
# newest two at least. Debian alone: it asks the archive that this machine installs from, for suites of its
# choice, with lists of its own: what the machine installs from stays as it is.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/target}/debian-headers}
package=nvidia-open-gpu-kernel-modules
suites="bookworm trixie sid experimental"
# At least so many versions, or it fails.
least=2

fail() { echo "debian_headers.sh: $*" >&2; exit 1; }
# The folders of `folder` that are complete.
there() { find "$folder" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*' | wc -l; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ "$(there)" -ge "$least" ]; then
    echo "$folder"
    exit
fi
command -v apt-get >/dev/null || fail "there is no apt-get; set NVABI_HEADERS to a clone of the driver"
. /etc/os-release
[ "$ID" = debian ] || fail "this is $ID, not Debian; set NVABI_HEADERS to a clone of the driver"
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
[ -n "$site" ] || fail "apt has no list of $VERSION_CODENAME; run apt-get update"

work=$(mktemp -d "$folder/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/get"
for suite in $suites; do
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite contrib"
done >"$work/sources.list"
own=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -o Acquire::Languages=none
    -o Acquire::Retries=3)
# A suite that the archive no longer has is no reason to fail: what counts is how many versions come.
apt-get "${own[@]}" update -qq >"$work/update.log" 2>&1 || cat "$work/update.log" >&2

versions=$(apt-cache "${own[@]}" showsrc --only-source "$package" | sed -n 's/^Version: //p' | sort -Vu)
for version in $versions; do
    tag=${version%-*}
    awk -v tag="$tag" '$1 == tag { found = 1 } END { exit !found }' "$here/abi-specs/lock/tags" || continue
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
