"""Measures how the cost of recording grows with the program's threads, its live blocks and the recorder's threads, and predicts what a
machine with 64 cores would do.

    bench/growth.py [--quick] [--rounds N] [--write docs/how-cost-grows.md]

The program is `bench/live_blocks.cpp`, which prints its own CPU time. The CPU time of all other processes, without that of a
recording that has no events, is the recorder's. With `--write FOLDER/NAME.md`, the picture is written to
FOLDER/images/NAME.svg; otherwise the page is printed and the picture is written to target/bench. `--quick` makes one round with
few sizes and events, to try the script; its figures mean little.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import resource
import subprocess
import threading
import time

import growth_page
import inputs
import opening
import run
from processes import reap, wait

# How often the CPU time of the recorder's threads is read. What a thread does after the last time is not seen.
LOOK_S = 0.002
DISK_PROBE_BYTES = 256 << 20
# The time of a run without events is subtracted from that of a run with events, but not more than this part of it. More would only
# be the noise of a busy machine.
MOST_START = 0.5


@dataclasses.dataclass
class Sizes:
    threads: tuple
    live: tuple
    recorder_threads: tuple
    # Live blocks while the number of threads changes, and threads while the number of live blocks changes.
    usual_live: int
    usual_threads: int
    # Thousands of events of a recording by ours, in addition to those that allocate the live blocks, and the same by KDE's.
    events: int
    kde_events: int
    # The synthetic rows measure CPU time when the last event is in its ring. Many events are needed so that those that still wait
    # for the recorder at that moment hardly count.
    synthetic_events: int


FULL = Sizes((1, 2, 4, 8, 16, 32, 64), (1_000, 10_000, 100_000, 1_000_000, 2_000_000), (1, 2, 4, 8), 100_000, 4, 14_000, 3_000, 40_000_000)
QUICK = Sizes((1, 4, 64), (1_000, 100_000, 1_000_000), (1, 2, 4), 100_000, 4, 2_000, 300, 10_000_000)


@dataclasses.dataclass
class Cost:
    """One run: events, wall time in s, CPU time of the program and of all other processes in s, size of the file in bytes."""

    events: int
    wall: float
    program: float
    others: float
    size: int

    def program_ns(self):
        return self.program * 1e9 / self.events

    def file_bytes(self):
        return self.size / self.events


class Failed(Exception):
    """A command that ended with an error, or took too long."""


class ThreadTimes:
    """A context manager that reads the CPU time of a process's threads again and again."""

    def __init__(self, pid):
        self.folder, self.seen, self.total, self.done = pathlib.Path(f"/proc/{pid}/task"), {}, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def look(self):
        while not self.done.wait(LOOK_S):
            try:
                for task in self.folder.iterdir():
                    ns = int((task / "schedstat").read_text().split()[0])
                    self.seen[task.name] = ((task / "comm").read_text().strip(), ns)
                # User and system time of all threads, those that are gone included.
                fields = (self.folder.parent / "stat").read_text().rpartition(") ")[2].split()
                self.total = (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
            except OSError:
                continue

    def busiest(self):
        """The CPU time in ns of each name's threads. Threads of one name never work at the same time, so it is that of one thread that
        would live as long as the recording. Events do not pass through the main thread, so it is left out. The threads `pair` live for
        milliseconds, so what no look has seen is theirs."""
        found = {}
        for task, (name, ns) in self.seen.items():
            if task != self.folder.parent.name:
                found[stage_name(name)] = found.get(stage_name(name), 0) + ns
        if "pair" in found:
            found["pair"] += max(0, self.total - sum(ns for _, ns in self.seen.values()))
        return found


def stage_name(thread):
    """The name of a thread, without our prefix and without the number of a thread among several with that name."""
    return re.sub(r"[-.:# ]*\d+$", "", thread).removeprefix("heaptrack-")


class Bench:
    def __init__(self, sizes, rounds):
        self.sizes, self.rounds = sizes, rounds
        self.runner = run.Runner()
        self.program = inputs.compile_program("live_blocks")
        self.starts = {}
        self.tools = [tool for tool in ("base", "ours", "kde") if tool != "kde" or run.KDE]

    def work(self, threads, live, thousands):
        return run.Workload("live_blocks", [self.program, threads, live, thousands])

    def start(self, work, tool, options, told):
        command, out = self.runner.command(work, tool)
        if out and out.exists():
            out.unlink()
        command = [*command[:1], *options, *command[1:]]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.runner.folder
        )
        return child, out

    def once(self, work, tool, options=(), look=None):
        """Makes one run. `look` is called with the child's pid and returns a context manager. Returns the run's cost and that manager."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(self.runner.folder / "told", "w+") as told:
            began = time.perf_counter()
            child, out = self.start(work, tool, options, told)
            if look:
                with look(child.pid) as looked:
                    code = wait(child, run.TIMEOUT_S)
            else:
                looked, code = None, wait(child, run.KDE_TIMEOUT_S if tool == "kde" else run.TIMEOUT_S)
            wall = time.perf_counter() - began
            reap()
            told.seek(0)
            text = told.read()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        line = re.search(r"(\d+) events, ([\d.]+) s of CPU", text)
        if code or code is None or not line:
            raise Failed(f"{' '.join(work.command)}, {tool} {' '.join(options)}: exit code {code}")
        events, program = int(line[1]), float(line[2])
        return Cost(events, wall, program, cpu - program, out.stat().st_size if out else 0), looked

    def in_turns(self, works, options):
        """Runs each tool's work in turns. Returns the least of each time over all rounds, by tool. KDE's runs once, and is left out if it fails."""
        runs = {}
        for number in range(self.rounds):
            for tool, work in works.items():
                if tool == "kde" and number > 0:
                    continue
                try:
                    cost, _ = self.once(work, tool, options if tool == "ours" else ())
                    runs.setdefault(tool, []).append(cost)
                except Failed as failed:
                    if tool != "kde":
                        raise
                    print(failed, flush=True)
        return {tool: least(costs) for tool, costs in runs.items()}

    def nothing(self):
        """A program that makes hardly any events. What it costs is not the cost of events."""
        return self.work(1, 1, 1)

    def row(self, threads, live, options=()):
        """What a program with this many threads and live blocks costs with each tool, or with our tool and these options."""
        tools = ("base", "ours") if options else self.tools
        if options not in self.starts:
            self.starts[options] = self.in_turns({tool: self.nothing() for tool in tools}, options)
        starts = self.starts[options]
        thousands = lambda tool: live // 1000 + (self.sizes.kde_events if tool == "kde" else self.sizes.events)
        found = self.in_turns({tool: self.work(threads, live, thousands(tool)) for tool in tools if tool in starts}, options)
        alone, row = found["base"], {"threads": threads, "live": live}
        for tool, cost in found.items():
            start = starts[tool]
            # The CPU time that the program prints includes neither its start nor its end. Alone, they are all that is left.
            rest = max(0.0, cost.others - alone.others - (start.others - starts["base"].others))
            row[tool] = {
                "events": cost.events,
                "wall": cost.wall,
                "rate": cost.events / (cost.wall - min(start.wall, cost.wall * MOST_START)),
                "program_ns": cost.program_ns(),
                "recorder_ns": rest * 1e9 / cost.events,
                "file_bytes": cost.file_bytes(),
            }
        return row

    def busiest(self, threads, live, options=()):
        """The ns per event of the busiest thread of each of the recorder's stages, without what it needs when there are no events."""
        work = self.work(threads, live, live // 1000 + self.sizes.events)
        cost, looked = self.once(work, "ours", options, ThreadTimes)
        _, idle = self.once(self.nothing(), "ours", options, ThreadTimes)
        idle = idle.busiest()
        return {stage: max(0, ns - idle.get(stage, 0)) / cost.events for stage, ns in looked.busiest().items()}

    def has_recorder_threads(self):
        command = [run.OURS, "--recorder-threads", "1", "-q", "--no-symbols", "-o", self.runner.folder / "option.htz", "/bin/true"]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def disk(self):
        """Bytes a second that the disk of the traces accepts, until they are on the disk."""
        path, block = self.runner.folder / "disk", os.urandom(1 << 20)
        began = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            for _ in range(DISK_PROBE_BYTES // len(block)):
                file.write(block)
            os.fsync(file.fileno())
        seconds = time.perf_counter() - began
        path.unlink()
        return DISK_PROBE_BYTES / seconds


def least(costs):
    lowest = lambda name: min(getattr(cost, name) for cost in costs)
    return dataclasses.replace(costs[0], wall=lowest("wall"), program=lowest("program"), others=lowest("others"))


def synthetic(program, events, threads, live):
    """The ns per event of the collector's threads, for events that no program makes. An address is in use half of the time."""
    command = [program, str(events), str(threads), str(max(1, 2 * live // threads))]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    stages = {name: float(ns) for name, ns in re.findall(r"([a-z-]+) ([\d.]+) ns/event", told)}
    size = re.search(r"([\d.]+) bytes/event", told)
    return {"threads": threads, "live": live, "stages": stages, "file_bytes": float(size[1]) if size else 0.0}


def measure(bench, say):
    sizes, found = bench.sizes, {"cores": os.cpu_count(), "kde": bool(run.KDE)}
    found["threads"] = []
    for threads in sizes.threads:
        say(f"{threads:,} {'thread' if threads == 1 else 'threads'} of the program")
        found["threads"].append(bench.row(threads, sizes.usual_live))
    found["live"] = []
    for live in sizes.live:
        say(f"{live:,} live blocks")
        found["live"].append(bench.row(sizes.usual_threads, live))
    say("synthetic events")
    program = opening.example("collector", "throughput")
    pairs = [(threads, sizes.usual_live) for threads in sizes.threads] + [(sizes.usual_threads, live) for live in sizes.live]
    found["synthetic"] = [synthetic(program, sizes.synthetic_events, *pair) for pair in dict.fromkeys(pairs)]
    most = sizes.threads[-1]
    found["recorder_threads"], found["busiest"] = [], {}
    if bench.has_recorder_threads():
        for number in sizes.recorder_threads:
            say(f"{number} {'recorder thread' if number == 1 else 'recorder threads'}")
            options = ("--recorder-threads", str(number))
            try:
                row, busiest = bench.row(most, sizes.usual_live, options), bench.busiest(most, sizes.usual_live, options)
            except Failed as failed:
                # The option may have a highest value.
                print(failed, flush=True)
                break
            found["recorder_threads"].append({"number": number, **row})
            found["busiest"][number] = busiest
    if not found["busiest"]:
        found["busiest"][1] = bench.busiest(most, sizes.usual_live)
    found["disk"] = bench.disk()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, few sizes, few events")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=pathlib.Path, help="write the page there, and the picture into the folder images beside it")
    options = parser.parse_args()
    options.sizes = QUICK if options.quick else FULL
    options.rounds = 1 if options.quick else options.rounds
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: this machine is busy (load {load:.1f}); the figures will not be fair", flush=True)
    found = measure(Bench(options.sizes, options.rounds), lambda text: print(text, flush=True))
    (inputs.FOLDER / "growth.json").write_text(json.dumps(found, indent=1))
    name = f"{options.write.stem if options.write else 'how-cost-grows'}.svg"
    text = growth_page.page(found, options, load, name)
    images = options.write.parent / "images" if options.write else inputs.FOLDER
    images.mkdir(parents=True, exist_ok=True)
    (images / name).write_text(growth_page.picture(found))
    if options.write:
        options.write.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
