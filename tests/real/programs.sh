#!/usr/bin/env bash
# Runs one of the programs of a version of NVIDIA's user space, with what makes it ask the driver for most.
#
#   programs.sh PROGRAM FOLDER
#
# PROGRAM is one of those below; FOLDER is one that fetch.sh prints. Exit status 77: the version or this machine has no
# such program. What the programs print and how they end does not matter: the audit of their calls does.
set -u

program=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH=$folder/lib PYTHONPATH=$folder/../python
has() { command -v "$1" >/dev/null || exit 77; }

case $program in
    nvidia-smi)
        smi=$folder/bin/nvidia-smi
        "$smi"
        "$smi" -q
        "$smi" -L
        # What can be set, then what there is to list.
        for words in "-pm 1" "-c 3" "-am 1" "-e 0" "topo -m" "nvlink -s" "mig -lgip" "dmon -c 1" "pmon -c 1"; do
            # shellcheck disable=SC2086
            "$smi" $words
        done
        ;;
    nvml)
        has python3
        [ -e "$PYTHONPATH/pynvml.py" ] || exit 77
        python3 "$here/nvml.py"
        ;;
    nvidia-smi-mig)
        smi=$folder/bin/nvidia-smi
        # An instance of all of the memory, one of half of it, and back.
        for words in "-i 0 -mig 1" "-i 0 -r" "mig -lgip" "mig -lgipp" "mig -i 0 -cgi 9 -C" "mig -lgi" "mig -lcip" \
            "mig -lci" "-L" "mig -i 0 -dci" "mig -i 0 -dgi" "-i 0 -mig 0" "-i 0 -r"; do
            # shellcheck disable=SC2086
            "$smi" $words
        done
        ;;
    libcuda)
        has python3
        python3 "$here/copies.py"
        python3 "$here/kernels.py" "$here/../../cuda/kernels/ptx"
        ;;
    opencl)
        has python3
        [ -e "$folder/lib/libnvidia-opencl.so.1" ] || exit 77
        python3 "$here/opencl.py"
        [ ! -x "$folder/../clinfo/clinfo" ] || LD_LIBRARY_PATH=$folder/../clinfo:$folder/lib \
            OCL_ICD_VENDORS=libnvidia-opencl.so.1 "$folder/../clinfo/clinfo"
        ;;
    gpustat)
        has python3
        [ -e "$folder/../tools/gpustat" ] || exit 77
        PYTHONPATH=$folder/../tools python3 -m gpustat
        ;;
    nvitop)
        has python3
        [ -e "$folder/../tools/nvitop" ] || exit 77
        PYTHONPATH=$folder/../tools TERM=dumb python3 -m nvitop -1
        ;;
    nvtop)
        has script
        [ -x "$folder/../nvtop/nvtop" ] || exit 77
        TERM=xterm script -qec "timeout 3 '$folder/../nvtop/nvtop'" /dev/null </dev/null
        ;;
    *)
        echo "programs.sh: unknown program $program" >&2
        exit 2
        ;;
esac >&2
exit 0
