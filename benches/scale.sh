#!/usr/bin/env bash
# How the time of examples/scale grows with pairs and with their size, beside `nvabi trace diff` in a loop on the
# same folders and on the traces themselves.
#
#   NVABI_SPARK=PYTHON benches/scale.sh [PAIRS:EVENTS …]
#
# NVABI_SPARK is a Python with pyspark. EVENTS is of one trace, in warps of 1,000. One pair in ten differs once in
# each warp, one in ten has loops that ran more often, the rest are the same. The master is MASTER, or a cluster of
# two workers here.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${NVABI_SPARK:?a Python with pyspark}
cargo build --quiet --release --package nvabi-cli --features nvabi-cli/parquet --package nvabi-trace \
    --bin nvabi --example pairs
built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Seconds that a command takes; what it prints goes to $work/out.
seconds() {
    local started=$EPOCHREALTIME
    "$@" >"$work/out" 2>"$work/err" || { cat "$work/err" >&2 && exit 1; }
    awk -v from="$started" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'
}

make_pairs() {
    local count=$1 warps=$2 kind side
    rm -rf "$work"/{kinds,runs}
    for kind in same one drift; do
        mkdir -p "$work/kinds/$kind"
        "$built/examples/pairs" pair "$kind" "$work/kinds/$kind" "$warps" 1000
        for side in a b; do
            "$built/nvabi" trace export --by-launch "$work/kinds/$kind/$side.gddbg" \
                "$work/kinds/$kind/side=$side" 2>/dev/null
        done
    done
    mkdir "$work/runs"
    for pair in $(seq "$count"); do
        mkdir "$work/runs/pair=$pair"
        cp -r "$work/kinds/$(kind_of "$pair")"/side=* "$work/runs/pair=$pair"
    done
}
kind_of() {
    case $(($1 % 10)) in 0) echo one ;; 1) echo drift ;; *) echo same ;; esac
}

loop() {
    local pair
    for pair in $(seq "$1"); do
        "$built/nvabi" trace diff --json "$work/runs/pair=$pair/side=a" "$work/runs/pair=$pair/side=b" || [ $? = 1 ]
    done
}
traces() {
    local pair folder
    for pair in $(seq "$1"); do
        folder=$work/kinds/$(kind_of "$pair")
        "$built/nvabi" trace diff --json "$folder/a.gddbg" "$folder/b.gddbg" || [ $? = 1 ]
    done
}

printf '%6s %9s %9s %9s %9s %9s %9s\n' pairs events MiB Spark loop traces findings
for size in "${@:-100:16000 1000:16000 100:160000 1000:160000}"; do
    for one in $size; do
        pairs=${one%:*} events=${one#*:}
        make_pairs "$pairs" $((events / 1000))
        mib=$(du -sm "$work/runs" | cut -f1)
        spark=$(seconds "$python" examples/scale/compare.py "$work/runs" --out "$work/table" \
            --nvabi "$built/nvabi" --master "${MASTER:-local-cluster[2,1,1024]}")
        findings=$(head -1 "$work/out" | grep -o '[0-9]* findings')
        printf '%6d %9d %9d %9s %9s %9s %9s\n' "$pairs" "$events" "$mib" "$spark" "$(seconds loop "$pairs")" \
            "$(seconds traces "$pairs")" "${findings% *}"
    done
done
