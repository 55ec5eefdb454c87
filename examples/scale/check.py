#!/usr/bin/env python3
"""Compares the table of `compare.py` with what `nvabi trace diff` finds in the traces themselves, pair by pair.

    check.py FILES --out FOLDER [--nvabi PATH]

FILES holds a folder for each pair, named as the pair, with the traces `a` and `b`. Ends with 1 where they differ.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from compare import COLUMNS, session

# By what a finding is told from others, without texts that follow from the site.
KEPT = [column for column in COLUMNS if column not in ("pair", "launch")]


def local(nvabi, pair):
    """Launch by launch, the findings of the differ, run once for the whole pair."""
    command = [nvabi, "trace", "diff", "--json", "--limit", "1000000", pair / "a", pair / "b"]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    found = set()
    for finding in report["findings"]:
        launch = report["launches"][finding["launch"]]
        values = {**finding, **finding.get("source", {}), "kernel": launch["kernel"]}
        found.add((launch["order"], *(values.get(column) for column in KEPT)))
    return found, report["total_findings"]


def orders(rows):
    """For each launch of a pair's rows, how many launches of its kernel came before."""
    before, found = {}, {}
    for launch, kernel in sorted({(row.launch, row.kernel) for row in rows}):
        found[launch] = before.get(kernel, 0)
        before[kernel] = found[launch] + 1
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--nvabi", default="nvabi")
    args = parser.parse_args()
    spark = session("local[1]")
    compared = spark.read.parquet(str(args.out / "launches")).collect()
    findings = spark.read.parquet(str(args.out / "findings")).collect()
    spark.stop()
    pairs, total = sorted(args.files.iterdir()), 0
    for pair in pairs:
        order = orders([row for row in compared if row.pair == pair.name])
        mine = {
            (order[row.launch], *(row[column] for column in KEPT)) for row in findings if row.pair == pair.name
        }
        theirs, count = local(args.nvabi, pair)
        if mine != theirs or len(theirs) != count:
            sys.exit(f"{pair.name}: {len(mine)} findings, the differ has {count}: {sorted(mine ^ theirs)[:3]}")
        total += count
    print(f"the same: {len(pairs)} pairs, {total} findings")


if __name__ == "__main__":
    main()
