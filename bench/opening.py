"""Measures the cost of opening a trace: our print compared with KDE's, ranges of a large trace, and a trace of a billion events."""
import os
import pathlib
import shutil
import subprocess
import time

from processes import Watch, reap, wait

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = pathlib.Path(os.environ.get("HEAPTRACK_BIN", ROOT / "target" / "release" / "heaptrack"))
KDE_PRINT = shutil.which("heaptrack_print", path="/usr/bin:/usr/local/bin")
TIMEOUT_S = 900
HUNDRED_MILLION, BILLION = 100_000_000, 1_000_000_000
# The most memory that `heaptrack print` of the trace of a billion events may use.
MEMORY_MB = 512
# The trace of a billion events has about 2 GB. It is only made if this much disk space is free.
ROOM_GB = 8


def run(command):
    """Returns the wall time, and whether the command failed."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    code = wait(child, TIMEOUT_S)
    return time.perf_counter() - began, code != 0


def memory(command):
    """The highest resident size in kB, measured in a separate run."""
    with Watch() as watch:
        run(command)
    return watch.of(command[0])


def compare(runner, work, rounds):
    """Measures three commands in turns, best of several rounds: our print of our trace, our print of KDE's file, and KDE's print of its
    file, all of the same workload."""
    for tool in ("named", "kde"):
        child, _ = runner.start(work, tool)
        wait(child, TIMEOUT_S)
    reap()
    commands = {
        "ours": [str(OURS), "print", "--full", str(runner.folder / "named.htz")],
        "ours, KDE's file": [str(OURS), "print", "--full", str(runner.folder / "kde.zst")],
        "kde": [KDE_PRINT, str(runner.folder / "kde.zst")],
    }
    best = {name: {"wall": float("inf"), "failed": False} for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            wall, failed = run(command)
            best[name]["wall"] = min(best[name]["wall"], wall)
            best[name]["failed"] |= failed
    for name, command in commands.items():
        best[name]["kb"] = memory(command)
    return best


def example(package, name):
    subprocess.run(["cargo", "build", "--release", "-q", "-p", package, "--example", name], cwd=ROOT, check=True)
    return ROOT / "target" / "release" / "examples" / name


def make(trace, events):
    """Makes a trace of that many events with the real collector: one thread, 20,000 addresses, in random order."""
    command = [example("collector", "throughput"), str(events), "1", "20000", "0", trace]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ranges(folder):
    """Measures range queries on an open trace of 100 million events."""
    trace = folder / "hundred.htz"
    make(trace, HUNDRED_MILLION)
    told = subprocess.run([example("analysis", "ranges"), trace, "50"], check=True, capture_output=True, text=True).stdout
    trace.unlink()
    lines = [line for line in told.splitlines() if not line.startswith("HEAPTRACK_SEED")]
    return [f"100 million events, open with an index (`crates/analysis/examples/ranges.rs`), random ranges: {line}" for line in lines]


def billion(folder):
    """Measures `heaptrack print` of a trace of a billion events. Too much memory is an error."""
    free_gb = shutil.disk_usage(folder).free >> 30
    if free_gb < ROOM_GB:
        return [f"A billion events: not measured, only {free_gb} GB of disk are free."]
    trace = folder / "billion.htz"
    make(trace, BILLION)
    command = [str(OURS), "print", str(trace)]
    with Watch() as watch:
        wall, failed = run(command)
    size_gb = trace.stat().st_size / 1e9
    trace.unlink()
    megabytes = watch.of(command[0]) / 1024
    if failed or megabytes > MEMORY_MB:
        raise SystemExit(f"a billion events: {'failed' if failed else 'done'}, {megabytes:.0f} MB of at most {MEMORY_MB}")
    return [f"A billion events ({size_gb:.1f} GB): `heaptrack print` in {wall:.1f} s and {megabytes:.0f} MB (at most {MEMORY_MB})."]


def section(results, told):
    if not results and not told:
        return ""
    lines = [
        "## What opening costs",
        "",
        "`heaptrack print` of our trace, and of KDE's file, against `heaptrack_print` of KDE's file of the same workload; wall time, best of the rounds, in turns.",
        "Memory is the highest resident size, in a run of its own.",
        "",
        "| workload | events | ours | KDE's print | KDE's file, ours | ours / KDE | our print of KDE's file / KDE | MB ours / KDE |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        ours, own, kde = row["ours"], row["ours, KDE's file"], row["kde"]
        lines.append(
            f"| {name} | {row['events'] / 1e6:.2f} M | {ours['wall'] * 1000:.0f} ms | {kde['wall'] * 1000:.0f} ms | {own['wall'] * 1000:.0f} ms "
            f"| {kde['wall'] / ours['wall']:.1f}x faster | {kde['wall'] / own['wall']:.1f}x faster | {ours['kb'] / 1024:.0f} / {kde['kb'] / 1024:.0f} |"
        )
    if told:
        lines += ["", "Larger traces, made by the real collector (`crates/collector/examples/throughput.rs`):", ""] + [f"- {line}" for line in told]
    return "\n".join(lines)
