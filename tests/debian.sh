# Debian's archive for scripts that take packages out of it and install nothing: to be sourced.
#
# Debian alone: it asks the archive that this machine installs from, for suites and components of the caller's
# choice, with lists of their own: what the machine installs from stays as it is.

# archive WORK TYPE SUITES COMPONENTS INSTEAD: fills the array `own` with the options of apt-get and apt-cache that ask
# this archive alone, and gets its lists into the folder WORK. TYPE is deb or deb-src; INSTEAD is what to set where
# there is no such archive.
archive() {
    local work=$1 type=$2 suites=$3 components=$4 instead=$5 site suite
    command -v apt-get >/dev/null || fail "there is no apt-get; $instead"
    . /etc/os-release
    [ "$ID" = debian ] || fail "this is $ID, not Debian; $instead"
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
    [ -n "$site" ] || fail "apt has no list of $VERSION_CODENAME; run apt-get update"
    mkdir -p "$work/lists/partial"
    for suite in $suites; do
        echo "$type [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite $components"
    done >"$work/sources.list"
    own=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -o Acquire::Languages=none
        -o Acquire::Retries=3)
    # A suite that the archive no longer has is no reason to fail: what counts is which versions come.
    apt-get "${own[@]}" update -qq >"$work/update.log" 2>&1 || cat "$work/update.log" >&2
}

fail() { echo "${0##*/}: $*" >&2; exit 1; }

# is_known VERSION: whether the lock has it.
is_known() {
    awk -v tag="$1" '$1 == tag { found = 1 } END { exit !found }' "${BASH_SOURCE%/*}/../abi-specs/lock/tags"
}
