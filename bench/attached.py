"""Compares the cost of an attached recording with that of a launched one, and measures whether a cost is left after the detach.

    bench/attached.py [--rounds N]

The program repeats the same work and prints its CPU time each time. The result is the best of all rounds. Four states are
measured in turns, so that a busy moment of the machine affects all of them: alone and launched (two processes that stay in that
state), attached, and after the detach (a third process).
"""
import argparse
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = pathlib.Path(os.environ.get("HEAPTRACK_BIN", ROOT / "target" / "release" / "heaptrack"))
FOLDER = ROOT / "target" / "bench"
STATES = ("alone", "launched", "attached", "detached")


class Process:
    def __init__(self, command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def round(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return int(self.child.stdout.readline())

    def end(self):
        self.child.stdin.close()
        self.child.wait()


class Recorder:
    def __init__(self, pid):
        command = [str(OURS), "attach", str(pid), "--no-symbols", "-o", str(FOLDER / "attached.htz")]
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.child.stderr.readline()
        if "attached to" not in line:
            raise SystemExit(line + self.child.stderr.read())

    def end(self):
        self.child.send_signal(signal.SIGINT)
        self.child.stderr.read()
        self.child.wait()


def measure(program, depth, rounds):
    command = [str(program), str(depth), "1000"]
    alone = Process(command)
    launched = Process([str(OURS), "-q", "--no-symbols", "-o", str(FOLDER / "launched.htz"), *command])
    target = Process(command)
    best = dict.fromkeys(STATES, float("inf"))

    def take(state, process):
        process.round()
        for _ in range(3):
            best[state] = min(best[state], process.round())

    for _ in range(rounds):
        take("alone", alone)
        take("launched", launched)
        recorder = Recorder(target.child.pid)
        take("attached", target)
        recorder.end()
        take("detached", target)
    for process in (alone, launched, target):
        process.end()
    return best


def results(rounds):
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = FOLDER / "rounds"
    subprocess.run(["g++", "-g", "-O2", "-pthread", str(ROOT / "bench" / "rounds.cpp"), "-o", str(program)], check=True)
    return {depth: measure(program, depth, rounds) for depth in (1, 16, 60)}


def table(found):
    lines = [
        "| churn, depth of the stack | launched | attached | attached / launched | after the detach |",
        "|---|---|---|---|---|",
    ]
    for depth, best in found.items():
        ratio = {state: best[state] / best["alone"] for state in STATES}
        lines.append(
            f"| {depth} | {ratio['launched']:.2f}x | {ratio['attached']:.2f}x | {best['attached'] / best['launched']:.2f} "
            f"| {ratio['detached']:.2f}x |"
        )
    return "\n".join(lines)


def section(rounds):
    return f"""## Attached

CPU time of the program's own thread, against the same work without a recorder, best of {rounds * 3} rounds, in turns (`bench/attached.py`).

{table(results(rounds))}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    began = time.monotonic()
    print(section(parser.parse_args().rounds))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
