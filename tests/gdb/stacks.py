"""Runs inside gdb, attached to a target that stops itself with SIGSTOP after certain events (HEAPTRACK_TEST_STOP_AT).

At each stop it writes one JSON line to the file in STACKS_OUT: the thread and its stack, leaf first, as [file, address in
that file], or [null, address] outside of any file. It continues until the target has ended, or until gdb fails to continue,
which it writes as an error. gdb's unwinder is independent of ours.
"""
import bisect
import json
import os
import struct

import gdb

for command in (
    "set pagination off",
    "set confirm off",
    "set backtrace past-main on",
    "set backtrace past-entry on",
    "set backtrace limit 200000",
    "set print thread-events off",
    "set print inferior-events off",
    "handle all nostop noprint pass",
    "handle SIGSTOP stop print nopass",
    "handle SIGCONT nostop noprint nopass",
):
    gdb.execute(command, to_string=True)


class Maps:
    """Finds the file that contains an address, and the address in that file."""

    def __init__(self, pid):
        self.rows, self.base = [], {}
        for line in open(f"/proc/{pid}/maps"):
            fields = line.rstrip("\n").split(None, 5)
            start, end = (int(part, 16) for part in fields[0].split("-"))
            name = fields[5] if len(fields) > 5 else ""
            if not name.startswith("/") and name != "[vdso]":
                continue
            if int(fields[2], 16) == 0:
                self.base[name] = self.bias(pid, name, start, end)
            self.rows.append((start, end, name))
        self.starts = [row[0] for row in self.rows]

    def bias(self, pid, name, start, end):
        """Returns the load bias of a file: 0 for a program that is linked to a fixed address, otherwise the address of its first page."""
        try:
            with open(f"/proc/{pid}/map_files/{start:x}-{end:x}", "rb") as file:
                kind = struct.unpack_from("<H", file.read(20), 16)[0]
        except OSError:
            kind = 3
        return 0 if kind == 2 else start

    def locate(self, address):
        at = bisect.bisect_right(self.starts, address) - 1
        if at >= 0 and address < self.rows[at][1]:
            name = self.rows[at][2]
            return [name, address - self.base.get(name, 0)]
        return [None, address]


def walk():
    frame, pcs = gdb.newest_frame(), []
    while frame is not None:
        # gdb derives inlined and tail-call frames from debug information. They have no return address.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pcs.append(frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            break
    return pcs


def report(out):
    thread = gdb.selected_thread()
    maps = Maps(gdb.selected_inferior().pid)
    stack = [maps.locate(pc) for pc in walk()]
    print(json.dumps({"tid": thread.ptid[1], "stack": stack}), file=out, flush=True)


with open(os.environ["STACKS_OUT"], "w") as out:
    while gdb.selected_inferior().pid:
        report(out)
        try:
            gdb.execute("continue", to_string=True)
        except gdb.error as error:
            if not gdb.selected_inferior().pid:
                break
            print(json.dumps({"error": str(error)}), file=out, flush=True)
            break
