#!/usr/bin/env python3
"""Records one Rust program with five allocators, with glibc and with musl, dynamic and static, launched and attached, unstripped and with a separate debug file: every size must
have the same number of allocations and leaks, at the same source lines. Then mimalloc 3 with its main heap. Then the programs of programs.py: busybox, a Go program, node with an addon, redis, polars, pyarrow
and duckdb in Python, Chromium, rustc and cargo, whose calls are counted independently. Needs cargo, cmake, pip, perf and a network.
Usage: run.py HEAPTRACK FOLDER [rust | heaps | busybox | go | node | redis | python | chromium | rustc | cargo]..."""
import functools, json, os, re, shutil, signal, subprocess, sys
from pathlib import Path

import programs
from programs import Tool

HEAPTRACK, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
HERE = Path(__file__).resolve().parent
ALLOCATORS = ["system", "jemalloc", "mimalloc", "snmalloc", "rpmalloc"]
# Linked statically, the program with rpmalloc crashes at the start of its second thread, also without heaptrack.
STATIC = ["system", "jemalloc", "mimalloc"]
# With musl, snmalloc would need a C++ compiler for musl, which Debian does not have.
MUSL = ["system", "jemalloc", "mimalloc"]
MUSL_TARGET = "x86_64-unknown-linux-musl"
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


def unwinder():
    """Returns a folder with the unwinder that Rust's standard library for musl asks for: GCC's, which only misses a function of glibc."""
    folder = FOLDER / "unwinder"
    folder.mkdir(exist_ok=True)
    source, made = folder / "missing.c", folder / "missing.o"
    source.write_text("int _dl_find_object(void *address, void *found) { (void)address, (void)found; return -1; }\n")
    subprocess.run(["musl-gcc", "-c", source, "-o", made], check=True)
    library = subprocess.run(["gcc", "-print-file-name=libgcc_eh.a"], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(library, folder / "libunwind.a")
    subprocess.run(["ar", "r", folder / "libunwind.a", made], check=True, capture_output=True)
    return folder


def build_for_musl(environment, kind):
    """Adds what builds the program for musl, static or dynamic. The standard library is built from Debian's sources (rustc-web, rust-web-src)."""
    flags = ["link-self-contained=no", "linker=musl-gcc", "link-arg=-lgcc"]
    flags += ["target-feature=+crt-static", "relocation-model=static"] if kind == "static" else ["target-feature=+crt-static", "relocation-model=pic"]
    environment["RUSTFLAGS"] = " ".join(f"-C {flag}" for flag in flags) + f" -L native={unwinder()}"
    environment |= {"RUSTC": "/usr/bin/rustc", "RUSTC_BOOTSTRAP": "1", f"CC_{MUSL_TARGET.replace('-', '_')}": "musl-gcc"}
    return ["--target", MUSL_TARGET, "-Zbuild-std=std,panic_unwind"]


def build(allocator, kind):
    """Kinds: dynamic, static (glibc), musl-static, musl-dynamic."""
    folder = FOLDER / f"target-{kind}-{'' if kind.startswith('musl') else allocator}"
    features = [] if allocator == "system" else ["--features", allocator]
    target, environment, made = [], dict(os.environ), "release/matrix"
    if kind == "static":
        made = f"x86_64-unknown-linux-gnu/{made}"
        target, environment["RUSTFLAGS"] = ["--target", "x86_64-unknown-linux-gnu"], "-C target-feature=+crt-static"
    if kind.startswith("musl-"):
        made = f"{MUSL_TARGET}/{made}"
        target = build_for_musl(environment, kind.removeprefix("musl-"))
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", folder, *target, *features], cwd=HERE, check=True, env=environment)
    program = FOLDER / (allocator if kind == "dynamic" else f"{allocator}-{kind}")
    shutil.copy(folder / made, program)
    is_linked = subprocess.run(["readelf", "-l", program], check=True, capture_output=True, text=True).stdout
    assert ("INTERP" in is_linked) == (kind in ("dynamic", "musl-dynamic")), f"{program} is not {kind}"
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
    kinds = [("dynamic", ALLOCATORS), ("static", STATIC), ("musl-static", MUSL), ("musl-dynamic", MUSL)]
    for allocator, kind in [(one, kind) for kind, allocators in kinds for one in allocators]:
        program = build(allocator, kind)
        stripped, symbols = split(program)
        for name, file, options in (("whole", program, []), ("split", stripped, ["--debug-path", symbols])):
            trace = FOLDER / f"{program.name}-{name}.htz"
            subprocess.run([HEAPTRACK, "-q", *options, "-o", trace, file], check=True)
            check(f"{program.name}, {name}, launched", trace)
            attach(file, trace, *options)
            check(f"{program.name}, {name}, attached", trace)


def main_heap():
    """mimalloc 3, built from the sources of the crate, refuses to destroy its main heap."""
    found = subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1", "--features", "mimalloc"], cwd=HERE, check=True, capture_output=True).stdout
    manifest = next(package["manifest_path"] for package in json.loads(found)["packages"] if package["name"] == "libmimalloc-sys")
    sources, library, program = Path(manifest).parent / "c_src/mimalloc/v3", FOLDER / "libmimalloc3.so", FOLDER / "main_heap"
    includes = f"-I{sources / 'include'}"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", includes, sources / "src/static.c", "-o", library], check=True)
    subprocess.run(["cc", "-g", "-O1", includes, HERE / "main_heap.c", library, f"-Wl,-rpath,{FOLDER}", "-o", program], check=True)
    trace = FOLDER / "main_heap.htz"
    subprocess.run([HEAPTRACK, "-q", "-o", trace, program], check=True, capture_output=True)
    for size, expected in {7101: (5, 3), 7102: (4, 0)}.items():
        totals = report(trace, "--view", "summary", "--size", f"{size}..{size}")["totals"]
        assert (totals["allocations"], totals["live_allocations"]) == expected, (size, totals)
    print("mimalloc 3: its main heap stays", flush=True)


# A job that a shell has started in the background ignores SIGINT, and so would the recorders.
signal.signal(signal.SIGINT, signal.default_int_handler)
FOLDER.mkdir(parents=True, exist_ok=True)
PARTS = {"rust": rust, "heaps": main_heap} | {name: functools.partial(part, Tool(HEAPTRACK, FOLDER)) for name, part in programs.ALL.items()}
for part in sys.argv[3:] or PARTS:
    PARTS[part]()
