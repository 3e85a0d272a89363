#!/usr/bin/env python3
"""Records traces of real programs for a dataset.

record.py HEAPTRACK FOLDER COUNT [PACKAGES]

Writes FOLDER/SERVICE/VERSION/HOST/DATE/N.htz, COUNT files in total. Programs, their releases and their input are real
(programs.py); the hosts and dates are only names in the path, which `dataset add` gets as options. PACKAGES is the
folder that packages.py makes. Without it, only the system's programs are recorded.
"""
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from programs import DATES, HOSTS, VERSIONS, command, services, sources

heaptrack, folder, count = sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3])
packages = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 else None
NAMES = services(packages)


def one(number):
    """Records one trace. Which one it is follows from its number alone. Versions and hosts take turns."""
    chance = random.Random(number)
    name, turn = NAMES[number % len(NAMES)], number // len(NAMES)
    version = VERSIONS[turn % len(VERSIONS)]
    host, date = HOSTS[(turn + turn // len(VERSIONS)) % len(HOSTS)], chance.choice(DATES[version])
    place = os.path.join(folder, name, version, host, date)
    trace = os.path.join(place, f"{number}.htz")
    if os.path.exists(trace):
        return
    os.makedirs(place, exist_ok=True)
    words, environment = command(name, version, host, chance.randrange(1900, 2100), packages, folder)
    run = subprocess.run([heaptrack, "-q", "-o", trace] + words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **environment})
    wanted = -15 if name == "sessions" else 0
    if run.returncode not in (wanted, 128 - wanted) or not os.path.exists(trace):
        raise SystemExit(f"{words} ended with {run.returncode}: {run.stderr.decode()}")


def main():
    sources(folder)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(count)))


main()
