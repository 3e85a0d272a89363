#!/usr/bin/env python3
"""The questions of fleet/, answered by adding up `heaptrack print` of every trace: naive.py HEAPTRACK FOLDER SINCE-VERSION.

It shares no code with the dataset: each trace is asked for `--json`, of which one list is enough, and for `--view leaks`. Prints one
JSON object.
"""
import datetime
import json
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

from layout import places

heaptrack, folder, since = sys.argv[1:4]


def show(trace, *options):
    return json.loads(subprocess.run([heaptrack, "print", *options, trace], check=True, capture_output=True).stdout)


def named(frame):
    if frame["short"] or frame["function"]:
        return frame["short"] or frame["function"]
    return f"[{frame['module'].rsplit('/', 1)[-1]}]" if frame["module"] else "?"


def function(entry):
    frames = entry["frames"]
    return named(frames[entry["blamed"] or 0]) if frames else "?"


def read(item):
    """What is needed of a trace, summed up by function, because the reports of 2,000 traces take 60 GB."""
    place, trace = item
    report = show(trace, "--json", "--cost", "allocations")
    sums = defaultdict(lambda: [0, 0])
    for entry in report["allocations"]:
        sums[function(entry)][0] += entry["peak_bytes"]
        sums[function(entry)][1] += entry["allocations"]
    entries = [(name, *costs) for name, costs in sums.items()]
    leaks = [(leak["verdict"], leak["suppressed"], leak["live_bytes"]) for leak in show(trace, "--view", "leaks")["sites"]]
    return place, trace, report["totals"], entries, leaks


def first(rows, *keys):
    """Sorts by keys; those with a minus sign descending."""
    for key in reversed(keys):
        rows.sort(key=lambda row: row[key.lstrip("-")], reverse=key.startswith("-"))
    return rows


items = [(place[:5], trace) for place in places(folder) for trace in place[5]]
with ProcessPoolExecutor(2) as pool:
    traces = list(pool.map(read, items))
last = datetime.date.fromisoformat(max(place[3] for place, _ in items))
peaks, weeks, grown = defaultdict(list), defaultdict(lambda: [0, 0]), defaultdict(lambda: [0, 0])
leaks, labels, days = defaultdict(list), defaultdict(list), {}
for (service, version, host, date, given), trace, totals, entries, leaking in traces:
    peaks[service, version].append(totals["peak_bytes"])
    age = (last - datetime.date.fromisoformat(date)).days
    if age < 14:
        weeks[service][age < 7] += 1
        for name, peak, _ in entries:
            grown[service, name][age < 7] += peak
    for verdict, suppressed, live in leaking:
        if verdict == "grows" and suppressed is None:
            leaks[service, host].append((trace, live))
    for label in given.items():
        labels[label].append(totals)
    days[service, version] = min(date, days.get((service, version), date))
sites = defaultdict(lambda: [0, 0, 0, False])
for (service, version, *_), _, _, entries, _ in traces:
    if (service, since) in days:
        is_old = (days[service, version], version) < (days[service, since], since)
        seen = set()
        for name, peak, allocations in entries:
            site = sites[service, name]
            site[3] = site[3] or is_old
            site[0] += name not in seen
            site[1] += peak
            site[2] += allocations
            seen.add(name)
answers = {
    "top_peak": [
        dict(service=service, version=version, traces=len(bytes), largest_peak_bytes=max(bytes), sum_of_peak_bytes=sum(bytes))
        for (service, version), bytes in peaks.items()
    ],
    "grown": [
        dict(service=service, function=function, traces_before=weeks[service][0], traces_after=weeks[service][1], bytes_before=before,
             bytes_after=after, growth_per_trace=after // weeks[service][1] - before // weeks[service][0])
        for (service, function), (before, after) in grown.items()
        if all(weeks[service])
    ],
    "leaking_hosts": [
        dict(service=service, host=host, traces=len({trace for trace, _ in found}), sites=len(found), leaked_bytes=sum(live for _, live in found))
        for (service, host), found in leaks.items()
    ],
    "new_sites": [
        dict(service=service, function=function, traces=site[0], peak_bytes=site[1], allocations=site[2])
        for (service, function), site in sites.items()
        if not site[3]
    ],
    "label_costs": [
        dict(key=key, value=value, traces=len(found), **{cost: sum(totals[cost] for totals in found) for cost in ("peak_bytes", "allocated_bytes", "leaked_bytes")})
        for (key, value), found in labels.items()
    ],
}
answers["grown"] = [row for row in answers["grown"] if row["growth_per_trace"] > 0]
first(answers["top_peak"], "-largest_peak_bytes", "service", "version")
answers["grown"] = first(answers["grown"], "-growth_per_trace", "service", "function")[:20]
first(answers["leaking_hosts"], "-leaked_bytes", "service", "host")
answers["new_sites"] = first(answers["new_sites"], "-peak_bytes", "-allocations", "service", "function")[:20]
first(answers["label_costs"], "-peak_bytes", "key", "value")
print(json.dumps(answers))
