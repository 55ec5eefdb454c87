"""A program of others: how it is built and run, and what came of it."""

import dataclasses
import os
import pathlib
import re
import resource
import signal
import subprocess

# The compiler has as many seconds for one command.
COMPILER = 300


@dataclasses.dataclass
class Program:
    """What is to be known of a program."""

    # As the page calls it, with what it is run with where that tells it from others.
    name: str
    # Where it is built and run, and the file that is run.
    folder: pathlib.Path
    binary: str
    # Arguments of nvcc, a list for each command.
    builds: list
    arguments: list = dataclasses.field(default_factory=list)
    # Files that it reads, and functions that write them.
    inputs: dict = dataclasses.field(default_factory=dict)
    # Copies of sources with something made smaller: of which file, and what is replaced by what.
    copies: dict = dataclasses.field(default_factory=dict)
    # What it needs that there is none of.
    needs: list = dataclasses.field(default_factory=list)
    # A word of its output that says that it failed, whatever its exit status.
    fails_with: str = ""
    # How many GPUs it needs to do anything.
    gpus: int = 1


def prepare(program):
    for name, (source, changes) in program.copies.items():
        text = (program.folder / source).read_text()
        for pattern, replacement in changes:
            text = re.sub(pattern, replacement, text)
        (program.folder / name).write_text(text)
    for name, write in program.inputs.items():
        write(program.folder / name)


def build(program, options):
    """Builds a program where it lies; returns what failed, or None."""
    prepare(program)
    if options.built and os.access(program.folder / program.binary, os.X_OK):
        return None
    for arguments in program.builds:
        command = ["timeout", "-k", "5", str(COMPILER), options.cuda / "bin/nvcc", *arguments]
        done = subprocess.run(command, cwd=program.folder, capture_output=True, text=True, errors="replace")
        (program.folder / "build.log").write_text(done.stdout + done.stderr)
        if done.returncode in (124, 137):
            return f"the compiler needs more than {COMPILER} s"
        if done.returncode:
            lines = (done.stderr + done.stdout).splitlines()
            wrong = [line for line in lines if re.search(r"error|undefined reference|cannot find", line)]
            return (wrong or lines or ["nvcc failed"])[0].replace(str(program.folder) + "/", "")
    return None


def run(program, options):
    """Runs a program; returns its exit status, or a word on why it was ended, and what it wrote.

    The limit is processor time, which other work on the machine does not shorten: who uses it up is slow. Who waits for
    ten times as long without using it up, hangs.
    """
    words = [*options.machine.command(program.gpus), f"./{program.binary}", *program.arguments]
    command = ["timeout", "-k", "5", str(10 * options.seconds), *words]
    environment = {**os.environ, **options.machine.environment(), "CUDA_PATH": str(options.cuda)}
    quiet = {"capture_output": True, "stdin": subprocess.DEVNULL}
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds + 5))
    done = subprocess.run(command, cwd=program.folder, env=environment, preexec_fn=limit, **quiet)
    output = (done.stdout + done.stderr).decode(errors="replace")
    log = re.sub(r"\W+", "-", program.name)
    (program.folder / f"run-{log}.log").write_text(output)
    if done.returncode in (124, 137):
        return "hangs", output
    # Of itself, or of what it runs.
    is_slow = done.returncode in (-signal.SIGXCPU, 128 + signal.SIGXCPU)
    return ("too long" if is_slow else done.returncode), output


def told(output, patterns):
    """The first line of a run's output that one of the patterns fits, the first of them that fits any."""
    said = ("cuGetExportTable", "Emulated ./")
    lines = [line.strip() for line in output.splitlines() if not any(word in line for word in said)]
    for pattern in patterns:
        for line in lines:
            if re.fullmatch(pattern, line):
                # Numbers of processes tell nothing.
                return re.sub(r" +\[\d+\]", ":", line)
    return ""


def why(output, says):
    """The line of a run's output that says most about how it ended."""
    last = [line.strip() for line in output.splitlines() if line.strip()][-1:]
    return told(output, (*says, r".*(?:[Ff]ailed|[Ee]rror|FAILED|ERROR)\b.*", r".*[Ww]aiv.*", *map(re.escape, last)))


def outcomes(programs, options):
    """A row of the page for each of several programs that are one file, which is built once: the program, what came of
    it, and a word on why."""
    first = programs[0]
    if first.needs:
        what, reason = "not tried", f"needs {', '.join(first.needs)}"
    elif not first.builds:
        what, reason = "not tried", "has no program of its own"
    elif failed := build(first, options):
        what, reason = "not built", failed
    else:
        yield from (outcome(program, options) for program in programs)
        return
    yield from ((program.name, what, reason) for program in programs)


def outcome(program, options):
    status, output = run(program, options)
    says, found = options.machine.says, options.machine.finding(output)
    if status == "too long":
        return program.name, status, f"{options.seconds} s of processor time"
    if status == "hangs":
        return program.name, status, why(output, says)
    if status == 0 and program.fails_with and program.fails_with in output:
        return program.name, "wrong", next(line for line in output.splitlines() if program.fails_with in line)
    if status == 0 and not found:
        return program.name, "runs", told(output, says)
    return program.name, "findings" if found else f"exit status {status}", why(output, says)
