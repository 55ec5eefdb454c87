#!/usr/bin/env bash
# Puts CUDA 12.4 with NVIDIA's own compiler into a folder, as toolkit13.sh does with 13: for programs that run on drivers
# of CUDA 12. nvcc and what it calls are Debian's; headers, libdevice, NVRTC and the runtime come from PyPI. The static
# runtime is that of 12.9, as older packages have none. The device runtime (libcudadevrt.a), which a program that launches
# kernels from kernels needs, is empty: this nvlink refuses that of 12.9, and that of 12.4 is in Debian's nvidia-cuda-dev
# alone, of 934 MB. 210 MB; nothing is installed. Does nothing where the folder is there. More of NVIDIA's packages can be
# named, for their headers and libraries.
#
#     cuda/toolkit12.sh DIR [PACKAGE…]            # nvidia-cublas-cu12==12.4.5.8 nvidia-cufft-cu12==11.2.1.3
#     DIR/bin/nvcc -arch=sm_80 program.cu -o program
#
# Debian alone, see ../tests/debian.sh.
set -euo pipefail
to=${1:?"the folder to put CUDA into"}
shift
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tests/debian.sh"

mkdir -p "$(dirname "$to")"
to=$(cd "$(dirname "$to")" && pwd)/$(basename "$to")
exec 9>"$to.lock"
flock 9
if [ -x "$to/bin/nvcc" ]; then
    [ $# = 0 ] && exit 0
    fail "$to is there: name another folder to have $* in it"
fi
[ ! -e "$to" ] || fail "$to is there and has no nvcc: name another folder"
work=$(mktemp -d "$to.XXXXXX")
trap 'rm -rf "$work"' EXIT

get() {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work/$1" "${@:2}"
    for wheel in "$work/$1"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/$1"
    done
}
get static nvidia-cuda-runtime-cu12==12.9.79
get wheels nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-nvrtc-cu12==12.4.127 \
    nvidia-cuda-cccl-cu12==12.6.77 nvidia-curand-cu12==10.3.4.101 nvidia-cuda-profiler-api-cu12==12.4.127
[ $# = 0 ] || get more "$@"
archive "$work" deb trixie non-free "take another CUDA 12"
(cd "$work" && apt-get "${own[@]}" download -qq nvidia-cuda-toolkit=12.4.131~12.4.1-2)
dpkg -x "$work"/nvidia-cuda-toolkit_*.deb "$work/debian"

cuda=$work/cuda
mkdir -p "$cuda/bin" "$cuda/include" "$cuda/lib64" "$cuda/nvvm/bin"
# Of cuRAND the headers are wanted, because much of it is in them.
for part in "$work"/{wheels,more}/nvidia/*/; do
    cp -r "$part"include/. "$cuda/include/" 2>/dev/null || true
done
cp "$work"/more/nvidia/*/lib/lib*.so.* "$cuda/lib64/" 2>/dev/null || true
cp "$work"/wheels/nvidia/cuda_{runtime,nvrtc}/lib/lib* "$cuda/lib64/"
cp "$work"/static/nvidia/cuda_runtime/lib/lib{cudart_static,culibos}.a "$cuda/lib64/"
# nvcc links every program with it.
printf '!<arch>\n' >"$cuda/lib64/libcudadevrt.a"
cp -r "$work/wheels/nvidia/cuda_nvcc/nvvm/libdevice" "$cuda/nvvm/"
# /usr/bin/nvcc is Debian's script, which calls this one.
for tool in bin2c cudafe++ fatbinary nvlink ptxas; do
    cp "$work/debian/usr/bin/$tool" "$cuda/bin/"
done
cp -r "$work"/debian/usr/lib/nvidia-cuda-toolkit/bin/{crt,nvcc} "$cuda/bin/"
cp "$work/debian/usr/lib/nvidia-cuda-toolkit/bin/cicc" "$cuda/nvvm/bin/"
cat >"$cuda/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
for library in "$cuda"/lib64/*.so.*; do
    ln -sf "${library##*/}" "${library%%.so.*}.so"
done
mv "$cuda" "$to"
