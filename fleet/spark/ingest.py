#!/usr/bin/env python3
"""A Spark job that adds traces to a dataset, and compacts it.

    spark-submit ingest.py --dataset /mnt/heap --traces '/mnt/traces/*/*.htz' --service shop --version 1.5 [--label team=web]
        [--host-from-path 2] [--program heaptrack-dataset] [--compact]

Every worker needs `heaptrack-dataset` and sees the same folders (NFS, or a mounted object store). Each task adds its
part of the traces; writers need no lock, and a task that Spark repeats adds nothing twice. The driver compacts at the
end. --host-from-path N takes the host from the N-th folder above the trace: 1 is the folder that the trace is in.
"""
import argparse
import glob
import os
import subprocess

from pyspark.sql import SparkSession


def add(program, dataset, words, host_from_path):
    """Returns a function that adds the traces of one partition, and yields a line for each."""

    def run(traces):
        hosts = {}
        for trace in traces:
            host = trace.split(os.sep)[-1 - host_from_path] if host_from_path else None
            hosts.setdefault(host, []).append(trace)
        for host, files in hosts.items():
            given = words + (["--host", host] if host else [])
            done = subprocess.run([program, "add", dataset] + files + given, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip())
            yield from done.stdout.splitlines()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--traces", required=True, help="a pattern of file names, which the driver expands")
    parser.add_argument("--service", required=True)
    parser.add_argument("--version", default="")
    parser.add_argument("--label", action="append", default=[])
    parser.add_argument("--host-from-path", type=int, default=0)
    parser.add_argument("--program", default="heaptrack-dataset")
    parser.add_argument("--compact", action="store_true")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("heaptrack ingest").getOrCreate()
    words = ["--service", options.service, "--version", options.version]
    words += [word for label in options.label for word in ("--label", label)]
    # Workers run in folders of their own.
    dataset = os.path.abspath(options.dataset)
    traces = sorted(map(os.path.abspath, glob.glob(options.traces)))
    slices = max(1, min(len(traces) // 50 + 1, 1000))
    tasks = spark.sparkContext.parallelize(traces, slices)
    lines = tasks.mapPartitions(add(options.program, dataset, words, options.host_from_path)).collect()
    print(f"{sum(line.endswith(': added') for line in lines)} of {len(traces)} traces added")
    if options.compact:
        subprocess.run([options.program, "compact", dataset], check=True)
    spark.stop()


main()
