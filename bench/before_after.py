"""Compares two binaries: what a change costs, or saves, with the noise beside it.

    bench/before_after.py OLD NEW [--only NAME] [--rounds N]

Every round runs each workload alone, recorded by OLD, by NEW, and by NEW once more, each round in another order, without names
(`--no-symbols`). The second run of NEW is the A/A row: the two of NEW differ by noise alone, so a difference between OLD and NEW
that is not larger means nothing. For wall time and for the CPU time of the program and the recorder together, the best of all
rounds counts. "ns an event": the difference of OLD and NEW in wall time, divided by the events of the program.
"""
import argparse
import pathlib

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
    print("| workload | base | old | new | new again | wall: new / old | A/A | CPU: new / old | A/A | ns an event | A/A |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for work in run.workloads():
        if options.only and options.only not in work.name:
            continue
        best, events = measure(runner, work, binaries, options.rounds)
        print(row(work, best, events), flush=True)


def measure(runner, work, binaries, rounds):
    """The least wall and CPU time of each tool, and the events of the program."""
    tools = ["base", *binaries]
    all_times = {tool: [] for tool in tools}
    for number in range(rounds):
        turn = number % len(tools)
        for tool in tools[turn:] + tools[:turn]:
            run.OURS = binaries.get(tool)
            got = runner.once(work, "base" if tool == "base" else "ours")
            if got["failed"]:
                raise SystemExit(f"{work.name}, {tool}: {got['failed']}")
            all_times[tool].append(got)
    run.OURS = binaries["new"]
    events, _ = run.events(runner.folder / "ours.htz")
    best = {tool: {what: min(one[what] for one in times) for what in ("wall", "cpu")} for tool, times in all_times.items()}
    return best, events


def row(work, best, events):
    against = lambda what, one, other: f"{(best[one][what] / best[other][what] - 1) * 100:+.1f} %"
    each = lambda one, other: f"{(best[one]['wall'] - best[other]['wall']) * 1e9 / events:+.1f}" if events > 100_000 else "-"
    base = best["base"]["wall"]
    ratios = " | ".join(f"{best[tool]['wall'] / base:.3f}x" for tool in ("old", "new", "again"))
    cells = [against("wall", "new", "old"), against("wall", "again", "new"), against("cpu", "new", "old"), against("cpu", "again", "new")]
    return f"| {work.name} | {base * 1000:.0f} ms | {ratios} | {' | '.join(cells)} | {each('new', 'old')} | {each('again', 'new')} |"


if __name__ == "__main__":
    main()
