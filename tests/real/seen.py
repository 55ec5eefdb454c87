#!/usr/bin/env python3
"""Audits the calls of real programs, and renews docs/seen.md and reports/src/atlas/seen.list by what it saw.

    NVABI_REAL=$(tests/real/fetch.sh) NVABI_TINYGRAD=FOLDER tests/real/seen.py target/debug/nvabi

NVIDIA's programs of each version run on the simulated driver of that version, tinygrad's device on that of some.
Both files are written only if each of these has run. Exit status: 1 if there is a disagreement.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, LIST = ROOT / "docs/seen.md", ROOT / "reports/src/atlas/seen.list"
BEGIN, END = "<!-- written by tests/real/seen.py -->\n", "<!-- end -->\n"
PROGRAMS = ("nvidia-smi", "nvidia-smi-mig", "nvml", "libcuda", "opencl", "gpustat", "nvitop", "nvtop")
GPUS = ("a100", "l4")
TINYGRAD = ("570.86.16", "580.105.08", "595.45.04")
NAMES = ("escapes", "uvm", "commands", "classes")
WORDS = {"disagreement": "disagreements", "unknown": "unknown", "suspicion": "suspicions"}


def audit(nvabi, tag, gpus, command, environment):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "audit")
        machine = [word for gpu in gpus for word in ("--gpu", gpu)]
        words = [nvabi, "rm", "sim", "--tag", tag, *machine, "--", nvabi, "sniff", "--audit", "--json", "--out", out]
        ran = subprocess.run([*words, "--", *command], env={**os.environ, **environment}, cwd=ROOT,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    audits = [line for line in lines if line["call"] == "audit"]
    if not audits or lines[-1].get("code") not in (0, 77):
        sys.exit(f"seen.py: {tag}: {' '.join(map(str, command))} did not run:\n{ran.stderr}")
    if lines[-1]["code"] != 0:
        return None
    if not audits[0]["calls"]:
        sys.exit(f"seen.py: {tag}: {' '.join(map(str, command))} made no call:\n{ran.stderr}")
    return audits[0]


def runs(nvabi):
    """Program, version and audit of each run."""
    folders = [pathlib.Path(folder) for folder in os.environ.get("NVABI_REAL", "").replace("\n", ":").split(":") if folder]
    for folder in sorted(folders, key=lambda folder: key(folder.name)):
        for program in PROGRAMS:
            yield program, folder.name, audit(nvabi, folder.name, GPUS, ["tests/real/programs.sh", program, folder], {})
    for tag in TINYGRAD:
        command = ["python3", "cli/tests/tinygrad/open.py", os.environ["NVABI_TINYGRAD"], "1"]
        yield "tinygrad", tag, audit(nvabi, tag, ["rtx3090"], command, {})


def key(version):
    return [int(part) for part in version.split(".")]


def counted(rows):
    """The cells of some runs: calls, distinct names, findings by gravity."""
    cells = [str(sum(audit["calls"] for _, _, audit in rows))]
    for names in NAMES:
        cells.append(str(len({name for _, _, audit in rows for name in audit["seen"][names]})))
    for gravity in WORDS:
        found = {(finding["kind"], finding["call"], finding.get("detail"), finding.get("field"))
                 for _, _, audit in rows for finding in audit["findings"] if finding["gravity"] == gravity}
        cells.append(str(len(found)))
    return cells


def table(first, groups):
    header = [first, "ioctls", *NAMES, *WORDS.values()]
    lines = ["| " + " | ".join(header) + " |", "|---|" + "--:|" * (len(header) - 1)]
    lines += ["| " + " | ".join([name, *counted(rows)]) + " |" for name, rows in groups]
    return "\n".join(lines).replace("| uvm |", "| UVM |") + "\n"


def unknown(rows):
    """Numbers that no header names, with the programs and versions that use them."""
    found = {}
    for program, version, audit in rows:
        for finding in audit["findings"]:
            if finding["gravity"] == "unknown":
                users, versions = found.setdefault(finding.get("detail") or finding["call"], ([], []))
                users.append(program)
                versions.append(version)
    lines = ["| number | programs | versions |", "|---|---|---|"]
    for number, (users, versions) in sorted(found.items()):
        versions = sorted(set(versions), key=key)
        span = versions[0] if len(versions) == 1 else f"{len(versions)}, {versions[0]} to {versions[-1]}"
        lines.append(f"| {number} | {', '.join(sorted(set(users)))} | {span} |")
    return "\n".join(lines) + "\n"


def suspicions(rows):
    found = {}
    for program, _, audit in rows:
        for finding in audit["findings"]:
            if finding["gravity"] == "suspicion":
                field = (finding["field"] or "").removeprefix("params->")
                call = " ".join(filter(None, (finding.get("detail") or finding["call"], field)))
                place = (program, finding["kind"], call)
                found[place] = found.get(place, 0) + finding["count"]
    lines = ["| program | kind | field | calls |", "|---|---|---|--:|"]
    lines += [f"| {program} | {kind} | `{call}` | {count} |" for (program, kind, call), count in sorted(found.items())]
    return "\n".join(lines) + "\n"


def seen_list(rows):
    """For the atlas: a line for each name and program."""
    found = {}
    for program, version, audit in rows:
        for names in NAMES:
            for name in audit["seen"][names]:
                found.setdefault((name, program), []).append(version)
    head = "# Calls that programs made on the simulated driver: name, program, versions. Written by tests/real/seen.py.\n"
    return head + "".join(f"{name} {program} {' '.join(versions)}\n" for (name, program), versions in sorted(found.items()))


def main():
    nvabi = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else sys.exit(__doc__)
    rows = [row for row in runs(nvabi) if row[2]]
    bad = [(program, version, finding) for program, version, audit in rows for finding in audit["findings"]
           if finding["gravity"] == "disagreement"]
    versions = sorted({version for _, version, _ in rows}, key=key)
    programs = [program for program in (*PROGRAMS, "tinygrad") if any(row[0] == program for row in rows)]
    by_version = [(f"{version}{' (tinygrad)' if version in TINYGRAD else ''}", [row for row in rows if row[1] == version])
                  for version in versions]
    by_program = [(program, [row for row in rows if row[0] == program]) for program in programs]
    text = "\n".join([table("version", by_version), table("program", by_program),
                      "### Suspicions\n", suspicions(rows), "### Unknown numbers\n", unknown(rows)])
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])
    LIST.write_text(seen_list(rows))
    print(text)
    for program, version, finding in bad:
        print(f"{version} {program}: {json.dumps(finding)}", file=sys.stderr)
    return 1 if bad else 0


sys.exit(main())
