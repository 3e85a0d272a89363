#!/usr/bin/env python3
"""Measures every export of the trace of a Python program with 17 million events, and writes the table of docs/formats.md.

    bench/exports.py [--rounds N] [--print]

An export is one process: it reads the trace and writes the file. Times are the best of the rounds; memory is the highest resident
size (VmHWM) in a run of its own. Everything but tables of events must take less than 3 seconds and 300 MB; otherwise the script
fails. With `--print`, the table is printed and the document stays as it is.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import inputs
from processes import Watch

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = pathlib.Path(os.environ.get("HEAPTRACK_BIN", ROOT / "target" / "release" / "heaptrack"))
DOCUMENT = ROOT / "docs" / "formats.md"
HEADING = "## What exports cost\n"
MOST_SECONDS, MOST_MB = 3, 300
EVENTS = ["--rows", "events"]
# The options of each export, and whether its size is that of the events.
EXPORTS = [
    (["pprof"], False),
    (["speedscope"], False),
    (["firefox"], False),
    (["dhat"], False),
    (["gperftools"], False),
    (["csv"], False),
    (["jsonl"], False),
    (["massif"], False),
    (["folded"], False),
    (["svg"], False),
    (["heaptrack"], True),
    (["csv", *EVENTS], True),
    (["jsonl", *EVENTS], True),
]


def record(folder):
    made = inputs.make()
    trace = folder / "python"
    command = [OURS, "-q", "-o", trace, "/usr/bin/python3", made["python"], made["json"], "4"]
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return trace.with_suffix(".htz") if not trace.exists() else trace


def events(trace):
    summary = subprocess.run([OURS, "print", "--view", "summary", trace], check=True, capture_output=True, text=True).stdout
    totals = json.loads(summary)["totals"]
    return totals["allocations"] + totals["deallocations"]


def run(trace, options, out):
    """Returns the wall time and the CPU time."""
    command = [str(OURS), "export", "--to", *options, str(trace), "-o", str(out)]
    began = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
    return wall, usage.ru_utime + usage.ru_stime


def measure(trace, folder, rounds):
    rows, broken = [], []
    for options, is_events in EXPORTS:
        out = folder / "exported"
        runs = [run(trace, options, out) for _ in range(rounds)]
        wall, cpu = min(wall for wall, _ in runs), min(cpu for _, cpu in runs)
        with Watch() as watch:
            run(trace, options, out)
        megabytes = watch.of(OURS) / 1024
        size = out.stat().st_size
        out.unlink()
        rows.append((" ".join(options), wall, cpu, megabytes, size))
        print(f"{' '.join(options):22} {wall:6.2f} s  {cpu:6.2f} s CPU  {megabytes:6.0f} MB  {size / 1e3:10.0f} kB", flush=True)
        if not is_events and (wall >= MOST_SECONDS or megabytes >= MOST_MB):
            broken.append(f"{' '.join(options)}: {wall:.2f} s and {megabytes:.0f} MB, allowed are {MOST_SECONDS} s and {MOST_MB} MB")
    return rows, broken


def size_of(bytes_):
    return f"{bytes_ / 1e6:.1f} MB" if bytes_ >= 1e6 else f"{bytes_ / 1e3:.1f} kB"


def section(rows, count, rounds, trace):
    lines = [
        HEADING,
        f"Made by `bench/exports.py`: a trace of a Python program with {count / 1e6:.2f} million events ({size_of(trace.stat().st_size)}), {os.cpu_count()} cores, wall and CPU time the best of {rounds}, the highest resident size.",
        f"All but those that write every event (`heaptrack` and `--rows events`) must stay below {MOST_SECONDS} s and {MOST_MB} MB.",
        "",
        "| `--to` | time | CPU time | memory | size |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| `{name}` | {wall:.2f} s | {cpu:.2f} s | {megabytes:.0f} MB | {size_of(size)} |" for name, wall, cpu, megabytes, size in rows]
    return "\n".join(lines) + "\n\n"


def put(text):
    """Writes the section in the place of the old one, or before the section about reading."""
    document = DOCUMENT.read_text()
    begin = document.find(HEADING)
    end = document.index("## Reading\n")
    begin = end if begin < 0 else begin
    DOCUMENT.write_text(document[:begin] + text + document[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=inputs.FOLDER if inputs.FOLDER.exists() else None) as name:
        folder = pathlib.Path(name)
        trace = record(folder)
        rows, broken = measure(trace, folder, options.rounds)
        text = section(rows, events(trace), options.rounds, trace)
    print(text) if options.print else put(text)
    if broken:
        raise SystemExit("\n".join(broken))


if __name__ == "__main__":
    main()
