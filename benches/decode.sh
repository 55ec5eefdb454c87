#!/usr/bin/env bash
# How fast `nvabi decode strace` reads a log, beside `grep -c ioctl` on the same file.
#
#   benches/decode.sh [MILLIONS OF LINES] [RUNS]
#
# The log is made here: the calls of a CUDA program over and over, with and without -y and times,
# several processes, and two lines in five that are no ioctl. Asked: a million lines a second on one
# core, and memory that does not grow with the log. Times are of the processor, user and system.
set -euo pipefail
cd "$(dirname "$0")/.."
millions=${1:-4}
runs=${2:-5}

cargo build --quiet --release --package nvabi-cli
nvabi=${CARGO_TARGET_DIR:-target}/release/nvabi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One round: what a buffer and a submission cost a program that runs.
round() {
    cat <<'LOG'
4711 ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0x7ffd2f3a1c40) = 0
4711 ioctl(3, _IOC(_IOC_WRITE, 0x4e, 0x3, 0x14), 0x7ffd2f3a1c40) = 0
4711 ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0xf, 0x8), 0x7ffd2f3a1c40) = 0
4711 mmap(0xfd00000000, 2097152, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_FIXED, 5, 0) = 0xfd00000000
4711 ioctl(4, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x29, 0x28), 0x7ffd2f3a1c40) = 0
4711 close(5)                                = 0
4712 futex(0xaaaae2f5c8e0, FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME, 0, {tv_sec=1713, tv_nsec=7}, FUTEX_BITSET_MATCH_ANY <unfinished ...>
4711 12:34:56.789012 ioctl(4</dev/nvgpu/igpu0/ctrl>, 0xc0104705, 0x7ffd2f3a1c40) = -1 ENOTTY (Inappropriate ioctl for device) <0.000012>
4712 <... futex resumed>)                    = -1 EAGAIN (Resource temporarily unavailable)
4711 read(7, "\1\0\0\0\0\0\0\0", 8)          = 8
LOG
}
{
    cat <<'LOG'
4711 execve("./a.out", ["./a.out"], 0x7fe0c1a8 /* 31 vars */) = 0
4711 openat(AT_FDCWD, "/dev/nvmap", O_RDWR|O_CLOEXEC) = 3
4711 openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR|O_CLOEXEC) = 4
4711 clone(child_stack=0xffff8c1fe0, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD) = 4712
LOG
    for _ in $(seq 1000); do round; done
} > "$work/one"
for _ in $(seq $((millions * 100))); do cat "$work/one"; done > "$work/log"
lines=$(wc -l < "$work/log")

# Seconds and KiB of one run on one core. The output goes to a file, as grep stops at the first match
# where it goes to /dev/null.
once() {
    /usr/bin/time -f '%U %S %M' -o "$work/time" taskset -c 0 "$@" > "$work/out" 2>&1 || true
    awk '{ printf "%.3f %d\n", $1 + $2, $3 }' "$work/time"
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

cat "$work/log" > /dev/null
for _ in $(seq "$runs"); do
    once grep -c ioctl "$work/log" >> "$work/grep.txt"
    once "$nvabi" decode strace "$work/log" >> "$work/decode.txt"
    once "$nvabi" decode strace --calls "$work/log" >> "$work/calls.txt"
done
printf '%-12s %10s %16s %10s\n' "" "cpu s" "lines/s" "peak MiB"
for what in grep decode calls; do
    time=$(cut -d' ' -f1 "$work/$what.txt" | median)
    peak=$(cut -d' ' -f2 "$work/$what.txt" | median)
    awk -v w="$what" -v t="$time" -v l="$lines" -v p="$peak" \
        'BEGIN { printf "%-12s %10.2f %16.0f %10.1f\n", w, t, l / t, p / 1024 }'
done
