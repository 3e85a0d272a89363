"""Measures what `--follow` costs a script that starts 1,000 short processes."""
import json
import resource
import shutil
import subprocess
import time

from processes import reap, wait

PROCESSES = 1000
SCRIPT = f"i=0; while [ $i -lt {PROCESSES} ]; do /bin/true; i=$((i + 1)); done"
TIMEOUT_S = 300


def commands(ours, folder):
    """Returns the command line for each way to run the script."""
    script = ["/bin/sh", "-c", SCRIPT]
    record = [str(ours), "-q", "-o", str(folder / "followed.htz")]
    return {
        "base": script,
        "alone": [*record, "--no-symbols", *script],
        "followed": [*record, "--no-symbols", "--follow", *script],
        "named": [*record, "--follow", *script],
        "live": [str(ours), "heaptrace", "--outfile", str(folder / "live"), *script],
    }


def once(command, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=folder
    )
    code = wait(child, TIMEOUT_S)
    wall = time.perf_counter() - began
    reap()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        raise SystemExit(f"{command}: exit code {code}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def recorded(ours, folder):
    """Returns the number of processes in the trace, and its size."""
    trace = folder / "followed.htz"
    told = subprocess.run([ours, "print", "--json", trace], capture_output=True, check=True).stdout
    return len(json.loads(told)["processes"]), trace.stat().st_size


def compare(ours, folder, rounds):
    folder = folder / "followed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    best = {}
    for _ in range(rounds):
        for way, command in commands(ours, folder).items():
            wall, cpu = once(command, folder)
            known = best.get(way, (wall, cpu))
            best[way] = (min(wall, known[0]), min(cpu, known[1]))
            if way == "named":
                best["processes"], best["size"] = recorded(ours, folder)
    return best


def extra(row, way):
    """The extra wall time and CPU time for each process, in milliseconds."""
    return [(took - base) * 1000 / PROCESSES for took, base in zip(row[way], row["base"])]


def line(row):
    each = lambda way: f"{extra(row, way)[0]:.2f} ms"
    return f"{PROCESSES} short processes: base {row['base'][0]:.2f} s, more for each with --follow {each('followed')}, with names {each('named')}, heaptrace {each('live')}"


def section(row):
    if not row:
        return ""
    ways = {"alone": "`heaptrack`, which records only the shell", "followed": "`heaptrack --follow --no-symbols`", "named": "`heaptrack --follow`", "live": "`heaptrace`"}
    lines = ["| | time | more for each process | more CPU for each process |", "|---|---|---|---|", f"| alone | {row['base'][0]:.2f} s | | |"]
    for way, name in ways.items():
        wall, cpu = extra(row, way)
        lines.append(f"| {name} | {row[way][0]:.2f} s | {wall:.2f} ms | {cpu:.2f} ms |")
    return f"""## {PROCESSES:,} short processes

A shell that executes `/bin/true` {PROCESSES:,} times. The trace of `--follow` has {row['processes']:,} processes and {row['size'] / 1024:.0f} KB.

{chr(10).join(lines)}

KDE's heaptrack records only the process that it starts, so it has no row. Bytehound follows `exec` in part, with a file for each process that nothing combines; it is not run here.
"""
