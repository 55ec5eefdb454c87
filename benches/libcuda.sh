#!/usr/bin/env bash
# How long libcuda takes on simulated GPUs, and what a simulated machine costs that has nothing to do.
#
#   NVABI_REAL=FOLDER benches/libcuda.sh [RUNS] [GPU]
#
# FOLDER is what tests/real/fetch.sh prints, or its first line. One program initialises libcuda, makes a context and
# copies 1 MiB there and back; others do so on each of eight GPUs, copy pinned memory of 64 MiB, and once more by memmove,
# copy and fill 4 MiB within a GPU (kernels of libcuda's own), have a stream write words after pauses, and once more a
# process on another processor that reads from a pipe, and sleep for five seconds with a context. They alternate with
# `true` on the same machine, RUNS times each (default 11); medians.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
runs=${1:-11}
gpu=${2:-a100}
real=$(head -n 1 <<<"${NVABI_REAL:?names no folder: see tests/real/fetch.sh}")
real=${real%%:*}
nvabi=${NVABI:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/nvabi}
[ -n "${NVABI:-}" ] || cargo build --quiet --locked --release --package nvabi-cli
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/program.py" <<'PYTHON'
import ctypes, os, sys, time
part, out = sys.argv[1], open(sys.argv[2], "a")
cuda = ctypes.CDLL("libcuda.so.1")
Size, Pointer = ctypes.c_size_t, ctypes.c_uint64

def call(name, *args):
    if result := getattr(cuda, name)(*args):
        sys.exit(f"{name} ended with {result}")

def made(kind, name, *args):
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value

def both_ways(host, size):
    memory = made(Pointer, "cuMemAlloc_v2", Size(size))
    times = []
    for _ in range(3):
        for name, pair in (("cuMemcpyHtoD_v2", (memory, host)), ("cuMemcpyDtoH_v2", (host, memory))):
            began = time.monotonic()
            call(name, *pair, Size(size))
            times.append(time.monotonic() - began)
    return times[2:]  # The first touch gets pages from the system.

def after_pauses(pause, count, there_and_back):
    for number in range(1, count + 1):
        time.sleep(pause)
        began = time.monotonic()
        there_and_back(number)
        print((time.monotonic() - began) * 1e6, file=out)

def pipe(pause, count):
    # On one processor they would take turns, and nobody would have to be woken.
    processors = sorted(os.sched_getaffinity(0))
    (to, there), (back, answer) = os.pipe(), os.pipe()
    if not os.fork():
        os.sched_setaffinity(0, processors[1:] or processors)
        os.close(there)
        while os.read(to, 1):
            os.write(answer, b"x")
        os._exit(0)
    os.sched_setaffinity(0, processors[:1])
    after_pauses(pause, count, lambda _: (os.write(there, b"x"), os.read(back, 1)))

if part == "pipe":
    sys.exit(pipe(float(sys.argv[3]), int(sys.argv[4])))
begin = time.monotonic()
call("cuInit", 0)
if part == "all":
    for device in range(made(ctypes.c_int, "cuDeviceGetCount").value):
        context = made(ctypes.c_void_p, "cuCtxCreate_v2", 0, device)
        both_ways(ctypes.create_string_buffer(1 << 20), 1 << 20)
    print((time.monotonic() - begin) * 1e3, file=out)
    sys.exit()
context = made(ctypes.c_void_p, "cuCtxCreate_v2", 0, 0)
if part == "context":
    both_ways(ctypes.create_string_buffer(1 << 20), 1 << 20)
    print((time.monotonic() - begin) * 1e3, file=out)
elif part == "copies":
    size = 64 << 20
    pinned = made(ctypes.c_void_p, "cuMemAllocHost_v2", Size(size))
    ctypes.memset(pinned, 7, size)
    for took in both_ways(pinned, size):
        print(size / 1e9 / took, file=out)
    other = ctypes.create_string_buffer(size)
    for _ in range(3):
        began = time.monotonic()
        ctypes.memmove(other, pinned, size)
        took = time.monotonic() - began
    print(size / 1e9 / took, file=open(sys.argv[2] + "-plain", "a"))
elif part == "within":
    size = 4 << 20
    one, other = (made(Pointer, "cuMemAlloc_v2", Size(size)) for _ in range(2))
    for name, args in (("cuMemcpyDtoD_v2", (one, other, Size(size))), ("cuMemsetD8_v2", (one, 7, Size(size)))):
        began = time.monotonic()
        call(name, *args)
        call("cuCtxSynchronize")
        print(size / 1e9 / (time.monotonic() - began), file=open(f"{sys.argv[2]}-{name}", "a"))
