"""Builds and runs programs of others, and writes what came of each into a page of the docs.

    python3 cuda/programs SUITE SOURCES CUDA BIN [--page FILE] [--seconds N] [--built] [NAME…]
    python3 cuda/programs SUITE SOURCES CUDA BIN --real FOLDER [--gpu NAME] [--ptx] …

SUITE is samples (NVIDIA's cuda-samples 13 and 12), rodinia, or llm.c; SOURCES is a tree of it, CUDA a folder that
`toolkit13.sh` or `toolkit12.sh` made, BIN the folder with `nvabi` and its libraries. Programs are built where they lie,
by NVIDIA's nvcc. They run in the emulator, or on a simulated GPU with NVIDIA's own libraries, of which
`tests/real/fetch.sh` printed the folder. Those that need a display or a library that is not there are named, not built.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import tempfile

import llmc
import machine
import page
import rodinia
import samples
from program import outcomes

HERE = pathlib.Path(__file__).resolve().parent
SUITES = {"samples": samples, "rodinia": rodinia, "llm.c": llmc}


def arguments():
    parser = argparse.ArgumentParser(prog="cuda/programs", description=__doc__.split("\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("sources", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("cuda", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("bin", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("names", nargs="*", help="only these programs; of a page the others' rows stay")
    parser.add_argument("--page", type=pathlib.Path, help="a page of the docs; the suite's tables are renewed")
    parser.add_argument("--real", type=lambda path: pathlib.Path(path).resolve(), help="a folder of NVIDIA's libraries")
    parser.add_argument("--gpu", default="rtx3090", help="the simulated GPU")
    parser.add_argument("--ptx", action="store_true", help="build no machine code: NVIDIA's libcuda compiles")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="processor time that a program may use")
    parser.add_argument("--built", action="store_true", help="run what was built before as it is")
    return parser.parse_intermixed_args()


def together(programs, options):
    """What came of programs that are one file, printed."""
    rows = []
    for name, what, reason in outcomes(programs, options):
        # Where things lie on this machine is nobody's business.
        for path in [programs[0].folder, options.cuda, options.sources, HERE.parent]:
            reason = reason.replace(f"{path}/", "")
        rows.append((name, what, reason))
        print("\t".join(rows[-1]), flush=True)
    return rows


def main():
    options = arguments()
    options.machine = machine.Simulator(options) if options.real else machine.Emulator(options)
    with tempfile.TemporaryDirectory() as folder:
        for name, library in options.machine.libraries.items():
            pathlib.Path(folder, name).symlink_to(library)
        options.libraries = [f"-L{folder}", f"-L{options.cuda}/lib64"]
        chosen = SUITES[options.suite].programs(options.sources, options)
        if not chosen:
            sys.exit(f"{options.sources}: no programs of {options.suite}")
        if unknown := set(options.names) - {program.name for program in chosen}:
            sys.exit(f"{options.suite} has no program {', '.join(sorted(unknown))}")
        files = {}
        for program in chosen:
            if not options.names or program.name in options.names:
                files.setdefault((program.folder, program.binary), []).append(program)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            rows = [row for rows in pool.map(lambda group: together(group, options), files.values()) for row in rows]
    if options.page:
        page.renew(options.page, options.suite, rows, whole=not options.names)


if __name__ == "__main__":
    sys.exit(main())
