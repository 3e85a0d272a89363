#!/usr/bin/env python3
"""Runs a command and prints what it took: timed.py NAME MOST-MB COMMAND...

Fails if the command does, or if its largest process had more than MOST-MB megabytes resident. 0 is no limit.
"""
import resource
import subprocess
import sys
import time

name, most, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
start = time.monotonic()
code = subprocess.run(command).returncode
took = time.monotonic() - start
used = resource.getrusage(resource.RUSAGE_CHILDREN)
megabytes = used.ru_maxrss * 1024 / 1e6
print(f"{name}: {took:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU time, {megabytes:.0f} MB", file=sys.stderr, flush=True)
if most and megabytes > most:
    sys.exit(f"{name} had {megabytes:.0f} MB, and {most} MB are allowed")
sys.exit(code)
