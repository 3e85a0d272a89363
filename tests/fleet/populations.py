#!/usr/bin/env python3
"""How often `dataset diff` is wrong, on real recordings.

populations.py HEAPTRACK DATASET-PROGRAM FOLDER [EQUAL SEEDED]

For each of two programs, compares 200 pairs of equal groups, and 50 pairs of which one has a seeded regression: it keeps 5 %
of its peak more. A group has 30 traces. Every pair has recordings of its own, which no other pair shares. Fails if more than
5 % of the equal pairs differ, or if fewer than 9 of 10 of the others have the function that keeps the memory among the
functions that grew, with at least half of its bytes. Results are kept in FOLDER, so a second run goes on.
"""
import json
import os
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

SIDE = 30
heaptrack, program, folder = sys.argv[1:4]
EQUAL, SEEDED = (int(word) for word in sys.argv[4:6]) if len(sys.argv) > 4 else (200, 50)

# Services with noise: the number and the sizes of their requests vary from run to run.
PYTHON = """
import json, random, sys
chance = random.Random(int(sys.argv[1]))
cache = {}
for request in range(chance.randrange(1800, 2200)):
    body = {"id": request, "text": "x" * chance.randrange(200, 2000), "list": list(range(chance.randrange(50)))}
    cache[request] = json.dumps(body)
kept = bytearray(int(sys.argv[2]))
print(len(cache))
"""
PERL = """
srand($ARGV[0]);
my %orders;
for my $number (1 .. 1800 + int(rand(400))) {
    my @items = map { { id => $_, price => int(rand(1000)) } } 1 .. int(rand(8));
    $orders{"order $number"} = { items => [@items], text => join(",", map { rand() } 1 .. int(rand(20))) };
}
my $kept = "x" x $ARGV[1];
print scalar keys %orders;
"""
# The command for a seed and the bytes that are kept, and the function that keeps them.
PROGRAMS = {
    "python": (lambda seed, kept: ["/usr/bin/python3", "-S", "-c", PYTHON, str(seed), str(kept)], "bytearray___init__"),
    "perl": (lambda seed, kept: ["perl", "-e", PERL, str(seed), str(kept)], "Perl_pp_repeat"),
}


def record(trace, command):
    subprocess.run([heaptrack, "-q", "-o", trace] + command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return trace


def compare(place, name, kept, pair):
    """Records both groups of a pair, and returns the functions that differ."""
    command, _ = PROGRAMS[name]
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    dataset = os.path.join(place, "dataset")
    for side in ("before", "after"):
        traces = []
        for number in range(SIDE):
            seed = zlib.crc32(f"{pair} {side} {number}".encode())
            traces.append(record(os.path.join(place, f"{side}{number}.htz"), command(seed, kept if side == "after" else 0)))
        words = ["--service", name, "--version", side, "--host", "a", "--date", "2026-11-18"]
        subprocess.run([program, "add", dataset] + traces + words, check=True, stdout=subprocess.DEVNULL)
    words = ["--before", "version=before", "--after", "version=after", "--json", "--top", "1000"]
    answer = json.loads(subprocess.run([program, "diff", dataset] + words, check=True, capture_output=True).stdout)
    assert (answer["before_traces"], answer["after_traces"]) == (SIDE, SIDE), answer
    shutil.rmtree(place)
    return {change["function"]: change["shift"] for change in answer["changes"]}


def run(name):
    command, guilty = PROGRAMS[name]
    first = record(os.path.join(folder, f"{name}.htz"), command(0, 0))
    report = json.loads(subprocess.run([heaptrack, "print", "--json", first], check=True, capture_output=True).stdout)
    regression = report["totals"]["peak_bytes"] * 5 // 100
    results = os.path.join(folder, f"{name}.jsonl")
    done = {}
    if os.path.exists(results):
        done = dict(json.loads(line) for line in open(results))
    pairs = [(f"equal{at}", 0) for at in range(EQUAL)] + [(f"seeded{at}", regression) for at in range(SEEDED)]

    def one(item):
        pair, kept = item
        if pair not in done:
            done[pair] = compare(os.path.join(folder, f"{name}.{pair}"), name, kept, f"{name} {pair}")
            with open(results, "a") as out:
                out.write(json.dumps([pair, done[pair]]) + "\n")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, pairs))
    alarms = sum(bool(done[pair]) for pair, kept in pairs if not kept)
    found = sum(done[pair].get(guilty, 0) >= regression / 2 for pair, kept in pairs if kept)
    print(f"{name}: {alarms} of {EQUAL} equal pairs differ; {guilty} is named in {found} of {SEEDED} pairs in which it keeps {regression} bytes more")
    assert alarms <= EQUAL * 5 // 100 and found >= SEEDED * 9 // 10, name


os.makedirs(folder, exist_ok=True)
for name in PROGRAMS:
    run(name)
