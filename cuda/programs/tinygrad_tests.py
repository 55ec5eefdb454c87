"""Runs tinygrad's own tests of operations and tensors twice, and compares what comes of each: on its CUDA device, whose
PTX the emulator runs, and on its NV device, whose machine code a simulated GPU runs.

    python3 cuda/programs/tinygrad_tests.py TINYGRAD NVRTC BIN RESULTS [--page FILE] [--seconds N] [NAME…]

TINYGRAD is a tree of its sources, NVRTC the folder of libnvrtc.so, BIN the folder with `nvabi` and its libraries. This
Python needs numpy, torch and hypothesis. What comes of a test is kept in the folder RESULTS, with what the runs print,
and not run again: a run that was ended goes on, and --again runs those that did not pass. Prints each test with both
outcomes and why it failed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import page

WORKER = pathlib.Path(__file__).resolve().with_name("tinygrad_worker.py")
# What runs a program on each device.
MACHINES = {
    "CUDA": ["emu", "--"],
    "NV": ["rm", "sim", "--tag", "570.86.16", "--gpu", "rtx3090", "--"],
}
# What nothing is wrong with.
WELL = {"passed", "skipped"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ["tinygrad", "nvrtc", "bin", "results"]:
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("names", nargs="*", help="only tests whose names contain one of these")
    parser.add_argument("--page", type=pathlib.Path, help="a page of the docs; its tables are renewed")
    parser.add_argument("--seconds", type=int, default=300, help="how long a test may take")
    parser.add_argument("--again", action="store_true", help="run again what did not pass")
    parser.add_argument("--known", action="store_true", help="run nothing: write what is known from before")
    return parser.parse_intermixed_args()


def read(path):
    """What is known of tests: their outcome and why, or nothing of one that was only begun."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: rest for name, *rest in map(json.loads, lines)}


def work(options, device, results, names):
    """Runs a worker; returns its exit status, and what the simulated GPU says of what went wrong."""
    environment = dict(os.environ, DEV=device, LD_LIBRARY_PATH=str(options.nvrtc), PYTHONDONTWRITEBYTECODE="1")
    environment["CACHEDB"] = str(options.results / f"{device}.db")
    # Neither tinygrad's compilers nor torch start processes or threads of their own.
    environment |= {"PARALLEL": "0", "OMP_NUM_THREADS": "1"}
    # A kernel may take as long as a test, where a GPU's takes 30 s at most.
    environment["HCQDEV_WAIT_TIMEOUT_MS"] = str(1000 * options.seconds)
    machine = [options.bin / "nvabi", *MACHINES[device]] if device in MACHINES else []
    command = [*machine, sys.executable, WORKER, options.tinygrad, results, str(options.seconds)]
    done = subprocess.run(command, env=environment, input="\n".join(names), capture_output=True, text=True)
    with open(options.results / f"{device}.log", "a") as log:
        log.write(done.stdout + done.stderr)
    wrong = re.search(r"^ *(?:kernel-error|not-executed) +\[\d+\] (.*)", done.stderr, re.M)
    return done.returncode, wrong and wrong[1]


def names(options):
    """The names of all tests, which are the same on each device: that which compiles only lists them."""
    listed = options.results / "names"
    if not listed.exists() and work(options, "NULL", listed, [])[0] != 0:
        listed.unlink(missing_ok=True)
        sys.exit(f"tests cannot be listed: {options.results / 'NULL.log'}")
    return [name for name in read(listed) if not options.names or any(part in name for part in options.names)]


def run(options, device, wanted):
    """Runs tests on a device until each has an outcome."""
    results = options.results / f"{device}.json"
    known = read(results)
    if options.again:
        known = {name: rest for name, rest in known.items() if rest and rest[0] in WELL}
        results.write_text("".join(json.dumps([name, *rest]) + "\n" for name, rest in known.items()))
    while left := [name for name in wanted if not known.get(name) and not options.known]:
        status, wrong = work(options, device, results, left)
        known = read(results)
        ended = next((name for name in reversed(left) if name in known), None)
        if ended is None:
            sys.exit(f"no test runs on {device}: {options.results / device}.log")
        # The worker ends with the last test, or with one that went wrong, and cannot always say how.
        end = known[ended]
        if not end:
            slow = status == 128 + signal.SIGALRM and not wrong
            end = ["too long", f"{options.seconds} s"] if slow else ["failed", f"ends with status {status}"]
        known[ended] = [end[0], wrong if wrong and end[0] == "failed" else end[1]]
        with open(results, "a") as file:
            print(json.dumps([ended, *known[ended]]), file=file)
    return {name: known[name] for name in wanted if known.get(name)}


def table(rows, total):
    """A table that counts, what share of CUDA's NV passes, and a table of what fails."""
    lines = ["| | CUDA: PTX | NV: machine code |", "|---|--:|--:|"]
    for what in ["passed", "skipped", "failed", "too long"]:
        counts = [sum(outcome[0] == what for outcome in column) for column in zip(*(row[1:] for row in rows))]
        lines.append(f"| {what} | {counts[0]} | {counts[1]} |")
    both = [nv[0] == "passed" for _, cuda, nv in rows if cuda[0] == "passed"]
    share = f"{100 * sum(both) / len(both):.1f} %" if both else "none"
    run = f"Of {total} tests {len(rows)} have run on both. " if len(rows) < total else ""
    lines += ["", f"{run}Of the {len(both)} that pass on CUDA {sum(both)} pass on NV: {share}.", ""]
    odd = [row for row in rows if not {row[1][0], row[2][0]} <= WELL or row[1][0] != row[2][0]]
    lines += ["| test | CUDA | NV | |", "|---|---|---|---|"] if odd else ["None is to be listed."]
    lines += [page.row([name, cuda[0], nv[0]], nv[1] or cuda[1]) for name, cuda, nv in odd]
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    options.results.mkdir(parents=True, exist_ok=True)
    wanted = names(options)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        cuda, nv = pool.map(lambda device: run(options, device, wanted), MACHINES)
    both = [name for name in wanted if name in cuda and name in nv]
    rows = [(name.removeprefix("test.backend."), cuda[name], nv[name]) for name in both]
    for name, on_cuda, on_nv in rows:
        print(name, on_cuda[0], on_nv[0], on_nv[1] or on_cuda[1], sep="\t")
    if options.page:
        page.replace(options.page, "tinygrad", lambda old: table(rows, len(wanted)))


if __name__ == "__main__":
    sys.exit(main())
