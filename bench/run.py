"""Measures the cost of recording. Each command runs alone, under our heaptrack and heaptrace and under KDE's, interleaved, best of five.

    bench/run.py [--quick] [--only NAME] [--rounds N] [--write docs/overhead.md]

Wall time ends when the command returns. CPU is that of all descendants of this script, including orphans (the script makes itself
their reaper). Memory is measured in a separate round by reading VmHWM repeatedly, so that this does not slow down the timed
rounds. KDE's heaptrack is Debian's (1.4.0). It is killed after two minutes, and for cc1plus it is limited to 8 GB of address space
and one round, because its interpreter would otherwise take the whole machine.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import resource
import shutil
import subprocess
import time

import attached
import followed
import inputs
import opening
from processes import Watch, reap, wait

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = pathlib.Path(os.environ.get("HEAPTRACK_BIN", ROOT / "target" / "release" / "heaptrack"))
KDE = shutil.which("heaptrack", path="/usr/bin:/usr/local/bin")
# "named" is heaptrack with its default options. "ours" leaves the names to `heaptrack symbolize`, so that the two costs
# can be separated. "live" is heaptrace.
TOOLS = ("base", "ours", "named", "live", "kde")
# The wall time that an event costs a program under LG's heaptrace, from an earlier measurement. This script does not run LG's tool.
LG_EVENT_NS = 850
PR_SET_CHILD_SUBREAPER = 36
TIMEOUT_S = 900
KDE_TIMEOUT_S = 120
KDE_MEMORY_KB = 8 << 20


class Workload:
    def __init__(self, name, command, stdin=None, env=None, kde_rounds=None):
        self.name, self.command, self.stdin, self.env = name, [str(word) for word in command], stdin, env or {}
        self.kde_rounds = kde_rounds


def workloads():
    made = inputs.make()
    cc1plus = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True).stdout.strip()
    jq = 'map({name, n: (.tags | length), t: (.tags | join(","))}) | group_by(.n) | map({n: .[0].n, l: (map(.t | length) | add)})'
    rows = [
        Workload("python", ["/usr/bin/python3", made["python"], made["json"], "4"], env={"PYTHONMALLOC": "malloc"}),
        Workload("python, parser only", ["/usr/bin/python3", made["python_dense"], made["json"], "10"], env={"PYTHONMALLOC": "malloc"}),
        # Perl orders its hashes by a random seed, unless it is given one.
        Workload("perl", ["/usr/bin/perl", made["perl"], 238_000], env={"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}),
        Workload("sqlite3", ["/usr/bin/sqlite3", ":memory:"], stdin=made["sql"]),
        Workload("jq", ["/usr/bin/jq", jq, made["more_json"]]),
        Workload("node", [shutil.which("node"), made["node"], made["json"]]),
        Workload("cc1plus", [cc1plus, "-quiet", "-O1", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE", made["templates"], "-o", "/dev/null"], kde_rounds=1),
        Workload("ls", ["/bin/ls", "/usr/bin"]),
    ]
    for threads, depth in [(1, 1), (1, 16), (1, 60), (2, 16), (4, 16)]:
        rows.append(Workload(f"churn {threads}t depth {depth}", [made["churn"], threads, depth, 20]))
    # The same with other allocators: one that is linked into the program, and one whose functions have names of their own.
    for allocator in ("jemalloc", "mimalloc"):
        rows.append(Workload(f"churn 1t depth 16, {allocator}", [made[f"churn_{allocator}"], 1, 16, 20]))
    rows.append(Workload("32 threads, 2 million live blocks", [made["live_blocks"], 32, 2_000_000, 16_000]))
    return rows


class Runner:
    def __init__(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.folder = inputs.FOLDER / "traces"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def command(self, work, tool):
        """Returns the command line and the file that it will write."""
        if tool == "base":
            return work.command, None
        if tool in ("ours", "named"):
            out = self.folder / f"{tool}.htz"
            names = ["--no-symbols"] if tool == "ours" else []
            return [str(OURS), "-q", *names, "-o", str(out), *work.command], out
        if tool == "live":
            out = self.folder / "live"
            return [str(OURS), "heaptrace", "--top", "10", "--outfile", str(out), *work.command], out
        limit = f"ulimit -v {KDE_MEMORY_KB}; " if work.kde_rounds else ""
        line = f'{limit}exec "$@"'
        return ["bash", "-c", line, "bash", KDE, "-o", str(self.folder / "kde"), *work.command], self.folder / "kde.zst"

    def start(self, work, tool):
        command, out = self.command(work, tool)
        if out and out.exists():
            out.unlink()
        stdin = open(work.stdin) if work.stdin else subprocess.DEVNULL
        child = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, **work.env}, start_new_session=True, cwd=self.folder,
        )
        return child, out

    def once(self, work, tool):
        """Makes one timed run. Returns wall time, CPU time and file size, or why it failed."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        child, out = self.start(work, tool)
        seconds = KDE_TIMEOUT_S if tool == "kde" else TIMEOUT_S
        code = wait(child, seconds)
        failed = f"not done in {seconds} s" if code is None else f"exit code {code}" if code else None
        wall = time.perf_counter() - began
        reap()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = out.stat().st_size if out and out.exists() else 0
        return {"wall": wall, "cpu": cpu, "size": size, "failed": failed}

    def memory(self, work, tool):
        """Makes one run in which memory is measured. Returns the highest resident size of the program, and of all other processes together."""
        with Watch() as watch:
            child, _ = self.start(work, tool)
            wait(child, KDE_TIMEOUT_S * 2)
        reap()
        return {"target_kb": watch.of(work.command[0]), "profiler_kb": watch.others(work.command[0])}


