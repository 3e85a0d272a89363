#!/usr/bin/env python3
"""How often `dataset diff` is wrong, on real recordings.

populations.py HEAPTRACK DATASET-PROGRAM FOLDER

Records one program 90 times as it is and 60 times with a seeded regression: it keeps 5 % of its peak more. Then it
compares 200 pairs of 30 traces without a difference, and 50 pairs of 30 with the regression. Each pair is a label, so
all of them are in one dataset. Prints how many pairs had a difference, and fails if more than 5 % of the equal ones or
fewer than 45 of the others had one.
"""
import json
import os
import random
import subprocess
import sys

SAME, REGRESSED = 90, 60
SIDE = 30

# A service with noise: the number and the sizes of its requests vary from run to run.
PROGRAM = """
import json, random, sys
chance = random.Random(int(sys.argv[1]))
cache = {}
for request in range(chance.randrange(1800, 2200)):
    body = {"id": request, "text": "x" * chance.randrange(200, 2000), "list": list(range(chance.randrange(50)))}
    cache[request] = json.dumps(body)
kept = bytearray(int(sys.argv[2]))
print(len(cache))
"""


def record(heaptrack, folder, number, kept):
    trace = os.path.join(folder, f"{number}-{kept}.htz")
    if not os.path.exists(trace):
        command = [heaptrack, "-q", "-o", trace, "/usr/bin/python3", "-S", "-c", PROGRAM, str(number), str(kept)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return trace


def main():
    heaptrack, program, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    same = [record(heaptrack, folder, number, 0) for number in range(SAME)]
    report = json.loads(subprocess.run([heaptrack, "print", "--json", same[0]], check=True, capture_output=True).stdout)
    regression = report["totals"]["peak_bytes"] * 5 // 100
    regressed = [record(heaptrack, folder, SAME + number, regression) for number in range(REGRESSED)]
    labels = {trace: [] for trace in same + regressed}
    chance = random.Random(28)
    for pair in range(200):
        chosen = chance.sample(same, 2 * SIDE)
        for at, trace in enumerate(chosen):
            labels[trace].append(f"equal{pair}={'before' if at < SIDE else 'after'}")
    for pair in range(50):
        for side, traces in (("before", same), ("after", regressed)):
            for trace in chance.sample(traces, SIDE):
                labels[trace].append(f"seeded{pair}={side}")
    dataset = os.path.join(folder, "dataset")
    for trace, given in labels.items():
        words = [word for label in given for word in ("--label", label)]
        command = [program, "add", dataset, trace, "--service", "cache", "--host", "a", "--date", "2026-11-18"]
        subprocess.run(command + words, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, "compact", dataset, "--grace", "0"], check=True)

    def differs(label):
        sides = ["--before", f"label.{label}=before", "--after", f"label.{label}=after"]
        out = subprocess.run([program, "diff", dataset, "--json"] + sides, check=True, capture_output=True).stdout
        answer = json.loads(out)
        assert (answer["before_traces"], answer["after_traces"]) == (SIDE, SIDE), answer
        return bool(answer["changes"])

    false_alarms = sum(differs(f"equal{pair}") for pair in range(200))
    found = sum(differs(f"seeded{pair}") for pair in range(50))
    print(f"{false_alarms} of 200 equal pairs differ, and {found} of 50 with a regression of {regression} bytes are found")
    assert false_alarms <= 10 and found >= 45


main()
