#!/usr/bin/env bash
# Gets NVIDIA's own programs and libraries (nvidia-smi, NVML, CUDA's driver library) from Debian's archive, and
# prints the folder of each version, a line each: what NVABI_REAL is to be set to.
#
#   export NVABI_REAL=$(tests/real/fetch.sh [newest | VERSION… | BRANCH…])
#
# VERSION is one of the archive, such as 550.163.01, and BRANCH stands for its newest, such as 550; without any,
# every version of the archive that the lock knows; of these the newest of each branch with `newest`. A folder holds
# `bin` and `lib`. They are put into NVABI_REAL_CACHE, or nvabi/real of the caller's cache, and beside them what PyPI
# has: as `python` what calls NVML from Python, as `tools` public programs that do, as `cupy` CuPy, as `cupti` NVIDIA's
# library for profilers; and of Debian `clinfo` and `nvtop`. Nothing of it is installed, and nothing enters this tree.
#
# Debian alone, see ../debian.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
cache=${NVABI_REAL_CACHE:-${XDG_CACHE_HOME:-${HOME:?set NVABI_REAL_CACHE}/.cache}/nvabi/real}
suites="bookworm bookworm-updates bookworm-backports trixie trixie-updates trixie-backports sid experimental"
# Debian keeps several branches, whose packages have the branch in their names.
branches="- tesla- tesla-535- tesla-550-"
# Without these there is nothing to test; the others are taken where a version has them.
needed="nvidia-%smi libnvidia-%ml1 libcuda1 libnvidia-%cuda1"
others="libnvidia-%ptxjitcompiler1 libnvidia-%nvvm4 libnvidia-%cfg1 nvidia-%opencl-icd nvidia-%cuda-mps
    libnvidia-%nvcuvid1 libnvidia-%encode1 nvidia-persistenced"

. "$here/tests/debian.sh"
# A folder that is complete: it is moved to its place when it is.
is_there() { [ -x "$cache/$1/bin/nvidia-smi" ]; }

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
case $cache/ in
    "$here"/target/*) ;;
    "$here"/*) fail "$cache is inside of the tree: set NVABI_REAL_CACHE to a folder elsewhere" ;;
esac

if [ ! -e "$cache/python/pynvml.py" ]; then
    wheels=$(mktemp -d "$cache/.work.XXXXXX")
    if python3 -m pip download -q --disable-pip-version-check --no-deps -d "$wheels" nvidia-ml-py >&2 &&
        python3 -m zipfile -e "$wheels"/nvidia_ml_py-*.whl "$wheels/python" >&2; then
        rm -rf "$cache/python"
        mv "$wheels/python" "$cache/python"
    else
        echo "fetch.sh: no nvidia-ml-py from PyPI: what calls NVML from Python is not tested" >&2
    fi
    rm -rf "$wheels"
fi

# CuPy, with no compiler of kernels beside it: 140 MB.
if [ ! -e "$cache/cupy/cupy" ]; then
    wheels=$(mktemp -d "$cache/.work.XXXXXX")
    if python3 -m pip install -q --disable-pip-version-check --only-binary :all: --target "$wheels/cupy" \
        cupy-cuda12x nvidia-cuda-runtime-cu12 >&2; then
        rm -rf "$cache/cupy"
        mv "$wheels/cupy" "$cache/cupy"
    else
        echo "fetch.sh: no cupy-cuda12x from PyPI: CuPy's arrays are not tested" >&2
    fi
    rm -rf "$wheels"
fi

if [ ! -e "$cache/cupti/lib" ]; then
    wheels=$(mktemp -d "$cache/.work.XXXXXX")
    # Of the oldest branch that takes all of CUDA 12: newer ones take it too.
    if python3 -m pip download -q --disable-pip-version-check --no-deps -d "$wheels" nvidia-cuda-cupti-cu12==12.4.127 >&2 &&
        python3 -m zipfile -e "$wheels"/*.whl "$wheels/wheel" >&2; then
        rm -rf "$cache/cupti"
        mv "$wheels/wheel/nvidia/cuda_cupti" "$cache/cupti"
    else
        echo "fetch.sh: no nvidia-cuda-cupti-cu12 from PyPI: what profilers record is not tested" >&2
    fi
    rm -rf "$wheels"
fi

# NVML's header says of each function what it may answer. Of version 13 on, it lacks functions of these libraries.
if [ ! -e "$cache/nvml/nvml.h" ]; then
    header=$(mktemp -d "$cache/.work.XXXXXX")
    if python3 -m pip download -q --disable-pip-version-check --no-deps -d "$header" nvidia-nvml-dev-cu12 >&2 &&
        python3 -m zipfile -e "$header"/*.whl "$header/wheel" >&2; then
        rm -rf "$cache/nvml"
        mv "$header/wheel/nvidia/nvml_dev/include" "$cache/nvml"
    else
        echo "fetch.sh: no nvidia-nvml-dev-cu12 from PyPI: what NVML answers is not held against its documentation" >&2
    fi
    rm -rf "$header"
fi

# Programs of others that read NVML; for the examples too.
if [ ! -e "$cache/tools/nvitop_exporter" ]; then
    tools=$(mktemp -d "$cache/.work.XXXXXX")
    if python3 -m pip install -q --disable-pip-version-check --target "$tools/tools" gpustat nvitop nvitop-exporter >&2
    then
        rm -rf "$cache/tools"
        mv "$tools/tools" "$cache/tools"
    else
        echo "fetch.sh: no gpustat, nvitop and nvitop-exporter from PyPI: they are not tested" >&2
    fi
    rm -rf "$tools"
fi

# What lists OpenCL's platforms, and the loader that it asks, of the release that this machine installs from.
if [ ! -e "$cache/clinfo/clinfo" ]; then
    packages=$(mktemp -d "$cache/.work.XXXXXX")
    if (cd "$packages" && apt-get -o APT::Sandbox::User=root download -qq clinfo ocl-icd-libopencl1) >&2; then
        mkdir "$packages/clinfo"
        for package in "$packages"/*.deb; do dpkg -x "$package" "$packages/root"; done
        find "$packages/root" \( -path '*/bin/clinfo' -o -path '*/lib/*/libOpenCL.so.*' \) \
            -exec cp -a {} "$packages/clinfo/" \;
        rm -rf "$cache/clinfo"
        mv "$packages/clinfo" "$cache/clinfo"
    else
        echo "fetch.sh: no clinfo from Debian: OpenCL's loader is not tested" >&2
    fi
    rm -rf "$packages"
fi

# Of contrib, which a machine seldom has among its sources.
if [ ! -e "$cache/nvtop/nvtop" ]; then
    packages=$(mktemp -d "$cache/.work.XXXXXX")
    if (
        . /etc/os-release &&
            archive "$packages" deb "${VERSION_CODENAME:-}" "main contrib" "nvtop is not tested" &&
            cd "$packages" && apt-get "${own[@]}" download -qq nvtop
    ) >&2; then
        dpkg -x "$packages"/nvtop_*.deb "$packages/root"
        mkdir "$packages/nvtop"
        find "$packages/root" -path '*/bin/nvtop' -exec cp -a {} "$packages/nvtop/" \;
        rm -rf "$cache/nvtop"
        mv "$packages/nvtop" "$cache/nvtop"
    else
        echo "fetch.sh: no nvtop from Debian: it is not tested" >&2
    fi
    rm -rf "$packages"
