#!/usr/bin/env bash
# Runs one of the programs of a version of NVIDIA's user space, with what makes it ask the driver for most.
#
#   programs.sh PROGRAM FOLDER
#
# PROGRAM is nvidia-smi, nvml, libcuda or nvidia-persistenced; FOLDER is one that fetch.sh prints. Exit status 77:
# the version or this machine has no such program. What the programs print and how they end does not matter: the
# audit of their calls does.
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
    libcuda)
        has python3
        python3 - <<'PYTHON'
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
print("cuInit", cuda.cuInit(0))
print("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
print("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0))
PYTHON
        ;;
    nvidia-persistenced)
        [ -x "$folder/bin/nvidia-persistenced" ] || exit 77
        # It becomes a service, which its file names.
        "$folder/bin/nvidia-persistenced" --verbose --nvidia-cfg-path="$folder/lib" || exit 0
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.2
            kill "$(cat /var/run/nvidia-persistenced/nvidia-persistenced.pid)" && break
        done
        ;;
    *)
        echo "programs.sh: unknown program $program" >&2
        exit 2
        ;;
esac >&2
exit 0
