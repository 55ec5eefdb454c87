#!/usr/bin/env bash
# How fast `nvabi trace diff` compares two traces, beside PRLX on the same events.
#
#   benches/trace.sh [MIB OF A TRACE] [RUNS] [EVENTS OF A WARP]
#
# Asked: PRLX's rate four times of pairs that are the same, three times where one event of each warp
# differs, 30 times where everything differs, and never more than 64 MiB of memory. The traces are made
# here, and rewritten for PRLX by examples/pairs.rs; they lie in TMPDIR, and take five times their size.
# `cat A B`, `cmp` and one thread of memcmp over maps that are in memory say what the machine can do. PRLX is
# what `pip install prlx` brings; PRLX=path names its prlx-diff, and without it its columns are skipped.
# Tools take turns; what is printed are medians, and of both the peaks of memory.
set -euo pipefail
cd "$(dirname "$0")/.."
mib=${1:-2048}
runs=${2:-5}
events=${3:-4000}

cargo build --quiet --release --package nvabi-cli --features nvabi-cli/trace --package nvabi-trace \
    --bin nvabi --example pairs
built=${CARGO_TARGET_DIR:-target}/release
nvabi=$built/nvabi
pairs=$built/examples/pairs
find_prlx='import pathlib, prlx; print(pathlib.Path(prlx.__file__).parent / "data/bin/prlx-diff")'
prlx=${PRLX:-$(python3 -c "$find_prlx" 2>/dev/null || true)}
if [ ! -x "$prlx" ]; then
    echo "skipped: no PRLX to compare with (pip install prlx, or PRLX=path)" >&2
    prlx=
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Seconds and KiB of one run; different is no error.
once() {
    local status=0 started=$EPOCHREALTIME
    /usr/bin/time -f '%M' -o "$work/time" "$@" > "$work/out" 2> "$work/err" || status=$?
    # time says first when a status is not 0.
    awk -v from="$started" -v to="$EPOCHREALTIME" -v kib="$(tail -1 "$work/time")" \
        'BEGIN { printf "%.6f %d\n", to - from, kib }'
    if [ "$status" -gt 1 ]; then
        echo "failed with $status: $*" >&2
        tail -3 "$work/err" >&2
        exit 1
    fi
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# A pair of a kind.
measure() {
    local kind=$1 mib=$2 events=$3 warps who tools="nvabi cat cmp memcmp" options=()
    warps=$((mib * 1024 * 1024 / (16 * events + 16)))
    [ "$warps" -gt 0 ] || warps=1
    mkdir -p "$work/$kind"
    "$pairs" pair "$kind" "$work/$kind" "$warps" "$events"
    if [ -n "$prlx" ]; then
        tools="nvabi prlx cat cmp memcmp"
        "$pairs" prlx "$work/$kind/a.gddbg" "$work/$kind/a.prlx"
        "$pairs" prlx "$work/$kind/b.gddbg" "$work/$kind/b.prlx"
    fi
    [ "$kind" != drift ] || options=(--continue-after-path)
    for _ in $(seq "$runs"); do
        for who in $tools; do
            case $who in
                nvabi) once "$nvabi" trace diff --json "$work/$kind/a.gddbg" "$work/$kind/b.gddbg" ;;
                prlx) once "$prlx" --json "${options[@]}" "$work/$kind/a.prlx" "$work/$kind/b.prlx" ;;
                cat) once sh -c 'cat "$@" > /dev/null' cat "$work/$kind"/{a,b}.gddbg ;;
                cmp) once cmp "$work/$kind/a.gddbg" "$work/$kind/b.gddbg" ;;
                # It says its own time, without that of mapping the files.
                memcmp) "$pairs" memcmp "$work/$kind/a.gddbg" "$work/$kind/b.gddbg" ;;
            esac >> "$work/$kind/$who.txt"
            cp "$work/out" "$work/$kind/$who.json"
        done
    done
    for who in $tools; do
        report "$kind" "$who" "$(stat -c %s "$work/$kind/a.gddbg")"
    done
    ratios "$kind"
    rm -r "${work:?}/$kind"
}

declare -A seconds peaks
report() {
    local findings=
    seconds[$2]=$(cut -d' ' -f1 "$work/$1/$2.txt" | median)
    peaks[$2]=$(cut -d' ' -f2 "$work/$1/$2.txt" | median)
    case $2 in
        nvabi) findings=$(grep -o '"total_findings": [0-9]*' "$work/$1/$2.json" | grep -o '[0-9]*') ;;
        prlx) findings=$(grep -o '"total_divergences": [0-9]*' "$work/$1/$2.json" | grep -o '[0-9]*') ;;
    esac
    awk -v kind="$1" -v who="$2" -v size="$3" -v s="${seconds[$2]}" -v p="${peaks[$2]}" -v f="$findings" 'BEGIN {
        printf "%-8s %-8s %9.3f %9.2f %10.1f %12s\n", kind, who, s, 2 * size / (s > 0 ? s : 0.001) / 1e9, p / 1024, f
    }'
}

# What was asked, and what it is.
ratios() {
    local asked=
    case $1 in
        same) asked=" (asked: 4)" ;;
        one) asked=" (asked: 3)" ;;
        all) asked=" (asked: 30)" ;;
    esac
    awk -v kind="$1" -v asked="$asked" -v us="${seconds[nvabi]}" -v them="${seconds[prlx]:-0}" \
        -v our="${peaks[nvabi]}" -v their="${peaks[prlx]:-0}" -v cmp="${seconds[cmp]}" -v cat="${seconds[cat]}" 'BEGIN {
        printf "%-8s ", kind
        if (them > 0) {
            printf "%.1f x the rate of PRLX%s; its peak / ours: %.1f; ", them / us, asked, their / our
        }
        printf "%.2f x the time of cat; ", us / cat
        # Where the files differ, cmp stops.
        if (kind == "same") printf "%.1f x the rate of cmp; ", cmp / us
        printf "peak %.1f MiB (asked: 64)\n\n", our / 1024
    }'
}

printf '%-8s %-8s %9s %9s %10s %12s\n' pair "" seconds GB/s "peak MiB" findings
measure same "$mib" "$events"
measure one "$mib" "$events"
measure all $((mib < 64 ? mib : 64)) "$events"
measure drift 1 1000
echo "Right are, of drift, 24 findings: the test and the rounds of a loop in 12 warps." >&2
