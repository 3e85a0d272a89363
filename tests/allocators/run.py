#!/usr/bin/env python3
"""Records one Rust program with five allocators, dynamic and static, launched and attached, unstripped and with a separate debug file: every size must
have the same number of allocations and leaks, at the same source lines. Then records polars, pyarrow and duckdb in Python and compares with what these
count themselves. Needs cargo, cmake, pip and a network. Usage: run.py HEAPTRACK FOLDER [rust | python]"""
import json, os, re, shutil, signal, subprocess, sys
from pathlib import Path

HEAPTRACK, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
HERE = Path(__file__).resolve().parent
ALLOCATORS = ["system", "jemalloc", "mimalloc", "snmalloc", "rpmalloc"]
# Linked statically, the program with rpmalloc crashes at the start of its second thread, also without heaptrack.
STATIC = ["system", "jemalloc", "mimalloc"]
# Sizes whose allocations only the program itself makes, with their counts.
EXPECTED = {777: (500, 500), 512: (2000, 0)}
EXPECTED |= {1000 + i: (sum(1 for n in (5000, 4000) for j in range(n) if j % 7 == i), 0) for i in range(7)}
EXPECTED |= {3000 + i: (600, 0) for i in range(5)}


def report(trace, *options):
    return json.loads(subprocess.run([HEAPTRACK, "print", "--json", *options, trace], check=True, capture_output=True).stdout)


def sizes(trace):
    """By size: the allocations and the live blocks, and the same by the line of the program that allocates."""
    found, lines = {}, {}
    for size in EXPECTED:
        totals = report(trace, "--view", "summary", "--size", f"{size}..{size}")["totals"]
        found[size] = (totals["allocations"], totals["live_allocations"])
        lines[size] = {}
        for row in report(trace, "--size", f"{size}..{size}")["allocations"]:
            # The functions that rustc makes for a global allocator are at the line of its attribute.
            own = [frame["line"] for frame in row["frames"] if (frame["file"] or "").endswith("src/main.rs") and frame["class"] == "program"]
            allocations, leaked = lines[size].get(own[0], (0, 0))
            lines[size][own[0]] = (allocations + row["allocations"], leaked + row["leaked_allocations"])
    return found, lines


FIRST_LINES = {}


def check(what, trace):
    found, lines = sizes(trace)
    # With 64-byte words that grow, 512 bytes are also the last size of each vector of `grows`.
    found[512] = (found[512][0] - 1000, found[512][1])
    assert found == EXPECTED, f"{what}: {found}"
    expected = FIRST_LINES.setdefault("lines", lines)
    assert lines == expected, f"{what}: {lines} instead of {expected}"
    print(f"{what}: as expected, at lines {sorted({line for all in lines.values() for line in all})}", flush=True)


def build(allocator, is_static):
    folder = FOLDER / f"target-{'static-' if is_static else ''}{allocator}"
    features = [] if allocator == "system" else ["--features", allocator]
    target, environment, made = [], dict(os.environ), "release/matrix"
    if is_static:
        made = f"x86_64-unknown-linux-gnu/{made}"
        target, environment["RUSTFLAGS"] = ["--target", "x86_64-unknown-linux-gnu"], "-C target-feature=+crt-static"
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", folder, *target, *features], cwd=HERE, check=True, env=environment)
    program = FOLDER / (f"{allocator}-static" if is_static else allocator)
    shutil.copy(folder / made, program)
    return program


def split(program):
    """Moves the symbols of a copy into a folder. Returns the copy and the folder."""
    symbols = FOLDER / "symbols"
    symbols.mkdir(exist_ok=True)
    notes = subprocess.run(["readelf", "-n", program], check=True, capture_output=True, text=True).stdout
    build_id = re.search(r"Build ID: (\w+)", notes).group(1)
    subprocess.run(["objcopy", "--only-keep-debug", program, symbols / f"{build_id}.debug"], check=True)
    stripped = FOLDER / f"{program.name}-stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    return stripped, symbols


