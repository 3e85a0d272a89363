"""Runs a command as the reaper of all its descendants: `orphans.py FILE COMMAND...`. Writes lines to FILE: "recorder PID" for the
command itself, then "ended PID CODE" for each process that ends.

This is for the test in which the recorder is killed. The recorded program then has no parent, and only a reaper learns how it ended.
"""
import ctypes
import os
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
report = open(sys.argv[1], "w", buffering=1)
child = subprocess.Popen(sys.argv[2:])
print("recorder", child.pid, file=report)
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    code = os.waitstatus_to_exitcode(status)
    print("ended", pid, code if code >= 0 else 128 - code, file=report)
