#!/usr/bin/env python3
"""Breaks one semantic of the emulator after the other, and expects that a test fails.

    cuda/emu/tests/sabotage.py [--count 10] [--seed 1] [--only TEXT] [--list]

Changes are made in a copy of the working tree: those of the table below, and as many as `--count` of all that
can be generated, of operators, comparisons, numbers, and entries of tables. Each takes a minute or two. What
survives is printed, and the exit status is 1.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENVIRONMENT = {"CARGO_TARGET_DIR": str(ROOT / "target"), **os.environ}
SOURCES = pathlib.Path("cuda/emu/src")

# What computes, moves or orders; not what reports.
FILES = ["lanes/*.rs", "sass/compute/*.rs", "sass/decode/*.rs", "run/sass/*.rs", "run/texture.rs", "texture.rs"]

# file, what stands there, what takes its place: chosen by hand.
TABLE = """
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
"""

# Each with what takes its place. Spaces around operators tell them from references, generics and signs.
SWAPS = [
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" & ", " | "),
    (r" \| ", " & "),
    (r" << ", " >> "),
    (r" >> ", " << "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" < ", " <= "),
    (r" >= ", " > "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r"\.min\(", ".max("),
    (r"\.max\(", ".min("),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"wrapping_add", "wrapping_sub"),
    (r"\b0x([0-9a-f_]+)\b", lambda match: hex(int(match[1].replace("_", ""), 16) ^ 1)),
    (r"(?<![\w.])(\d+)(?![\w.])", lambda match: str(int(match[1]) + 1)),
]


def chosen():
    for line in TABLE.split("\n"):
        if line:
            file, old, new = line.split("|")
            text = (ROOT / SOURCES / file).read_text()
            if old not in text:
                sys.exit(f"{file}: not found: {old}")
            yield file, text.index(old), old, new


def generated():
    """Every change of a line of code that is neither a comment nor in a module of tests."""
    base = ROOT / SOURCES
    for file in sorted(path for pattern in FILES for path in base.glob(pattern)):
        text = file.read_text().split("#[cfg(test)]\nmod tests")[0]
        at = 0
        for line in text.splitlines(keepends=True):
            code = line.split("//")[0]
            if not re.match(r"\s*(use |pub use |#\[|type |impl |(pub(\(.*?\))? )?(struct|enum|fn|const fn) )", code):
                for pattern, new in SWAPS:
                    for match in re.finditer(pattern, code):
                        if code.count('"', 0, match.start()) % 2 == 0:
                            changed = new if isinstance(new, str) else new(match)
                            yield str(file.relative_to(base)), at + match.start(), match[0], changed
            at += len(line)


def place(file, at):
    text = (ROOT / SOURCES / file).read_text()
    start = text.rfind("\n", 0, at) + 1
    return text.count("\n", 0, at) + 1, text[start:].split("\n")[0].strip()


def cargo(copy, *words):
    command = ["nice", "cargo", "test", "--quiet", "--package", "nvabi-emu", *words]
    return subprocess.run(command, cwd=copy, capture_output=True, env=ENVIRONMENT, check=False).returncode == 0


def survives(copy, file, at, old, new):
    """Whether the tests pass with a change; None where it does not compile."""
    path = copy / SOURCES / file
    text = path.read_text()
    path.write_text(text[:at] + new + text[at + len(old):])
    try:
        # The quick one first.
        tests = ["instructions", "kernels"]
        if not cargo(copy, "--no-run", *(word for test in tests for word in ("--test", test))):
            return None
        return all(cargo(copy, "--test", test) for test in tests)
    finally:
        path.write_text(text)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=10, help="generated changes")
    arguments.add_argument("--seed", type=int, default=1, help="which of them")
    arguments.add_argument("--only", default="", help="only files whose name has this")
    arguments.add_argument("--list", action="store_true", help="print all changes, and make none")
    options = arguments.parse_args()
    changes = [change for change in generated() if options.only in change[0]]
    if not options.list:
        changes = random.Random(options.seed).sample(changes, min(options.count, len(changes)))
    changes = [change for change in chosen() if options.only in change[0]] + changes
    if options.list:
        for file, at, old, new in changes:
            print(f"{file}:{place(file, at)[0]}: {old.strip()} -> {new.strip()}")
        return 0
    copy = pathlib.Path(tempfile.mkdtemp())
    try:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
        survived = 0
        for file, at, old, new in changes:
            outcome = {True: "survives", False: "found", None: "does not compile"}[survives(copy, file, at, old, new)]
            survived += outcome == "survives"
            number, line = place(file, at)
            print(f"{outcome}: {file}:{number}: {old.strip()} -> {new.strip()} in `{line}`", flush=True)
        return int(survived > 0)
    finally:
        shutil.rmtree(copy)


if __name__ == "__main__":
    sys.exit(main())
