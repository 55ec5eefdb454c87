#!/usr/bin/env bash
# Whether a typed ioctl costs anything: its instructions beside those of one written by hand, for each
# way into a driver. Needs objdump. Exit status 1 when they differ.
# usage: benches/ioctl.sh [PROGRAM]    a build of examples/ioctl_cost.rs; without it, a release build
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -ge 1 ]; then
    program=$1
else
    cargo build --quiet --release --features rm,driver-550,tegra-r36 --example ioctl_cost
    program="${CARGO_TARGET_DIR:-target}/release/examples/ioctl_cost"
fi

# Mnemonics and operands, without addresses and without what a function or its constants are called.
instructions() {
    objdump --disassemble="$1" --no-show-raw-insn --no-addresses "$program" |
        sed -n '/^<.*>:$/,$p' | tail -n +2 |
        sed -E "s/$1/f/g; s/0x[0-9a-f]+\(%rip\) *# <([^>]*)>/\1/; s/[0-9a-f]+ <([^+>]*)[^>]*>/<\1>/;
            s/ +$//; /^\$/d; /^Disassembly/d"
}
symbol() { nm "$program" | awk -v name="$1" '$3 == name { print $1 }'; }

different=0
for name in tegra frontend uvm control; do
    typed=$(symbol "${name}_typed")
    hand=$(symbol "${name}_by_hand")
    if [ -z "$typed" ] || [ -z "$hand" ]; then
        echo "$name: no such functions in $program" >&2
        exit 2
    fi
    # One function has one of the names in objdump's eyes.
    count=$({ instructions "${name}_typed" && instructions "${name}_by_hand"; } | wc -l)
    if [ "$typed" = "$hand" ]; then
        echo "$name: the same: one function for both, $count instructions"
    elif diff <(instructions "${name}_typed") <(instructions "${name}_by_hand"); then
        echo "$name: the same $((count / 2)) instructions"
    else
        echo "$name: different"
        different=1
    fi
done
exit $different
