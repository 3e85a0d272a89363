#!/usr/bin/python3
"""Records a program for a long time, as in production: pushes to servers that fail in turns, rotated snapshots, triggers,
signals and a trace with a limit. Memory and disk of the recorder must stay bounded, and nothing may be left behind.

    soak.py HEAPTRACK FOLDER [SECONDS]
"""
import glob
import gzip
import http.server
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

# The program grows by 8 MB within 40 seconds and frees most of that, again and again. It ends with its stdin.
PROGRAM = """
import sys, threading, time
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
kept, forever, count = [], [], 0
while not ended.is_set():
    for _ in range(200):
        kept.append(bytearray(1000)); bytearray(5000); [str(i) for i in range(20)]
    count += 1
    if count % 10 == 0: forever.append(bytearray(300))
    if len(kept) > 8000: del kept[:]
    time.sleep(1.0)
print(count)
"""
MB = 1_000_000
SPOOL, SNAPSHOTS, TRACE, RSS = 1 * MB, 3 * MB, 8 * MB, 250 * MB
HEALTHY = 90
MANNERS = ["take", "error", "silent", "garbage", "take"]


class Receiver(http.server.ThreadingHTTPServer):
    daemon_threads = True
    manner = "take"
    taken = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        manner, is_grpc = self.server.manner, "grpc" in self.headers["content-type"]
        if manner == "silent":
            self.rfile.read(1)
            self.close_connection = True
        elif manner == "garbage":
            self.wfile.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
            self.close_connection = True
        else:
            status = 503 if manner == "error" else 200
            if status == 200:
                kind = "parca" if is_grpc else "pyroscope" if self.path.startswith("/ingest") else "otlp"
                self.server.taken[kind] = self.server.taken.get(kind, 0) + 1
                if kind != "parca":
                    gzip.decompress(body)
            answer = b"\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n" if is_grpc else b"{}"
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *words):
        pass


def size(pattern):
    total = 0
    for path in glob.glob(pattern):
        try:
            total += os.stat(path).st_size
        except FileNotFoundError:
            pass
    return total


def resident(pid):
    with open(f"/proc/{pid}/statm") as text:
        return int(text.read().split()[1]) * 4096


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def main(heaptrack, folder, seconds):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    receiver = Receiver(("127.0.0.1", 0), Handler)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{receiver.server_port}"
    command = [heaptrack, "-o", f"{folder}/t.htz", "--keep-last", "1m", "--max-size", str(TRACE),
               "--snapshot-when", "growth=4M,heap=6M,cgroup=95%,sigusr1", "--snapshots-size", str(SNAPSHOTS),
               "--pprof", f"unix:{folder}/heap.sock", "--push-every", "2s", "--redact",
               "--push-spool", f"{folder}/spool", "--push-spool-size", str(SPOOL)]
    for kind in ("pyroscope", "parca", "otlp"):
        command += ["--push", f"{kind}={url}"]
    command += ["/usr/bin/python3", "-S", "-c", PROGRAM]
    with open(f"{folder}.log", "w") as log:
        recorder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder,
                                    env=dict(os.environ, PYTHONMALLOC="malloc"))
    start, rows, taken_snapshots = time.monotonic(), [], set()
    chance = random.Random(27)
    next_signal = 10
    while (now := time.monotonic() - start) < seconds:
        # At the end all wait for the last servers that failed, so that nothing is left in the spool.
        receiver.manner = MANNERS[int(now / 20) % len(MANNERS)] if now < seconds - HEALTHY else "take"
        row = {"rss": resident(recorder.pid), "spool": size(f"{folder}/spool/*"), "trace": size(f"{folder}/t.htz"),
               "snapshots": size(f"{folder}/t.snapshot-*.htz"), "descriptors": descriptors(recorder.pid)}
        rows.append(row)
        taken_snapshots.update(glob.glob(f"{folder}/t.snapshot-*.htz"))
        if now > next_signal:
            next_signal += chance.uniform(5, 25)
            os.kill(recorder.pid, signal.SIGUSR1)
        time.sleep(0.5)
    out, _ = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, recorder.returncode
    assert int(out) >= seconds * 0.5, f"the program made {int(out)} steps of a second"

    most = {name: max(row[name] for row in rows) for name in rows[0]}
    half = len(rows) // 2
    halves = {name: [max(row[name] for row in part) for part in (rows[:half], rows[half:])] for name in rows[0]}
    largest = max(size(path) for path in glob.glob(f"{folder}/t.snapshot-*.htz"))
    print(json.dumps({"seconds": seconds, "most": most, "halves": halves, "taken": receiver.taken,
                      "rss in MB": [row["rss"] // MB for row in rows[::len(rows) // 20 or 1]],
                      "snapshots taken": len(taken_snapshots)}))
    assert most["spool"] <= SPOOL, "the spool is bounded"
    assert most["snapshots"] <= SNAPSHOTS + largest, "snapshots are rotated"
    assert most["trace"] <= TRACE, "the trace is bounded"
    assert most["rss"] <= RSS, "the recorder's memory is bounded"
    assert halves["rss"][1] <= halves["rss"][0] * 1.25 + 8 * MB, "the recorder's memory does not grow"
    assert most["descriptors"] <= 100, "descriptors are bounded"
    assert len(taken_snapshots) >= seconds / 30, "snapshots were taken"
    assert all(receiver.taken.get(kind, 0) > seconds / 10 for kind in ("pyroscope", "parca", "otlp"))
    snapshots = sorted(glob.glob(f"{folder}/t.snapshot-*.htz"), key=os.path.getmtime)
    for path in [snapshots[0], snapshots[-1], f"{folder}/t.htz"]:
        report = subprocess.run([heaptrack, "print", "--json", path], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, check=True)
        totals = json.loads(report.stdout)["totals"]
        assert totals["allocations"] > 0 and totals["lost_events"] == 0, path
    names = {name for name in os.listdir(folder) if not name.startswith("t.snapshot-")}
    assert names == {"t.htz", "spool"}, f"left behind: {names}"
    assert os.listdir(f"{folder}/spool") == ["heaptrack.lock"], os.listdir(f"{folder}/spool")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as text:
                words = text.read()
        except OSError:
            continue
        assert int(pid) == os.getpid() or folder.encode() not in words, f"{pid} is left: {words}"
    print("ok")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 600)