elif part == "rings":
    stream = made(ctypes.c_void_p, "cuStreamCreate", 1)
    memory = made(ctypes.c_void_p, "cuMemHostAlloc", Size(4096), 2)
    there = made(Pointer, "cuMemHostGetDevicePointer_v2", memory, 0)
    word = ctypes.c_uint32.from_address(memory.value)
    def write(number):
        call("cuStreamWriteValue32_v2", stream, there, number, 0)
        while word.value != number:
            pass
    after_pauses(float(sys.argv[3]), int(sys.argv[4]), write)
else:
    # What all threads of the simulator used while nothing was to do, in nanoseconds. To look for them is work of its.
    def is_simulator(process):
        try:
            return os.path.realpath(f"/proc/{process}/exe") == os.path.realpath(sys.argv[3])
        except OSError:
            return False
    threads = [f"/proc/{process}/task/{thread}/schedstat" for process in os.listdir("/proc")
               if process.isdigit() and is_simulator(process) for thread in os.listdir(f"/proc/{process}/task")]
    assert threads, sys.argv[3]
    def used():
        return sum(int(open(thread).read().split()[0]) for thread in threads) / 1e9
    time.sleep(0.5)
    before, began = used(), time.monotonic()
    time.sleep(5)
    print((used() - before) / (time.monotonic() - began) * 100, file=out)
PYTHON

sim() { LD_LIBRARY_PATH=$real/lib "$nvabi" rm sim --tag "${real##*/}" --gpu "$gpu" --gpus "$1" -- "${@:2}" >/dev/null 2>&1; }
timed() { local out=$1 begin=${EPOCHREALTIME/./}; shift; "$@"; echo $(((${EPOCHREALTIME/./} - begin) / 1000)) >>"$out"; }
pauses='0 1 5 10 100 1000'
for _ in $(seq "$runs"); do
    timed "$work/start" sim 1 true
    timed "$work/whole" sim 1 python3 "$work/program.py" context "$work/context"
    sim 8 python3 "$work/program.py" all "$work/all"
    sim 1 python3 "$work/program.py" copies "$work/copies"
    sim 1 python3 "$work/program.py" within "$work/within"
    for pause in $pauses; do
        count=$((pause > 100 ? 3 : pause > 10 ? 10 : 50))
        sim 1 python3 "$work/program.py" rings "$work/rings$pause" "${pause}e-3" "$count"
        LD_LIBRARY_PATH=$real/lib python3 "$work/program.py" pipe "$work/pipe$pause" "${pause}e-3" "$count"
    done
    sim 1 python3 "$work/program.py" idle "$work/idle1" "$nvabi"
    sim 8 python3 "$work/program.py" idle "$work/idle8" "$nvabi"
done
median() { sort -g "$work/$1" | awk '{ v[NR] = $1 } END { printf "%.3f", v[int((NR + 1) / 2)] }'; }
printf 'libcuda %s on %s, %d runs, medians\n' "${real##*/}" "$gpu" "$runs"
printf '%-62s %8s ms\n' 'the simulator and a program that does nothing' "$(median start)"
printf '%-62s %8s ms\n' 'the same and Python with cuInit, a context, 1 MiB both ways' "$(median whole)"
printf '%-62s %8s ms\n' 'cuInit, a context, 1 MiB three times there and back' "$(median context)"
printf '%-62s %8s ms\n' 'the same on each of eight GPUs' "$(median all)"
printf '%-62s %8s GB/s\n' 'pinned memory, 64 MiB' "$(median copies)"
printf '%-62s %8s GB/s\n' 'the same memory by memmove, in the program' "$(median copies-plain)"
printf '%-62s %8s GB/s\n' 'a copy within a GPU, 4 MiB' "$(median within-cuMemcpyDtoD_v2)"
printf '%-62s %8s GB/s\n' 'a fill of the same' "$(median within-cuMemsetD8_v2)"
for pause in $pauses; do
    printf '%-62s %8s us\n' "a word that a stream writes after a pause of $pause ms" "$(median "rings$pause")"
    printf '%-62s %8s us\n' "a byte through a pipe and back after the same" "$(median "pipe$pause")"
done
printf '%-62s %8s %% of a core\n' 'the simulator while a context has nothing to do' "$(median idle1)"
printf '%-62s %8s %% of a core\n' 'the same with eight GPUs' "$(median idle8)"