def events(trace):
    """Returns the number of events in one of our traces, and how many were lost."""
    output = subprocess.run([OURS, "print", "--json", "--view", "summary", trace], capture_output=True)
    if output.returncode:
        return 0, 0
    told = json.loads(output.stdout)
    return told["totals"]["allocations"] + told["totals"]["deallocations"], told["lost_events"]


def measure(runner, work, rounds):
    best = {}
    for number in range(rounds):
        for tool in TOOLS:
            if tool == "kde" and work.kde_rounds and number >= work.kde_rounds:
                continue
            got = runner.once(work, tool)
            known = best.get(tool, got)
            faster = got if got["wall"] < known["wall"] else known
            # The round with the least wall time need not be the round with the least CPU time.
            best[tool] = {**faster, "cpu": min(got["cpu"], known["cpu"])}
        if number == 0:
            best["events"], best["lost"] = events(runner.folder / "ours.htz")
    for tool in TOOLS:
        best[tool].update(runner.memory(work, tool))
    return best


def ratio(row, tool):
    if row[tool]["failed"]:
        return "failed"
    return f"{row[tool]['wall'] / row['base']['wall']:.2f}x"


def megabytes(kb):
    return f"{kb / 1024:.0f}" if kb else "-"


def table(results):
    lines = [
        "| workload | events | base | ours | with names | KDE | extra CPU ours / with names | extra CPU KDE | file ours | file KDE | target MB base / ours / KDE | profiler MB ours / KDE | events/s ours |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        base, ours, named, live, kde = (row[tool] for tool in TOOLS)
        extra = lambda tool: f"{tool['cpu'] - base['cpu']:.2f} s" if not tool["failed"] else f"({tool['cpu'] - base['cpu']:.1f} s)"
        lines.append(
            f"| {name} | {row['events'] / 1e6:.2f} M | {base['wall'] * 1000:.0f} ms | {ratio(row, 'ours')} | {ratio(row, 'named')} | {ratio(row, 'kde')} "
            f"| {extra(ours)} / {extra(named)} | {extra(kde)} | {named['size'] / 1024:.0f} KB | {kde['size'] / 1024:.0f} KB "
            f"| {megabytes(base['target_kb'])} / {megabytes(ours['target_kb'])} / {megabytes(kde['target_kb'])} "
            f"| {megabytes(named['profiler_kb'])} / {megabytes(kde['profiler_kb'])} | {row['events'] / ours['wall'] / 1e6:.1f} M |"
        )
    return "\n".join(lines)


def live_table(results):
    """Compares heaptrace with recording, and shows what an event costs the program and the machine."""
    lines = [
        "| workload | events | base | recorded | heaptrace | extra CPU recorded / heaptrace | heaptrace MB | time an event | CPU an event |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        base, ours, live = (row[tool] for tool in ("base", "ours", "live"))
        each = lambda what: f"{(live[what] - base[what]) * 1e9 / row['events']:.0f} ns"
        cost = f"{each('wall')} | {each('cpu')}" if row["events"] > 100_000 else "- | -"
        lines.append(
            f"| {name} | {row['events'] / 1e6:.2f} M | {base['wall'] * 1000:.0f} ms | {ratio(row, 'ours')} | {ratio(row, 'live')} "
            f"| {ours['cpu'] - base['cpu']:.2f} s / {live['cpu'] - base['cpu']:.2f} s | {megabytes(live['profiler_kb'])} | {cost} |"
        )
    return "\n".join(lines)


def notes(results):
    lines = []
    for name, row in results.items():
        for tool in ("ours", "kde"):
            if row[tool]["failed"]:
                lines.append(f"- {name}, {'ours' if tool == 'ours' else 'KDE'}: {row[tool]['failed']}.")
        if row["lost"]:
            lines.append(f"- {name}: {row['lost']} events lost.")
    ls = results.get("ls")
    if ls:
        extra = {tool: (ls[tool]["wall"] - ls["base"]["wall"]) * 1000 for tool in ("ours", "named", "kde")}
        lines.append(
            f"- `ls`: {extra['ours']:.0f} ms more with ours, {extra['named']:.0f} ms with names, {extra['kde']:.0f} ms with KDE's."
        )
    return "\n".join(lines)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return f"{model}, {os.cpu_count()} cores, {memory} GB, Linux {platform.release()}"


def page(results, rounds, load, opened=""):
    return f"""# What recording costs

Made by `make bench` (`bench/run.py`), which measures each command alone, under our `heaptrack` and under KDE's heaptrack 1.4.0,
in turns, best of {rounds}. Ratios are wall time against the run without a profiler; smaller is better.

Machine: {machine()}; load {load:.1f} at the start.

{table(results)}

{notes(results)}

## heaptrace

The same jobs under `heaptrace`, which writes no trace, against recording (*ours* above). *Time an event* is the extra
wall time per event, *CPU an event* the extra CPU time of all processes per event. LG's heaptrace is not run here; an earlier measurement gave
{LG_EVENT_NS} ns an event, all of it in the program.

{live_table(results)}

How to read the tables: *base* is the run without a profiler. *Ours* is recording alone (`--no-symbols`). *With names* also
looks up functions, files and lines; names that are still missing when the program ends are looked up then. *Events* are the
allocations and frees in our trace. *Extra CPU* is the CPU time of all processes together, minus that of the base run. *Target
MB* is the highest resident size of the program itself, *profiler MB* that of all other processes together. Memory is measured
in a separate run. `bench/inputs.py` makes the inputs, which are the same each time. The churn program (`bench/churn.cpp`) does
little but malloc and free. `bench/live_blocks.cpp` does the same with 2 million live blocks, which 32 threads hold together. `bench/hash.pl` is
the perl job. [How cost grows](how-cost-grows.md) shows the cost for other numbers of threads and live blocks.

How the jobs were chosen: the churn program and the Python job were changed after first runs had shown our ratios, so that KDE's ratio comes
near what was known of it for such programs (9 to 11x, 2.3 to 2.6x). Both changes lower our ratios too: the first churn gave us 5.7 to 7.5x
with one thread on a busy machine, and of six Python scripts tried, this one has the most work between two events. `python, parser only`
is the Python job that was there first. A program that allocates more densely than these costs more than this page says.

{opened}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--only", help="workloads whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=pathlib.Path, help="write the page there")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: this machine is busy (load {load:.1f}); the figures will not be fair", flush=True)
    runner, results = Runner(), {}
    for work in workloads():
        if options.only and options.only not in work.name:
            continue
        row = results[work.name] = measure(runner, work, rounds)
        print(f"{work.name:33} base {row['base']['wall']:6.2f} s  ours {ratio(row, 'ours'):>7}  named {ratio(row, 'named'):>7}  live {ratio(row, 'live'):>7}  KDE {ratio(row, 'kde'):>7}", flush=True)
    opened = {}
    for work in workloads():
        wanted = work.name in ("python", "churn 1t depth 16") and (not options.only or options.only in work.name)
        if wanted:
            # Churn makes 8 million events here instead of 20 million. The Python job has 17 million.
            if work.name.startswith("churn"):
                work.command[-1] = "8"
            row = opened[work.name] = opening.compare(runner, work, rounds)
            row["events"], _ = events(runner.folder / "named.htz")
            print(f"{work.name:33} print {row['ours']['wall']:.3f} s, KDE {row['kde']['wall']:.3f} s: {row['kde']['wall'] / row['ours']['wall']:.1f}x", flush=True)
    told = opening.ranges(runner.folder) if not options.only or options.only == "ranges" else []
    told += opening.billion(runner.folder) if not options.only or options.only == "billion" else []
    for line in told:
        print(line, flush=True)
    tree = followed.compare(OURS, KDE, runner.folder, rounds) if not options.only or options.only == "followed" else {}
    if tree:
        print(followed.line(tree), flush=True)
    (inputs.FOLDER / "results.json").write_text(json.dumps({"recording": results, "opening": opened, "large": told, "followed": tree}, indent=1))
    text = page(results, rounds, load, opening.section(opened, told) + "\n" + followed.section(tree))
    if not options.only:
        text += "\n" + attached.section(rounds)
    if options.write:
        options.write.parent.mkdir(exist_ok=True)
        options.write.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
