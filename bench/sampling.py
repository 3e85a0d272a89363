"""Measures what `--sample` costs: six real programs of at least 5 seconds, their start-up, and pairs of malloc and free beside
the samplers of gperftools and jemalloc.

    bench/sampling.py [--rounds 15] [--rate 512k] [--only NAME] [--write FILE]

Each round runs every command alone, alone once more (the A/A row, which says how much two equal runs differ), and with
`--sample`, in an order that changes with the round. The figures are medians over all rounds. A job that takes less than 5 seconds alone is
an error, because then the start of the recorder would count too much; the start has a row of its own (`ls`).

Wall time ends when the command returns. The CPU time of pairs is measured by the program itself (`bench/pairs.c`), without its start.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import inputs
from run import OURS, machine

LEAST_S = 5.0
START_RUNS = 40
PAIRS_MILLIONS = 40
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
FOLDER = inputs.FOLDER / "sampling"
WAYS = ("alone", "again", "sampled")


def jobs():
    """Name, command, file for stdin, environment. They are the jobs of `bench/run.py` with larger inputs."""
    made = inputs.make()
    documents = inputs.write("many_documents.json", json.dumps(list(inputs.documents(330_000))))
    jq = 'map({name, n: (.tags | length), t: (.tags | join(","))}) | group_by(.n) | map({n: .[0].n, l: (map(.t | length) | add)})'
    cc1plus = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True).stdout.strip()
    flags = ["-quiet", "-O1", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE"]
    return [
        ("python", ["/usr/bin/python3", made["python"], made["json"], "13"], None, {"PYTHONMALLOC": "malloc"}),
        ("sqlite3", ["/usr/bin/sqlite3", ":memory:"], inputs.write("much_work.sql", inputs.sql(4_000_000)), {}),
        ("jq", ["/usr/bin/jq", jq, documents], None, {}),
        ("node", [shutil.which("node"), made["node"], made["json"], "48"], None, {}),
        ("cc1plus", [cc1plus, *flags, inputs.write("many_templates.cpp", inputs.templates(32)), "-o", "/dev/null"], None, {}),
        ("perl", ["/usr/bin/perl", made["perl"], "1400000"], None, {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}),
    ]


def recorded(command, rate, name):
    return [str(OURS), "-q", "--sample", rate, "-o", str(FOLDER / name), *command]


def timed(command, stdin, env):
    """The wall time of one run in seconds."""
    with open(stdin or os.devnull) as source:
        began = time.perf_counter()
        done = subprocess.run(command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **env})
        seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{command[0]}: exit code {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return seconds


def in_turns(number):
    """The ways of one round, so that none of them is always the first."""
    return WAYS[number % 3:] + WAYS[: number % 3]


def measure(name, command, stdin, env, rounds, rate):
    command = [str(word) for word in command]
    found = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in in_turns(number):
            words = recorded(command, rate, name) if way == "sampled" else command
            found[way].append(timed(words, stdin, env))
    return {way: statistics.median(all) for way, all in found.items()}


def start_up(rounds, rate):
    """The start and end of a program that runs for 2 ms: the time of one run, as the mean of several."""
    found = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in in_turns(number):
            command = ["/bin/ls", "/usr/bin"]
            words = recorded(command, rate, "ls") if way == "sampled" else command
            found[way].append(sum(timed(words, None, {}) for _ in range(START_RUNS)) / START_RUNS)
    return {way: statistics.median(all) for way, all in found.items()}


def samplers(rate_bytes, rate):
    """The programs whose pairs are compared: name, the command before the program, and its environment. Each sampler stands after its own
    allocator alone."""
    preload = lambda name: {"LD_PRELOAD": str(LIBRARIES / name)}
    power = rate_bytes.bit_length() - 1
    conf = f"prof:true,prof_active:true,lg_prof_sample:{power},prof_prefix:{FOLDER}/jeprof"
    return [
        ("glibc", [], {}),
        ("glibc, again", [], {}),
        (f"glibc, heaptrack --sample {rate}", recorded([], rate, "pairs"), {}),
        ("tcmalloc", [], {**preload("libtcmalloc.so.4"), "TCMALLOC_SAMPLE_PARAMETER": "0"}),
        ("tcmalloc, its sampler", [], {**preload("libtcmalloc.so.4"), "TCMALLOC_SAMPLE_PARAMETER": str(rate_bytes)}),
        ("jemalloc", [], preload("libjemalloc.so.2")),
        ("jemalloc, its sampler", [], {**preload("libjemalloc.so.2"), "MALLOC_CONF": conf}),
    ]


def pairs(rounds, rate_bytes, rate):
    program = inputs.FOLDER / "pairs"
    subprocess.run(["cc", "-O2", str(inputs.HERE / "pairs.c"), "-o", str(program)], check=True)
    all = samplers(rate_bytes, rate)
    found = {name: [] for name, _, _ in all}
    for number in range(rounds):
        turn = number % len(all)
        for name, before, env in all[turn:] + all[:turn]:
            done = subprocess.run([*before, str(program), str(PAIRS_MILLIONS)], capture_output=True, text=True, env={**os.environ, **env}, check=True)
            # jemalloc goes on without the options that it does not have.
            if "Invalid conf" in done.stderr:
                sys.exit(f"{name}: {done.stderr.strip()}")
            found[name].append(float(done.stdout))
    return {name: statistics.median(times) for name, times in found.items()}


def percent(row, way):
    return f"{(row[way] / row['alone'] - 1) * 100:+.1f} %"


def report(rows, start, of_pairs, rounds, rate, load):
    lines = [f"Medians of {rounds} interleaved rounds, `--sample {rate}`. {machine()}; load {load:.1f} at the start.", ""]
    if rows:
        lines += ["| program | alone | A/A | with --sample |", "|---|---|---|---|"]
        lines += [f"| {name} | {row['alone']:.2f} s | {percent(row, 'again')} | {percent(row, 'sampled')} |" for name, row in rows.items()]
    if start:
        more = lambda way: f"{(start[way] - start['alone']) * 1e3:+.1f} ms"
        lines.append(f"| start-up (`ls`) | {start['alone'] * 1e3:.1f} ms | {more('again')} | {more('sampled')} |")
    if of_pairs:
        lines += ["", "| a malloc and a free | CPU time | more than its allocator alone |", "|---|---|---|"]
        alone = 0.0
        for name, nanoseconds in of_pairs.items():
            is_alone = "," not in name
            alone = nanoseconds if is_alone else alone
            lines.append(f"| {name} | {nanoseconds:.2f} ns | {'' if is_alone else f'{nanoseconds - alone:+.2f} ns'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rate", default="512k", help="as for heaptrack: 512k is 512,000 bytes")
    parser.add_argument("--only", help="the rows whose name contains this: a program, start-up, or pairs")
    parser.add_argument("--write", type=pathlib.Path, help="write the tables there")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: this machine is busy (load {load:.1f}); the figures will not be fair", flush=True)
    wanted = lambda name: not options.only or options.only in name
    rate_bytes = int(float(options.rate.removesuffix("k")) * (1000 if options.rate.endswith("k") else 1))
    rows, too_short = {}, []
    for name, command, stdin, env in jobs():
        if not wanted(name):
            continue
        row = rows[name] = measure(name, command, stdin, env, options.rounds, options.rate)
        if row["alone"] < LEAST_S:
            too_short.append(f"{name} takes only {row['alone']:.1f} s")
        print(f"{name:10} alone {row['alone']:6.2f} s   A/A {percent(row, 'again'):>8}   sampled {percent(row, 'sampled'):>8}", flush=True)
    start = start_up(options.rounds, options.rate) if wanted("start-up") else {}
    of_pairs = pairs(options.rounds, rate_bytes, options.rate) if wanted("pairs") else {}
    text = report(rows, start, of_pairs, options.rounds, options.rate, load)
    print(text)
    if options.write:
        options.write.write_text(text)
    if too_short:
        sys.exit("; ".join(too_short))


if __name__ == "__main__":
    main()
