#!/usr/bin/env python3
"""Compares many pairs of traces as a Spark job: which pairs differ, and at which sites.

    compare.py RUNS --out FOLDER [--nvabi PATH] [--master URL] [-- OPTIONS OF DIFF…]

RUNS holds `pair=NAME/side=a` and `side=b`, each a folder that `nvabi trace export --by-launch` wrote. A task is one
launch of one pair, so that a pair with many launches is no task for one machine. Tasks run `nvabi trace diff`; what
it finds becomes the table FOLDER/findings, and what it says of each launch FOLDER/launches.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

from pyspark.sql import SparkSession, functions

FINDING = (
    "pair string, launch int, kernel string, warp long, kind string, site string, index_a long, index_b long,"
    " first boolean, count long, resync_a long, resync_b long, file string, line int, function string"
)
COLUMNS = [column.split()[0] for column in FINDING.split(",")]
LAUNCH = (
    "pair string, launch int, kernel string, status string, findings long, warps long, warps_divergent long,"
    " lost long, error string"
)


def launches(nvabi, side):
    """The launches of one side, by what makes them the same in both: session, kernel, and how many came before."""
    done = subprocess.run([nvabi, "trace", "info", "--json", side / "_frame.nvtrace"], capture_output=True, text=True)
    if done.returncode > 1:
        raise RuntimeError(done.stderr.strip())
    before, found = collections.Counter(), {}
    for number, launch in enumerate(json.loads(done.stdout)["launches"]):
        key = launch["session"], launch["kernel"]
        found[(*key, before[key])] = number
        before[key] += 1
    return found


def tasks(nvabi, pair):
    """The launches of a pair that are to be compared; a launch that only one side has is a task, too."""
    a, b = (launches(nvabi, pair / f"side={side}") for side in "ab")
    return [(pair, key[1], a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys())]


def compare(nvabi, options, task):
    """What `nvabi trace diff` says of a launch: a row, and its findings."""
    pair, kernel, a, b = task
    name, launch = pair.name.removeprefix("pair="), b if a is None else a
    said = dict(pair=name, launch=launch, kernel=kernel, status="error", findings=0, warps=0, warps_divergent=0, lost=0)
    if a is None or b is None:
        only = "b" if a is None else "a"
        return (*said.values(), f"only {only} has it"), []
    sides = [pair / f"side={side}" / f"launch={number}" for side, number in (("a", a), ("b", b))]
    done = subprocess.run([nvabi, "trace", "diff", "--json", *options, *sides], capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        return (*said.values(), done.stderr.strip()), []
    said.update(
        status=report["status"], findings=report["total_findings"], warps=report["warps_compared"],
        warps_divergent=report["warps_divergent"], lost=report["overflowed"],
    )
    return (*said.values(), None), [row(name, launch, kernel, finding) for finding in report["findings"]]


def row(pair, launch, kernel, finding):
    source = finding.get("source", {})
    values = {**finding, **source, "pair": pair, "launch": launch, "kernel": kernel}
    return tuple(values.get(column) for column in COLUMNS)


def session(master):
    # Workers are processes of their own with the Python of this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("nvabi trace diff")
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    for key, value in quiet.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--nvabi", default="nvabi", help="the command, on every worker")
    parser.add_argument("--master", default="local-cluster[2,1,1024]", help="default: a cluster of two workers here")
    parser.add_argument("options", nargs="*", help="of `nvabi trace diff`, such as --values")
    args = parser.parse_args()
    nvabi, options, runs = args.nvabi, args.options, args.runs.resolve()
    pairs = sorted(runs.glob("pair=*"))
    if not pairs:
        parser.error(f"{runs} has no folder pair=NAME")

    spark = session(args.master)
    context = spark.sparkContext
    # Tasks are short and not alike: several for each core, so that none waits long for the last one.
    slices = min(len(pairs), 16 * context.defaultParallelism)
    planned = context.parallelize(pairs, slices).flatMap(lambda pair: tasks(nvabi, pair)).collect()
    slices = min(len(planned), 16 * context.defaultParallelism)
    told = context.parallelize(planned, slices).map(lambda task: compare(nvabi, options, task)).cache()
    compared = spark.createDataFrame(told.map(lambda both: both[0]), LAUNCH)
    findings = spark.createDataFrame(told.flatMap(lambda both: both[1]), FINDING)
    compared.write.mode("overwrite").parquet(str(args.out / "launches"))
    findings.write.mode("overwrite").parquet(str(args.out / "findings"))
    summary(spark, args.out, len(pairs))
    spark.stop()


def summary(spark, out, pairs):
    """Prints which sites most pairs differ at first, and what could not be compared."""
    compared = spark.read.parquet(str(out / "launches"))
    findings = spark.read.parquet(str(out / "findings"))
    differ = compared.where("status = 'different'").select("pair").distinct().count()
    total = compared.agg(functions.sum("findings")).first()[0] or 0
    print(f"{pairs} pairs, {compared.count()} launches: {differ} pairs differ, {total} findings")
    sites = findings.where("first").groupBy("kernel", "kind", "site", "file", "line")
    worst = sites.agg(functions.countDistinct("pair").alias("pairs"), functions.count("*").alias("warps"))
    for site in worst.orderBy(functions.desc("pairs"), "site", "kind").limit(10).collect():
        place = f"{site.file}:{site.line}" if site.file else f"site {site.site}"
        print(f"  {site.pairs} pairs, first in {site.warps} warps: {site.kind} at {place} in {site.kernel}")
    for bad in compared.where("status not in ('different', 'identical')").orderBy("pair", "launch").limit(10).collect():
        print(f"  {bad.pair}, launch {bad.launch} of {bad.kernel}: {bad.error or bad.status}", file=sys.stderr)


if __name__ == "__main__":
    main()
