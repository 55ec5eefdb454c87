#!/usr/bin/env bash
# What the simulated driver adds to a call: the median of a control of no GPU and of one of a GPU, and of reading a
# file of its, less an ioctl on /dev/null without a simulator.
#
#   benches/rm_ioctl.sh [CALLS]
#
# CALLS of each (default 20000), in microseconds. Asked for: an ioctl at most 10 µs beyond Jetson's
# (benches/tegra_sim.sh).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
calls=${1:-20000}
nvabi=${NVABI:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/nvabi}
[ -n "${NVABI:-}" ] || cargo build --quiet --locked --release --package nvabi-cli
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -x c -o "$work/calls" - <<'C'
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* NVOS21_PARAMETERS and NVOS54_PARAMETERS of the newer drivers. */
struct alloc { uint32_t root, parent, object, class; uint64_t params; uint32_t size, status; };
struct control { uint32_t client, object, command, flags; uint64_t params; uint32_t size, status; };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

#define TELL(what, call)                                                      \
    do {                                                                      \
        for (int i = 0; i < calls; i++) {                                     \
            double begin = now();                                             \
            call;                                                             \
            times[i] = now() - begin;                                         \
        }                                                                     \
        qsort(times, calls, sizeof *times, by_value);                         \
        printf("%-44s %7.1f %7.1f\n", what, times[calls / 2], times[calls * 99 / 100]); \
    } while (0)

int main(int count, char **args) {
    int calls = atoi(args[1]);
    double *times = malloc(calls * sizeof *times);
    int null = open("/dev/null", O_RDWR), file = open("/dev/nvidiactl", O_RDWR);
    (void)count;
    if (file < 0) {
        TELL("direct, /dev/null", ioctl(null, 0xc020462a, times));
        return 0;
    }
    uint32_t ids[32];
    struct alloc root = {.class = 0};
    ioctl(file, 0xc020462b, &root);
    struct control attached = {root.object, root.object, 0x201, 0, (uintptr_t)ids, sizeof ids, 0};
    ioctl(file, 0xc020462a, &attached);
    if (root.status || attached.status) return 1;
    TELL("simulated, /dev/null", ioctl(null, 0xc020462a, &attached));
    TELL("simulated, GPU_GET_ATTACHED_IDS", ioctl(file, 0xc020462a, &attached));
    int text;
    TELL("simulated, open and close of params",
         text = open("/proc/driver/nvidia/params", O_RDONLY); close(text));
    TELL("simulated, access of /dev/nvidia0", access("/dev/nvidia0", R_OK));
    return 0;
}
C
"$work/calls" "$calls"
"$nvabi" rm sim --gpu a100 -- "$work/calls" "$calls" 2>/dev/null
