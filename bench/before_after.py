"""Compares two binaries: what a change costs, or saves, with the noise beside it.

    bench/before_after.py OLD NEW [--only NAME] [--rounds N]

Every round runs each workload alone, recorded by OLD, by NEW, and by NEW once more, one after the other. All times are wall
times without names (`--no-symbols`), as ratios to the run alone. The second run of NEW is the A/A row: the two of NEW differ by
noise alone, so a difference between OLD and NEW that is not larger means nothing. The best of all rounds counts, and the
median stands beside it.
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
    print("| workload | base | old | new | new again (A/A) | new / old | A/A | median new / old | median A/A |")
    print("|---|---|---|---|---|---|---|---|---|")
    for work in run.workloads():
        if options.only and options.only not in work.name:
            continue
        walls = {tool: [] for tool in ("base", *binaries)}
        for _ in range(options.rounds):
            for tool in walls:
                run.OURS = binaries.get(tool)
                got = runner.once(work, "base" if tool == "base" else "ours")
                if got["failed"]:
                    raise SystemExit(f"{work.name}, {tool}: {got['failed']}")
                walls[tool].append(got["wall"])
        best = {tool: min(times) for tool, times in walls.items()}
        middle = {tool: statistics.median(times) for tool, times in walls.items()}
        against = lambda of, one, other: f"{(of[one] / of[other] - 1) * 100:+.1f} %"
        print(
            f"| {work.name} | {best['base'] * 1000:.0f} ms | {best['old'] / best['base']:.3f}x | {best['new'] / best['base']:.3f}x "
            f"| {best['again'] / best['base']:.3f}x | {against(best, 'new', 'old')} | {against(best, 'again', 'new')} "
            f"| {against(middle, 'new', 'old')} | {against(middle, 'again', 'new')} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
