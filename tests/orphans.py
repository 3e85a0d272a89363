"""Runs a command as the reaper of everything below it; prints "PID CODE" for each process that ends, on file descriptor 3.

For the test in which the recorder is killed: its program then has no parent left, and only a reaper learns how it ended.
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
