#!/usr/bin/env python3
"""Kills writers of a dataset at random moments, and asks all engines after each: killed.py HEAPTRACK PROGRAM TRACES DATASET [ROUNDS]

In each round, two writers add the same traces in opposite orders, and both are killed. Every second round goes on with what the round before it left, and
kills a compaction as well. Then each engine must see every trace that the manifest has, once, with all its stacks and frames, and the sums that
`heaptrack print` gives. In the last round nothing is killed, and all traces must be there. Spark is asked in every tenth round, because a question takes it
seconds.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import time

import engines
from layout import places

COUNT = 60
QUERIES = {
    "sessions": "SELECT session, file, allocations FROM sessions",
    "sites": "SELECT session, sum(allocations) AS allocations, count(*) AS entries FROM sites GROUP BY session",
    "stacks": "SELECT count(*) AS missing FROM (SELECT DISTINCT stack FROM sites) AS used WHERE stack NOT IN (SELECT stack FROM stacks)",
    "frames": "SELECT count(*) AS missing FROM (SELECT DISTINCT frame FROM stacks) AS used WHERE frame NOT IN (SELECT frame FROM frames)",
}
heaptrack, program, folder, dataset = (os.path.abspath(word) for word in sys.argv[1:5])
rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 50
seed = int(os.environ.get("HEAPTRACK_SEED", time.time_ns() % 2**32))
print(f"HEAPTRACK_SEED={seed}")
chance = random.Random(seed)


def committed():
    """The number of traces that the manifest has."""
    entries = []
    manifest = os.path.join(dataset, "manifest")
    for name in os.listdir(manifest) if os.path.isdir(manifest) else []:
        if name.endswith(".json") and not name.startswith("."):
            entries.append(json.load(open(os.path.join(manifest, name))))
    replaced = {batch for entry in entries for batch in entry["replaces"]}
    sessions = [session for entry in entries if entry["batch"] not in replaced for session in entry["sessions"]]
    assert len(sessions) == len(set(sessions)), "a trace is in two live batches"
    return len(sessions)


def start(*words):
    return subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def add(traces):
    return start("add", dataset, *traces, "--service", "all", "--host", "a", "--date", "2026-11-18", "--label", "team=web")


def kill_after(seconds, children):
    """Returns how many of the children still ran."""
    time.sleep(seconds)
    running = sum(child.poll() is None for child in children)
    for child in children:
        child.kill()
        child.wait()
        child.stderr.close()
    return running


def check(ask, engine, expected, wanted):
    rows = {name: ask(sql) for name, sql in QUERIES.items()}
    found = {os.path.basename(row["file"]): row["allocations"] for row in rows["sessions"]}
    assert len(rows["sessions"]) == wanted == len(found), (engine, wanted, len(rows["sessions"]), len(found))
    assert all(expected[name] == allocations for name, allocations in found.items()), (engine, found)
    names = {row["session"]: os.path.basename(row["file"]) for row in rows["sessions"]}
    sums = {names[row["session"]]: row["allocations"] for row in rows["sites"]}
    assert sums == {name: expected[name] for name in sums}, (engine, sums)
    assert all(name in sums for name in found if expected[name]), (engine, "a trace has no sites")
    missing = {name: rows[name][0]["missing"] for name in ("stacks", "frames")}
    assert not any(missing.values()), (engine, missing)


def main():
    traces = [trace for *_, found in places(folder) for trace in found]
    traces = chance.sample(traces, min(COUNT, len(traces)))
    expected = {}
    for trace in traces:
        report = subprocess.run([heaptrack, "print", "--view", "summary", trace], check=True, capture_output=True).stdout
        expected[os.path.basename(trace)] = json.loads(report)["totals"]["allocations"]
    shutil.rmtree(dataset, ignore_errors=True)
    begin = time.monotonic()
    writers = [add(traces), add(traces[::-1])]
    assert all(child.wait() == 0 for child in writers)
    whole = time.monotonic() - begin
    assert committed() == len(traces)
    killed = asked = 0
    for number in range(rounds + 1):
        is_last = number == rounds
        if number % 2 == 0:
            shutil.rmtree(dataset, ignore_errors=True)
        if is_last:
            assert all(child.wait() == 0 for child in [add(traces), add(traces[::-1])])
        else:
            killed += kill_after(chance.uniform(0, whole), [add(traces), add(traces[::-1])])
            if number % 2 and committed():
                killed += kill_after(chance.uniform(0, whole / 4), [start("compact", dataset, "--grace", "0")])
        wanted = committed()
        assert wanted == len(traces) or not is_last, wanted
        if not wanted:
            continue
        asked += 1
        for engine, connect in engines.ENGINES.items():
            if engine != "spark" or number % 10 == 9 or is_last:
                check(connect(dataset), engine, expected, wanted)
        print(f"round {number}: {wanted} of {len(traces)} traces", flush=True)
    assert killed >= rounds and asked > rounds / 2, (killed, asked)
    print(f"{rounds} rounds, {killed} processes killed while they worked; every engine saw every committed trace once, with all its rows")


main()
