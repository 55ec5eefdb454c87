#!/usr/bin/env bash
# Whether a typed ioctl costs anything: its instructions beside those of one written by hand.
# Needs objdump. Exit status 1 when they differ.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --release --features tegra --example ioctl_cost
program="${CARGO_TARGET_DIR:-target}/release/examples/ioctl_cost"

# Mnemonics and operands, without addresses. Two functions of the same instructions are often one.
instructions() {
    objdump --disassemble="$1" --no-show-raw-insn --no-addresses "$program" |
        sed -n '/^<.*>:$/,$p' | tail -n +2 |
        sed -E 's/0x[0-9a-f]+\(%rip\) *# <([^>]*)>/\1/; s/[0-9a-f]+ <([^+>]*)[^>]*>/<\1>/; s/ +$//; /^$/d; /^Disassembly/d'
}
symbol() { nm "$program" | awk -v name="$1" '$3 == name { print $1 }'; }

typed=$(symbol cost_of_typed)
hand=$(symbol cost_by_hand)
if [ "$typed" = "$hand" ]; then
    echo "one function for both: the linker found the same instructions"
    instructions cost_of_typed
    exit 0
fi
diff <(instructions cost_of_typed | sed 's/cost_of_typed/f/g') \
    <(instructions cost_by_hand | sed 's/cost_by_hand/f/g') && {
    instructions cost_of_typed
    echo "the same $(instructions cost_of_typed | wc -l) instructions"
}
