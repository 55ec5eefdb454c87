#!/usr/bin/env bash
# What `nvabi sniff` adds to a call, in microseconds: to ioctls on a file that is of interest and to
# ioctls on others, to opening and closing others, by ptrace and by notification, recorded or told; and to
# calls that nobody looks at: terminals' requests, where no other files are asked for, and those of no file.
#
#   benches/sniff.sh [RUNS] [CALLS]
#
# Runs alternate, and medians are compared. A program that makes no call is taken off, so that what starting
# costs does not count; that is told by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
calls=${2:-200000}
nvabi=${NVABI:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/nvabi}
[ -n "${NVABI:-}" ] || cargo build --quiet --release --package nvabi-cli
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -static -pthread tests/sniff/program.c -o "$work/program"

sniff() { "$nvabi" sniff --method "$method" ${path:+--path "$path"} "$@"; }
record() { sniff --record "$work/record" -- "$@"; }
told() { sniff --out "$work/told" -- "$@"; }
summed() { sniff --summary --out "$work/told" -- "$@"; }
plain() { "$@"; }

# HOW METHOD WHAT CALLS: adds a line of microseconds to the file of that name
measure() {
    local how=$1 method=$2 path='/dev/*ptmx' begin end
    [ "$3" != terminals ] || path=
    begin=${EPOCHREALTIME/./}
    "$how" "$work/program" "$3" "$4" 2>"$work/said" || { echo "skipped: $how by $method: $(tail -1 "$work/said")" >&2; return 1; }
    end=${EPOCHREALTIME/./}
    echo $((end - begin)) >>"$work/$how.$method.$3.$4"
}
median() { sort -n "$work/$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

cases="plain:none told:ptrace record:ptrace summed:ptrace told:notify record:notify"
methods=""
for case in $cases; do
    if measure "${case%:*}" "${case#*:}" none 0; then methods="$methods $case"; fi
done
for _ in $(seq "$runs"); do
    for case in $methods; do
        for what in calls other opened terminals none; do
            measure "${case%:*}" "${case#*:}" "$what" "$calls"
        done
        measure "${case%:*}" "${case#*:}" none 0
    done
done

printf '%d calls, %d runs: microseconds a call more than without\n' "$calls" "$runs"
printf '%-16s %12s %12s %12s %12s %12s %12s\n' \
    "" "of interest" "others" "open, close" "terminals'" "not stopped" "start, ms"
for case in $methods; do
    [ "$case" != plain:none ] || continue
    name=${case%:*}.${case#*:}
    start=$(($(median "$name.none.0") - $(median plain.none.none.0)))
    line=""
    for what in calls other opened terminals none; do
        more=$(($(median "$name.$what.$calls") - $(median "plain.none.$what.$calls") - start))
        line="$line $(awk -v m=$more -v n="$calls" 'BEGIN {printf "%12.2f", m / n}')"
    done
    printf '%-16s%s %12.1f\n' "${case#*:}, ${case%:*}" "$line" "$(awk -v s=$start 'BEGIN {print s / 1000}')"
done
