"""Measures what `--follow` costs a script that starts 1,000 short processes."""
import json
import resource
import shutil
import subprocess
import time

from processes import reap, wait

PROCESSES = 1000
# Static programs and KDE's heaptrack take longer for each, so there are fewer of them.
FEW_PROCESSES = 200
TIMEOUT_S = 300


def loop(count, command):
    """Returns a shell that runs a command this many times."""
    return ["/bin/sh", "-c", f"i=0; while [ $i -lt {count} ]; do {command}; i=$((i + 1)); done"]


def commands(ours, kde, folder):
    """Returns the command line for each way to run the script."""
    script = loop(PROCESSES, "/bin/true")
    record = [str(ours), "-q", "-o", str(folder / "followed.htz")]
    ways = {
        "base": script,
        "alone": [*record, "--no-symbols", *script],
        "followed": [*record, "--no-symbols", "--follow", *script],
        "named": [*record, "--follow", *script],
        "live": [str(ours), "heaptrace", "--outfile", str(folder / "live"), *script],
    }
    static = loop(FEW_PROCESSES, folder / "static")
    ways |= {"static_base": static, "static": [*record, "--follow", *static]}
    # It follows no child, so it must be put in front of each program.
    return ways | ({"kde": loop(FEW_PROCESSES, f"{kde} -o kde.$i /bin/true")} if kde else {})


def count(way):
    return FEW_PROCESSES if way in ("static_base", "static", "kde") else PROCESSES


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


def compare(ours, kde, folder, rounds):
    folder = folder / "followed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["gcc", "-O1", "-static", "-x", "c", "-", "-o", folder / "static"], input=b"int main(void) { return 0; }", check=True)
    best = {}
    for _ in range(rounds):
        for way, command in commands(ours, kde, folder).items():
            wall, cpu = (took / count(way) for took in once(command, folder))
            known = best.get(way, (wall, cpu))
            best[way] = (min(wall, known[0]), min(cpu, known[1]))
            if way == "named":
                best["processes"], best["size"] = recorded(ours, folder)
    return best


def extra(row, way):
    """The extra wall time and CPU time for each process, in milliseconds."""
    return [(took - base) * 1000 for took, base in zip(row[way], row["static_base" if way == "static" else "base"])]


def line(row):
    each = lambda way: f"{extra(row, way)[0]:.2f} ms" if way in row else "-"
    return f"{PROCESSES} short processes: base {row['base'][0] * 1000:.2f} ms each, more for each with --follow {each('followed')}, with names {each('named')}, static {each('static')}, heaptrace {each('live')}, KDE {each('kde')}"


def section(row):
    if not row:
        return ""
    ways = {
        "alone": "`heaptrack`, which records only the shell",
        "followed": "`heaptrack --follow --no-symbols`",
        "named": "`heaptrack --follow`",
        "static": f"`heaptrack --follow`, {FEW_PROCESSES} static programs",
        "live": "`heaptrace`",
        "kde": f"KDE's `heaptrack` in front of each of {FEW_PROCESSES} programs, with {FEW_PROCESSES} files",
    }
    lines = ["| | each process | more for each process | more CPU for each process |", "|---|---|---|---|", f"| alone | {row['base'][0] * 1000:.2f} ms | | |"]
    for way, name in ways.items():
        if way in row:
            wall, cpu = extra(row, way)
            lines.append(f"| {name} | {row[way][0] * 1000:.2f} ms | {wall:.2f} ms | {cpu:.2f} ms |")
    return f"""## {PROCESSES:,} short processes

A shell that executes `/bin/true` {PROCESSES:,} times (`bench/followed.py`), best of the rounds. The trace of `--follow` has {row['processes']:,} processes and {row['size'] / 1024:.0f} KB.

{chr(10).join(lines)}

KDE's heaptrack records only the process that it starts, so it has to be put in front of each program. bytehound follows children if `MEMORY_PROFILER_TRACK_CHILD_PROCESSES` is set, with a file for each process that nothing combines; it is not run here, because no package has it.
"""
