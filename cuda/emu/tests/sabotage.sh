#!/usr/bin/env bash
# Breaks one semantic of machine code after the other, and expects that a test of instructions or kernels fails.
# Works on a copy of the working tree; takes a minute for each.
#
#     cuda/emu/tests/sabotage.sh
set -euo pipefail
cd "$(dirname "$0")/../../.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents --no-dereference -t "$copy"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
emu=$copy/cuda/emu/src
survived=0

# file | what stands there | what takes its place
while IFS='|' read -r file old new; do
    [ -n "$file" ] || continue
    cp "$emu/$file" "$copy/saved"
    OLD=$old NEW=$new perl -0pi -e 's/\Q$ENV{OLD}\E/$ENV{NEW}/ or die "not found: $ENV{OLD}\n"' "$emu/$file"
    if (cd "$copy" && cargo test --quiet --package nvabi-emu --test instructions >/dev/null 2>&1); then
        echo "survives: $file: $old -> $new"
        survived=1
    else
        echo "found: $file: $old -> $new"
    fi
    cp "$copy/saved" "$emu/$file"
done <<'TABLE'
sass/compute/integers.rs|u32::from(sum >> 32 >= 1)|u32::from(sum >> 32 >= 2)
sass/compute/integers.rs|u32::from(sum >> 64 != 0)|u32::from(sum >> 63 != 0)
sass/compute/integers.rs|>> by.min(63)|>> by.min(31)
sass/compute/integers.rs|i.b[lane].min(bits)|i.b[lane] & 31
sass/compute/integers.rs|if m.signed && (value as i32) < 0 { !value }|if m.signed && (value as i32) < 0 { value }
sass/compute/integers.rs|(m.number & 31)|(m.number & 15)
sass/compute/floats.rs|b.is_nan() && !a.is_nan()|b.is_nan()
sass/compute/halves.rs|let one = if m.wide { 0x3f80 } else { 0x3c00 };|let one = 0x3f80;
sass/decode/floats.rs|(Modifier::RP, "rp")|(Modifier::RP, "rn")
sass/decode/floats.rs|(Modifier::CEIL, "rpi")|(Modifier::CEIL, "rni")
sass/decode/mod.rs|Kind::Halves => 0x8000_8000|Kind::Halves => 0x8000
sass/decode/integers.rs|(GEU, [0, 1, 1, 1])|(GEU, [0, 1, 1, 0])
run/sass/wide.rs|here >= by + limit|here > by + limit
run/sass/wide.rs|let lowest = here & segment;|let lowest = 0;
run/sass/wide.rs|Vote::All => yes == mask|Vote::All => yes != 0
run/sass/warp.rs|let mask = active & self.holds(instruction.guard);|let mask = active;
TABLE
exit "$survived"
