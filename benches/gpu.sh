#!/usr/bin/env bash
# What can be known of the recorder on a GPU alone, in one command: that twelve kernels compute the same
# when they are recorded, that no event is missing, what recording costs in time, and that the example
# examples/diverge and the samples run. Writes RESULTS as a page of Markdown, and ends with 1 where a check
# fails.
#
#   benches/gpu.sh [RUNS]            all of it, on a machine with a GPU
#   benches/gpu.sh build DIR         what a machine with a GPU needs, made on one that has a compiler
#   DIR/gpu.sh check [RUNS]          there: bash, awk and NVIDIA's driver are enough
#   DIR/gpu.sh check --emulate       the same steps in the emulator, where there is no GPU: its times say nothing
#
# Events are complete where each site was passed by as many lanes, and as many went each way, as in the
# emulator, whose events the tests compare with those of code that does not record. Lanes of a GPU may part
# and meet elsewhere than the emulator's; their number does not change by that.
#
# Runs alternate; medians are printed. RESULTS is hardware.md in the folder that was built. CUDA_PATH is
# CUDA's folder; without it, cuda/toolkit.sh fetches one. PROFILE=dev builds faster.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kinds=(plain branches all sampled)
samples=(vectorAdd matrixMul)

build() {
    local to=$1 root target cuda
    root=$(cd "$here/.." && pwd)
    mkdir -p "$to"
    to=$(realpath "$to")
    cd "$root"
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    cuda=${CUDA_PATH:-$target/cuda-toolkit}
    cuda/toolkit.sh "$cuda"
    local profile=${PROFILE:-release} built
    built=$target/${profile/#dev/debug}
    cargo build --quiet --profile "$profile" -p nvabi-pass -p nvabi-record -p nvabi-cuda-shim
    cargo build --quiet --profile "$profile" --package nvabi-cli --features trace
    cp "$built"/{nvabi,libnvabi_record.so,libnvabi_cuda.so} "$to/"
    cp "$here/gpu.sh" examples/diverge/{good,bad}.txt "$to/"
    cp -L "$cuda/lib64/libcudart.so.12" "$to/"
    export CUDA_PATH=$cuda NVABI_PASS=$built/libnvabi_pass.so

    local name pass
    for name in plain branch all; do
        pass=(-fpass-plugin="$NVABI_PASS")
        [ $name != plain ] || pass=()
        NVABI_TRACE_PASS=kinds=$name clang++-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc \
            -nocudalib -Wno-unknown-cuda-version -Xclang -target-feature -Xclang +ptx75 -O2 -S "${pass[@]}" \
            cuda/kernels/classic.cu -o "$to/$name.ptx"
    done
    mv "$to/branch.ptx" "$to/branches.ptx"
    cp "$to/all.ptx" "$to/sampled.ptx"
    # The driver's names, for the linker alone.
    grep -oE '\<cu[A-Z][A-Za-z0-9_]+' benches/trace_overhead.c | sort -u | sed 's/.*/int &(void) { return 999; }/' |
        cc -x c -shared -fPIC -Wl,-soname,libcuda.so.1 - -o "$to/stub.so"
    cc -O2 benches/trace_overhead.c -o "$to/kernels" "$to/stub.so"
    rm "$to/stub.so"
    "$to/nvabi" trace cc -O2 examples/diverge/collide.cu -o "$to/collide"
    grep -n 'if (at == wall)' examples/diverge/collide.cu | cut -d: -f1 >"$to/line"
    for name in "${samples[@]}"; do
        "$to/nvabi" trace cc -O2 "cuda/samples/$name.cu" -o "$to/$name"
    done
}

# FILE: of each launch and site how often it was passed, by how many lanes, and how many took it.
passed() {
    "$here/nvabi" trace dump --json "$1" | awk '
        function field(name, at, rest) {
            at = index($0, "\"" name "\":")
            if (!at) return 0
            rest = substr($0, at + length(name) + 3)
            sub(/[,}].*/, "", rest)
            return rest
        }
        function lanes(mask, rest) {
            if (!(mask in count)) for (rest = mask + 0; rest > 0; rest = int(rest / 2)) count[mask] += rest % 2
            return count[mask] + 0
        }
        {
            key = field("launch") " " field("site") " " field("kind")
            times[key]++
            all[key] += lanes(field("mask"))
            took[key] += lanes(field("ballot"))
        }
        END { for (key in times) print key, all[key], took[key], times[key] }' | sort
}

failed() {
    echo "failed: $*" | tee -a "$work/failed" >&2
}

