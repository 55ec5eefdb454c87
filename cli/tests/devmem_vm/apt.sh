# Sourced by kernel.sh and mesa.sh, which go on in a folder of their own that is gone when they end; `folder`, where
# what they make goes, is whole from here on. apt has lists of its own, so that what this machine installs from stays as
# it is. Debian's backports (or KERNEL_SUITE) are asked as well.

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"

mkdir -p lists/partial root
cat /etc/apt/sources.list >sources 2>/dev/null || true
. /etc/os-release
prefer=
if [ "$ID" = debian ]; then
    suite=${KERNEL_SUITE:-$VERSION_CODENAME-backports}
    prefer="-t $suite"
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] $site $suite main" >>sources
fi
own="-o Dir::Etc::sourcelist=$PWD/sources -o Dir::State::lists=$PWD/lists"
own="$own -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -o Acquire::Languages=none"
apt-get $own update -qq 2>update.log || cat update.log >&2

newest() { apt-cache $own madison "$1" 2>/dev/null | awk '{ print $3 }' | sort -V | tail -n 1; }
unpack() { for file in *.deb; do dpkg-deb -x "$file" root; rm "$file"; done; }