def attach(program, trace, *options):
    target = subprocess.Popen([program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert target.stdout.readline() == "ready\n"
    recorder = subprocess.Popen([HEAPTRACK, "-p", str(target.pid), "-o", trace, *options], stderr=subprocess.PIPE, text=True)
    assert "attached" in recorder.stderr.readline()
    for word in ("done\n", ""):
        target.stdin.write("\n")
        target.stdin.flush()
        assert target.stdout.readline() == word
        if word:
            recorder.send_signal(signal.SIGINT)
            recorder.stderr.read()
            assert recorder.wait() == 0
    assert target.wait() == 0


def rust():
    for allocator, is_static in [(one, False) for one in ALLOCATORS] + [(one, True) for one in STATIC]:
        program = build(allocator, is_static)
        stripped, symbols = split(program)
        for name, file, options in (("whole", program, []), ("split", stripped, ["--debug-path", symbols])):
            trace = FOLDER / f"{program.name}-{name}.htz"
            subprocess.run([HEAPTRACK, "-q", *options, "-o", trace, file], check=True)
            check(f"{program.name}, {name}, launched", trace)
            attach(file, trace, *options)
            check(f"{program.name}, {name}, attached", trace)


def record_python(python, name, code):
    """Returns what the code printed, and the bytes that were live at its end, by allocator."""
    script, trace = FOLDER / f"records_{name}.py", FOLDER / f"{name}.htz"
    script.write_text(code + "\nsys.stdout.flush(); os._exit(0)\n")
    printed = subprocess.run([HEAPTRACK, "-q", "-o", trace, python, script], check=True, capture_output=True, text=True).stdout
    live = lambda allocator: json.loads(subprocess.run([HEAPTRACK, "print", "--json", "--view", "summary", "--allocator", allocator, trace], check=True, capture_output=True).stdout)["totals"]
    return json.loads(printed), live


def python():
    subprocess.run([sys.executable, "-m", "venv", FOLDER / "venv"], check=True)
    interpreter = FOLDER / "venv/bin/python"
    subprocess.run([interpreter, "-m", "pip", "install", "-q", "polars==2.1.0", "pyarrow==26.0.1", "duckdb==2.0.0"], check=True)
    told, live = record_python(interpreter, "arrow", """import os, sys, pyarrow as pa
pool = pa.mimalloc_memory_pool(); pa.set_memory_pool(pool)
kept = [pa.allocate_buffer(32768 + 64 * i) for i in range(100)]
for i in range(5000): pa.allocate_buffer(100_000)
print('[%d, %d]' % (pool.bytes_allocated(), pool.num_allocations()))""")
    totals = live("mimalloc")
    # Arrow rounds sizes up to 64 bytes before it calls the allocator, so both count the same.
    assert told[0] <= totals["live_bytes"] <= told[0] + 100_000 and told[1] <= totals["allocations"] <= told[1] + 1000, (told, totals)
    told, live = record_python(interpreter, "duck", """import os, sys, duckdb
c = duckdb.connect(); c.execute("create table t as select range a, range * 2 b, 'x' || range s from range(2000000)")
print(c.execute("select sum(memory_usage_bytes)::bigint from duckdb_memory()").fetchone()[0])""")
    assert told * 0.98 <= live("jemalloc")["live_bytes"] <= told * 1.1, (told, live("jemalloc"))
    told, live = record_python(interpreter, "polars", """import os, sys, polars as pl
frame = pl.DataFrame({'a': list(range(1000000))}); kept = [frame.select(pl.col('a') + i) for i in range(20)]
print(sum(one.estimated_size() for one in kept + [frame]))""")
    assert told <= live("jemalloc")["live_bytes"] <= told * 1.2, (told, live("jemalloc"))
    print("pyarrow, duckdb, polars: as they count themselves")


FOLDER.mkdir(parents=True, exist_ok=True)
for part in sys.argv[3:] or ["rust", "python"]:
    {"rust": rust, "python": python}[part]()
