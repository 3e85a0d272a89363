"""Compares two binaries: what a change costs or saves, and how large the noise of the measurement is.

    bench/before_after.py OLD NEW [--only NAME] [--rounds N]

Every round runs each workload alone, recorded by OLD, by NEW, and by NEW once more, each round in another order, without names
(`--no-symbols`). The columns A/A compare the two runs of NEW. These differ only by noise, so a difference between OLD and NEW that
is not larger means nothing. Only runs of the same round are compared, because the speed of a shared machine changes by the
minute. The table shows the median over all rounds, and the range that holds the true median in 95 of 100 cases. CPU is that of the
program and the recorder together. "ns an event" is the median and the range of the differences in wall time, divided by the
number of the program's events.
"""
import argparse
import pathlib
import statistics

import run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--only", help="workloads whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    binaries = {"old": options.old.resolve(), "new": options.new.resolve(), "again": options.new.resolve()}
    runner = run.Runner()
    print("| workload | base | old | new | wall: new / old | A/A | CPU: new / old | A/A | ns an event | A/A |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for work in run.workloads():
        if options.only and options.only not in work.name:
            continue
        times, events = measure(runner, work, binaries, options.rounds)
        print(row(work, times, events), flush=True)


def measure(runner, work, binaries, rounds):
    """Returns the times of each tool in each round, and the number of events of the program."""
    tools = ["base", *binaries]
    times = {tool: [] for tool in tools}
    for number in range(rounds):
        turn = number % len(tools)
        for tool in tools[turn:] + tools[:turn]:
            run.OURS = binaries.get(tool)
            got = runner.once(work, "base" if tool == "base" else "ours")
            if got["failed"]:
                raise SystemExit(f"{work.name}, {tool}: {got['failed']}")
            times[tool].append(got)
    run.OURS = binaries["new"]
    events, _ = run.events(runner.folder / "ours.htz")
    return times, events


def middle(values):
    """The median, and the range around it that holds the true median in 95 of 100 cases (by ranks)."""
    values = sorted(values)
    reach = max(1, round(0.98 * len(values) ** 0.5))
    low, high = max(0, (len(values) - 1) // 2 - reach), min(len(values) - 1, len(values) // 2 + reach)
    return statistics.median(values), values[low], values[high]


def row(work, times, events):
    pairs = lambda what, one, other: [(a[what], b[what]) for a, b in zip(times[one], times[other])]

    def percent(what, one, other):
        found, low, high = middle((a / b - 1) * 100 for a, b in pairs(what, one, other))
        return f"{found:+.1f} % ({low:+.1f} to {high:+.1f})"

    def each(one, other):
        if events < 100_000:
            return "-"
        found, low, high = middle((a - b) * 1e9 / events for a, b in pairs("wall", one, other))
        return f"{found:+.1f} ({low:+.1f} to {high:+.1f})"

    base = statistics.median(one["wall"] for one in times["base"])
    ratios = " | ".join(f"{middle(a / b for a, b in pairs('wall', tool, 'base'))[0]:.3f}x" for tool in ("old", "new"))
    compared = [("new", "old"), ("again", "new")]
    cells = [percent("wall", *two) for two in compared] + [percent("cpu", *two) for two in compared] + [each(*two) for two in compared]
    return f"| {work.name} | {base * 1000:.0f} ms | {ratios} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
