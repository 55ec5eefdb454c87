#!/usr/bin/env bash
# clang 19 behind the options of nvcc, for programs and Makefiles of others: `make NVCC=cuda/nvcc.sh`. CUDA_PATH is a
# folder that `toolkit.sh` made. Programs have PTX for sm_80 alone and the shared runtime, as the emulator needs both;
# what speaks of machine code (registers, architectures, ptxas) is left out. A fatbin is the PTX, which the driver
# takes.
set -euo pipefail
cuda=${CUDA_PATH:?"the folder that toolkit.sh (nvabi-toolkit-clang) made"}
command -v clang++-19 >/dev/null || { echo "$0: clang 19 is needed (clang++-19)" >&2 && exit 1; }
mode=link device='' out='' take=() inputs=() libraries=(-L"$cuda/lib64" -l:libcudart.so.12)

while [ $# -gt 0 ]; do
    case $1 in
    -ccbin | --threads | -t | -gencode | -arch | -maxrregcount | -Xptxas | -Xcudafe | -target-dir) shift ;;
    -m64 | -gencode=* | -arch=* | --maxrregcount=* | -maxrregcount=* | --default-stream=* | -cudart=* | --ptxas-options=*) ;;
    -ewp | --extended-lambda | --expt-* | -expt-* | -lineinfo | -G) ;;
    -o) out=$2 && shift ;;
    -c) mode=object ;;
    -dc) mode=object && take+=(-fgpu-rdc) ;;
    -rdc=true) take+=(-fgpu-rdc) ;;
    -ptx | --ptx | -fatbin | --fatbin | -cubin) mode=device ;;
    -Xcompiler) IFS=, read -ra of <<<"$2" && take+=("${of[@]}") && shift ;;
    -Xlinker) libraries+=("-Wl,$2") && shift ;;
    -use_fast_math | --use_fast_math) take+=(-fgpu-approx-transcendentals -fgpu-flush-denormals-to-zero) ;;
    -std=* | --std=*) ;;
    -I | -D | -L) take+=("$1$2") && shift ;;
    -lcudart | -lcudart_static | -lcudadevrt | -lrt) ;;
    -l* | -L*) libraries+=("$1") ;;
    -*) take+=("$1") ;;
    *) inputs+=("$1") ;;
    esac
    shift
done

flags=(-include "$(dirname "$0")/include/nvabi_nvcc.h" -std=c++17 -O2 -fwrapv -gline-tables-only -Wno-everything)
flags+=(-I"$cuda/include" "${take[@]}")
# Machine code is not used, so that none is made: that takes ptxas minutes for some programs, and it refuses others.
device=(-x cuda --cuda-path="$cuda" --cuda-gpu-arch=sm_80 -B"$(dirname "$0")/ptx_only")
case $mode in
device) exec clang++-19 "${device[@]}" --cuda-device-only -S "${flags[@]}" "${inputs[@]}" -o "$out" ;;
object)
    case ${inputs[0]} in *.cu) ;; *) device=() ;; esac
    case ${inputs[0]} in *.c) exec clang-19 -c -O2 -I"$cuda/include" "${take[@]}" "${inputs[@]}" -o "$out" ;; esac
    exec clang++-19 "${device[@]}" -c "${flags[@]}" "${inputs[@]}" -o "$out"
    ;;
link)
    # Sources and objects in one command: only the former are CUDA's.
    sources=() objects=()
    for input in "${inputs[@]}"; do
        case $input in *.cu) sources+=("$input") ;; *) objects+=("$input") ;; esac
    done
    [ ${#sources[@]} -eq 0 ] || sources=("${device[@]}" "${flags[@]}" "${sources[@]}" -x none)
    exec clang++-19 "${sources[@]}" "${objects[@]}" -o "${out:-a.out}" "${libraries[@]}"
    ;;
esac
