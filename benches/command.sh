#!/usr/bin/env bash
# How long the command takes to answer, as whole processes that read the embedded lock.
#
#   benches/command.sh [RUNS] [PROGRAM]
#
# PROGRAM is a release build of the command; without, one is built. Commands run in turn, RUNS times each (default 15),
# in a folder without specs; medians of wall time are printed beside what is asked. Another PROGRAM, such as one of an
# earlier commit, gives figures to compare with on the same machine.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-15}
program=${2:-}
if [ -z "$program" ]; then
    cargo build --quiet --locked --release -p nvabi-cli
    program=${CARGO_TARGET_DIR:-target}/release/nvabi
fi
program=$(realpath "$program")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Milliseconds asked, then the command.
commands=(
    "40 show NVOS54_PARAMETERS"
    "40 show NV_ESC_RM_CONTROL"
    "40 show 0x20803401"
    "40 ranges NVOS21_PARAMETERS"
    "40 ranges NV2080_CTRL_CMD_GR_GET_INFO"
    "40 ranges NVKMS_IOCTL_ALLOC_DEVICE"
    "40 diff 550.40.07 550.163.01"
    "40 diff 530.41.03 535.43.02 --only NVOS21_PARAMETERS"
    "40 diff 530.41.03 535.43.02 --all"
    "40 diff 515.49.25 515.57"
    "300 emit --lang c --tag 550.163.01"
    "300 emit --lang c --tag 550.163.01 --all"
    "300 emit --lang python --tag 550.163.01 --all"
)
for _ in $(seq "$runs"); do
    for i in "${!commands[@]}"; do
        read -ra words <<< "${commands[$i]}"
        start=${EPOCHREALTIME/./}
        # What differs ends with 1.
        "$program" "${words[@]:1}" > "out-$i" 2> "err-$i" || [ $? -eq 1 ]
        echo $((${EPOCHREALTIME/./} - start)) >> "times-$i"
        [ -s "out-$i" ] || { cat "err-$i" >&2; exit 1; }
    done
done
for i in "${!commands[@]}"; do
    read -ra words <<< "${commands[$i]}"
    median=$(sort -n "times-$i" | awk '{ v[NR] = $1 } END { printf "%.0f", v[int((NR + 1) / 2)] / 1000 }')
    printf '%4s ms (asked %3s)  nvabi %s\n' "$median" "${words[0]}" "${words[*]:1}"
done