check() {
    local emulate=() runs=5 launches=5 scale=64 machine kind every run input name
    while [ $# -gt 0 ]; do
        case $1 in
        --emulate) emulate=(--emulate) runs=1 launches=1 scale=1 ;;
        *) runs=$1 ;;
        esac
        shift
    done
    cd "$here"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    export LD_LIBRARY_PATH=$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    local libraries=$LD_LIBRARY_PATH
    if [ ${#emulate[@]} -gt 0 ]; then
        machine="the emulator, which shows that this page can be made and says nothing of times"
        mkdir "$work/emulator"
        ln -s "$here/libnvabi_cuda.so" "$work/emulator/libcuda.so.1"
        libraries=$work/emulator
    else
        machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1 | sed 's/, /, driver /')
    fi

    echo "1. Results and times" >&2
    for run in $(seq "$runs"); do
        for kind in "${kinds[@]}"; do
            every=1
            [ "$kind" != sampled ] || every=8
            LD_LIBRARY_PATH=$libraries ./kernels $kind.ptx $every $scale $launches >"$work/$kind"
            awk -v k="$kind" '{ print $1, k, $3 }' "$work/$kind" >>"$work/times"
            diff <(cut -d' ' -f1,2 "$work/plain") <(cut -d' ' -f1,2 "$work/$kind") >&2 ||
                failed "recording $kind changes what kernels compute"
            awk -v k="$kind" '$4 { print "- " $1 ", " k ": " $4 " words did not fit" }' "$work/$kind"
        done
    done | sort -u >"$work/notes"

    echo "2. Events against the emulator's" >&2
    "$here/nvabi" trace record "${emulate[@]}" --capacity 8192 -o "$work/here.nvtrace" -- ./kernels all.ptx 0 1 1 >/dev/null
    "$here/nvabi" trace record --emulate --capacity 8192 -o "$work/there.nvtrace" -- ./kernels all.ptx 0 1 1 >/dev/null
    passed "$work/here.nvtrace" >"$work/here"
    passed "$work/there.nvtrace" >"$work/there"
    cut -d' ' -f1 "$work/plain" >"$work/names"
    # Launch, whether complete, events; the emulator's events.
    awk 'NR == FNR { here[$1 " " $2 " " $3] = $4 " " $5; events[$1] += $6; sites[$1]++; next }
        { key = $1 " " $2 " " $3; wanted[$1]++; emulated[$1] += $6; if (here[key] != $4 " " $5) wrong[$1]++ }
        END { for (l in wanted) print l, (wrong[l] || sites[l] != wanted[l]) ? "no" : "yes", events[l] + 0, emulated[l] }' \
        "$work/here" "$work/there" | sort -n >"$work/complete"
    [ "$(grep -c ' yes ' "$work/complete")" = "$(wc -l <"$work/names")" ] ||
        failed "events are missing, or too many: $(awk '$2 == "no" { printf " launch %s", $1 }' "$work/complete")"

    echo "3. The example and the samples" >&2
    for input in good bad; do
        "$here/nvabi" trace record "${emulate[@]}" -o "$work/$input.nvtrace" -- ./collide $input.txt
    done
    "$here/nvabi" trace diff "$work/good.nvtrace" "$work/bad.nvtrace" >"$work/answer" || true
    grep -q "collide.cu:$(cat line)" "$work/answer" || failed "the answer does not name collide.cu:$(cat line)"
    for name in "${samples[@]}"; do
        "$here/nvabi" trace record "${emulate[@]}" -o "$work/$name.nvtrace" -- "./$name" && [ -e "$work/$name.nvtrace" ] ||
            failed "$name"
    done

    {
        echo "# The recorder on ${machine}"
        echo
        echo "Kernels with what they recorded, by the time of kernels (median of $runs runs); \`all\` is every kind of event,"
        echo "\`sampled\` every kind of every 8th warp. \`complete\`: each site was passed by as many lanes, and as many"
        echo "went each way, as in the emulator."
        echo
        echo "| kernel | plain, ms | branches | all | sampled | events | complete |"
        echo "|---|--:|--:|--:|--:|--:|---|"
        table
        echo
        cat "$work/notes"
        if [ -e "$work/failed" ]; then sed 's/^/- /' "$work/failed"; else echo "Everything was as it should be."; fi
        echo
        echo '```text'
        sed -n 3,8p "$work/answer"
        echo '```'
    } >"$work/page"
    cp "$work/page" hardware.md
    cat hardware.md
    [ ! -e "$work/failed" ]
}

# The rows of the page: medians, and what they are to plain ones.
table() {
    local name kind number=0
    while read -r name; do
        for kind in "${kinds[@]}"; do
            awk -v n="$name" -v k="$kind" '$1 == n && $2 == k { print $3 }' "$work/times" | sort -n |
                awk '{ v[NR] = $1 } END { printf "%s ", v[int((NR + 1) / 2)] }'
        done
        awk -v l=$number '$1 == l { print $3, $2 }' "$work/complete"
        number=$((number + 1))
    done <"$work/names" | paste -d' ' "$work/names" - | awk '
        {
            printf "| %s | %s", $1, $2
            for (i = 3; i <= 5; i++) {
                factor = $2 > 0 ? $i / $2 : 0
                printf " | %.2f×", factor
                if (!(i in best) || factor < best[i]) { best[i] = factor; least[i] = $1 }
                if (factor > worst[i]) { worst[i] = factor; most[i] = $1 }
            }
            print " | " $6 " | " $7 " |"
        }
        END {
            split("- - branches all sampled", names)
            print ""
            for (i = 3; i <= 5; i++)
                printf "- %s: best %.2f× (%s), worst %.2f× (%s)\n", names[i], best[i], least[i], worst[i], most[i]
        }'
}

case ${1:-} in
build) build "${2:?the folder to build into}" ;;
check) shift && check "$@" ;;
*)
    folder=$(mktemp -d)/gpu
    build "$folder"
    "$folder/gpu.sh" check "$@"
    echo "in $folder" >&2
    ;;
esac