fi

# Versions that are named and that are there need no archive.
if [ $# -gt 0 ] && [ "$1" != newest ]; then
    left=
    for version in "$@"; do is_there "$version" || left="$left $version"; done
    if [ -z "$left" ]; then
        for version in "$@"; do echo "$cache/$version"; done
        exit
    fi
fi

work=$(mktemp -d "$cache/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
archive "$work" deb "$suites" "contrib non-free" "set NVABI_REAL to folders with bin/nvidia-smi and lib"

# Lines of package, Debian's version and NVIDIA's.
packages=
for branch in $branches; do
    for package in $needed $others; do
        packages="$packages ${package/\%/${branch#-}}"
    done
done
# shellcheck disable=SC2086
apt-cache "${own[@]}" madison $(printf '%s\n' $packages | sort -u) 2>/dev/null | awk -F ' *[|] *' '
    { name = $1; sub(/^ */, "", name); tag = $2; sub(/^[0-9]+:/, "", tag); sub(/-.*/, "", tag); print name, $2, tag }' |
    sort -u >"$work/available"

# The version of a package that has NVIDIA's version, the newest of Debian's.
debian_version() { awk -v name="$1" -v tag="$2" '$1 == name && $3 == tag { print $2 }' "$work/available" | sort -V | tail -n 1; }

# Unpacks a package of a version where the archive has it.
unpack() {
    local version
    version=$(debian_version "$1" "$2")
    [ -n "$version" ] || return 0
    mkdir -p "$work/get"
    (cd "$work/get" && apt-get "${own[@]}" download -qq "$1=$version" >&2) || return 0
    dpkg -x "$work/get/$1"_*.deb "$work/$2.root"
    rm -f "$work/get/$1"_*.deb
}

fetch() {
    local version=$1 branch package
    for branch in $branches; do
        [ -n "$(debian_version "nvidia-${branch#-}smi" "$version")" ] || continue
        for package in $needed $others; do unpack "${package/\%/${branch#-}}" "$version"; done
        break
    done
    [ -d "$work/$version.root" ] || return 1
    # Debian puts each branch into folders of its own, and lets the administrator choose.
    mkdir -p "$work/$version/bin" "$work/$version/lib"
    find "$work/$version.root" -path '*/lib/*' \( -name '*.so' -o -name '*.so.*' \) -exec cp -an {} "$work/$version/lib/" \;
    find "$work/$version.root" -path '*/bin/*' -type f -exec cp -a {} "$work/$version/bin/" \;
    [ -e "$work/$version/bin/nvidia-smi" ] ||
        find "$work/$version.root" -type f -name nvidia-smi -exec cp -a {} "$work/$version/bin/" \;
    for file in bin/nvidia-smi lib/libnvidia-ml.so.1 lib/libcuda.so.1; do
        [ -e "$work/$version/$file" ] || fail "the packages of $version hold no $file"
    done
    rm -rf "${cache:?}/$version"
    mv "$work/$version" "$cache/$version"
}

known=$(awk '$1 ~ /smi$/ { print $3 }' "$work/available" | sort -Vu)
locked=$(for version in $known; do if is_known "$version"; then echo "$version"; fi; done)
[ -n "$locked" ] || fail "the archive has ${known:-no version}, of which the lock knows none"
# They are in the order of versions: the last of a branch is its newest.
newest=$(awk -F. '{ newest[$1] = $0 } END { for (branch in newest) print newest[branch] }' <<<"$locked")
case ${1:-} in
    # shellcheck disable=SC2086
    '') set -- $locked ;;
    # shellcheck disable=SC2086
    newest) set -- $newest ;;
esac
for version in "$@"; do
    case $version in
        *.*) ;;
        *)
            branch=$version
            version=$(grep "^$branch[.]" <<<"$newest") || fail "of branch $branch the archive has none that the lock knows"
            ;;
    esac
    is_there "$version" || fetch "$version" ||
        fail "the archive has no $version; it has" $known
    echo "$cache/$version"
done
