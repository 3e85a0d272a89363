"""Records real programs that bring an allocator of their own, launched and attached, and compares with counts that do not come from heaptrack: hardware breakpoints
(breakpoints.py), what the allocator itself counts, and a preloaded library that counts (count.c). Unless a comparison says how the two differ, they must be equal."""
import atexit, csv, http.server, json, os, re, shutil, signal, subprocess, sys, threading, time
from pathlib import Path

from breakpoints import Counter, count_run

HERE = Path(__file__).resolve().parent
ZOO = HERE.parent / "zoo"
LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6").resolve()


class Tool:
    """The heaptrack that is tested, and the folder for what it writes."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def summary(self, trace, allocator=None):
        words = ["--allocator", allocator] if allocator else []
        done = subprocess.run([self.program, "print", "--json", "--view", "summary", *words, trace], capture_output=True, text=True)
        # A trace in which this allocator has no block yet does not know its name.
        if allocator and done.returncode:
            assert "allocator" in done.stderr, done.stderr
            return None
        return json.loads(done.stdout)

    def calls(self, trace, allocator=None):
        """Returns the allocations and the frees."""
        found = self.summary(trace, allocator)
        assert not found or found["lost_events"] == 0, found["losses"]
        return (found["totals"]["allocations"], found["totals"]["deallocations"]) if found else (0, 0)


class Recording:
    """A recorded program that waits: it was launched by heaptrack, or heaptrack has attached to it."""

    def __init__(self, tool, way, name, command, until, options=(), **how):
        self.tool, self.trace = tool, tool.folder / f"{name}-{way}.htz"
        record = [tool.program, "-o", self.trace, "--no-symbols", *options]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        if way == "launched":
            self.program = self.recorder = subprocess.Popen([*record, "-q", *command], **pipes, **how)
            until(self.program)
            children = Path(f"/proc/{self.recorder.pid}/task").glob("*/children")
            [self.pid] = [int(word) for file in children for word in file.read_text().split()]
        else:
            self.program = subprocess.Popen([str(word) for word in command], **pipes, **how)
            until(self.program)
            self.pid = self.program.pid
            self.recorder = subprocess.Popen([*record, "-p", str(self.pid)], stderr=subprocess.PIPE, text=True)
            line = self.recorder.stderr.readline()
            assert "attached" in line, line
        # A comparison that fails leaves nothing behind.
        atexit.register(lambda: self.program.poll() is None and os.kill(self.pid, signal.SIGKILL))

    def calls(self, allocator):
        """Returns what was counted until now. The recorder writes a block of events when it is 0.1 s old."""
        time.sleep(0.5)
        snapshot = self.tool.folder / "until_now.htz"
        snapshot.unlink(missing_ok=True)
        subprocess.run([self.tool.program, "snapshot", str(self.pid), "-o", snapshot], check=True, capture_output=True)
        return self.tool.calls(snapshot, allocator)

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        while any(") T " not in file.read_text() for file in Path(f"/proc/{self.pid}/task").glob("*/stat")):
            time.sleep(0.001)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.program.wait()
        self.recorder.wait()


def reads_input(pid):
    """Returns true if a thread of the process waits for its standard input. It may have opened /dev/stdin."""
    folder = Path(f"/proc/{pid}")
    calls = [file.read_text().split()[:2] for file in folder.glob("task/*/syscall")]
    return any(call[0] == "0" and (folder / f"fd/{int(call[1], 16)}").readlink() == (folder / "fd/0").readlink() for call in calls)


def wait_for_input(pid):
    while not reads_input(pid):
        time.sleep(0.002)


def reads_line(word):
    def until(program):
        line = program.stdout.readline()
        assert line == f"{word}\n", line
    return until


def counted_work(tool, way, name, command, file, functions, allocator=None, **how):
    """Returns how often the functions of `file` were entered while the program worked, and the allocations and frees that heaptrack recorded meanwhile. The program prints "ready" before
    and "done" after its work, and waits for a line each time."""
    recording = Recording(tool, way, name, command, reads_line("ready"), **how)
    wait_for_input(recording.pid)
    before, counter = recording.calls(allocator), Counter(recording.pid, file, functions)
    recording.program.stdin.write("go\n")
    recording.program.stdin.flush()
    reads_line("done")(recording.program)
    wait_for_input(recording.pid)
    counted = counter.finish()
    recording.kill()
    after = tool.calls(recording.trace, allocator)
    return counted, tuple(late - early for late, early in zip(after, before))


def compare(tool, name, command, file, often, rare, frees=None, allocator=None, **how):
    """The functions `often` allocate. Those in `rare` do, too, but are not called: a run of its own shows that, because there are only four breakpoints. If all frees of
    the program are calls of `frees`, with a block, these are compared as well."""
    for way in ("launched", "attached"):
        counted, recorded = counted_work(tool, way, name, command, file, often, allocator, **how)
        assert sum(counted) == recorded[0] > 0, (name, way, dict(zip(often, counted)), recorded)
        told = f"{name}, {way}: {recorded[0]} allocations by breakpoints, the same in the trace"
        others = [*rare, *([frees] if frees else [])]
        for start in range(0, len(others), 4):
            part = others[start : start + 4]
            counted, recorded = counted_work(tool, way, name, command, file, part, allocator, **how)
            if frees in part:
                freed = counted.pop()
                assert freed == recorded[1] > 0, (name, way, freed, recorded)
                told += f"; {freed} frees"
            assert sum(counted) == 0, (name, way, dict(zip(part, counted)))
        print(told, flush=True)


def busybox(tool):
    """A static program with glibc's malloc in it."""
    folder = tool.folder / "busybox"
    folder.mkdir(exist_ok=True)
    subprocess.run(["sh", ZOO / "busybox/build.sh"], check=True, cwd=folder)
    script = 'BEGIN { print "ready"; fflush() } { for (i = 0; i < 5000; i++) a[i] = i "x"; for (k in a) n += length(a[k]); delete a; print "done"; fflush() }'
    often, rare = ["malloc", "calloc", "realloc"], ["memalign", "valloc"]
    compare(tool, "busybox", [folder / "busybox", "awk", script], folder / "busybox", often, rare)


def go(tool):
    """C code in a Go program."""
    program = tool.folder / "cgo"
    subprocess.run(["go", "build", "-o", program, HERE / "cgo/main.go"], check=True)
    compare(tool, "go", [program], LIBC, ["malloc", "calloc", "realloc"], ["memalign", "aligned_alloc", "posix_memalign"])


def node(tool):
    """An addon of node whose blocks come from mimalloc's library."""
    addon, script = tool.folder / "addon.node", tool.folder / "addon.js"
    words = ["-g", "-O1", "-shared", "-fPIC", "-I/usr/include/node", ZOO / "node_mimalloc/addon.c", "-o", addon, "-lmimalloc"]
    subprocess.run(["cc", *words], check=True)
    script.write_text(f"""const {{ readSync, writeSync }} = require('fs'), line = Buffer.alloc(9), {{ blocks }} = require('{addon}');
writeSync(1, 'ready\\n'); readSync(0, line); blocks(20000); writeSync(1, 'done\\n'); readSync(0, line);""")
    library = Path("/usr/lib/x86_64-linux-gnu/libmimalloc.so").resolve()
    rare = ["mi_zalloc", "mi_malloc_aligned", "mi_realloc_aligned"]
    compare(tool, "node", [shutil.which("node"), script], library, ["mi_malloc", "mi_calloc", "mi_realloc"], rare, frees="mi_free", allocator="mimalloc")


def usable_size(size, largest_class=1 << 40, quantum=16):
    """The size of jemalloc's block for so many bytes: multiples of the quantum, from eight of them on four classes for each doubling. Newer versions round sizes above `largest_class` up to
    a page only."""
    if size <= 8:
        return 8
    if size <= 8 * quantum or size <= 64:
        return -(-size // quantum) * quantum
    step = 4096 if size > largest_class else 1 << (size - 1).bit_length() - 3
    return -(-size // step) * step


def events(tool, trace, allocator):
    """Returns the rows of all events of one allocator, in the order of time."""
    words = ["--to", "csv", "--rows", "events", "--allocator", allocator, trace, "-o", "-"]
    done = subprocess.run([tool.program, "export", *words], check=True, capture_output=True, text=True)
    return list(csv.DictReader(done.stdout.split("\n")))


def live_sizes(rows):
    live = {}
    for row in rows:
        if row["event"] == "alloc":
            live[row["block"]] = int(row["size"])
        else:
            # A free of a block from before the attach has none.
            live.pop(row["block"], None)
    return list(live.values())


def redis(tool):
    """redis-server with the jemalloc of its own sources, which calls it by four functions."""
    folder = tool.folder / "redis"
    folder.mkdir(exist_ok=True)
    subprocess.run(["sh", ZOO / "redis_jemalloc/build.sh"], check=True, cwd=folder)
    server, socket = folder / "redis-server", folder / "socket"

    def client(*words, **how):
        return subprocess.run(["redis-cli", "-s", socket, *words], check=True, capture_output=True, text=True, **how).stdout

    def until_ready(_):
        while subprocess.run(["redis-cli", "-s", socket, "ping"], capture_output=True, text=True).stdout != "PONG\n":
            time.sleep(0.02)

    words = []
    for i in range(20000):
        words += [f"SET key{i % 5000} {'v' * (i % 700 + 1)}", f"LPUSH list{i % 50} {i:x}", f"APPEND key{i % 777} more", f"DEL key{i % 1111} key{i % 13}"]
    joined = "local t = {} for i = 1, 5000 do t[i] = redis.call('GET', 'key' .. i) or 'none' end return #table.concat(t)"
    command = [server, "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "no"]
    # Without caches of threads, jemalloc's statistics count what the program has.
    environment = os.environ | {"JE_MALLOC_CONF": "tcache:false"}
    for way in ("launched", "attached"):
        recording = Recording(tool, way, "redis", command, until_ready, env=environment)
        # Ten times a second, the server allocates without being asked.
        recording.stop()
        before, counter = recording.calls("jemalloc"), Counter(recording.pid, server, ["je_malloc", "je_calloc", "je_realloc", "je_free"])
        os.kill(recording.pid, signal.SIGCONT)
        client(input="\n".join(words) + "\n")
        client("eval", joined, "0")
        # Until then the server has moved its tables, and freed what it had for these clients.
        time.sleep(2)
        by_redis = int(re.search(r"used_memory:(\d+)", client("info", "memory")).group(1))
        by_jemalloc = int(re.search(r"Allocated: (\d+)", client("memory", "malloc-stats")).group(1))
        time.sleep(0.5)
        recording.stop()
        counted = counter.finish()
        recording.kill()
        made, freed = (late - early for late, early in zip(tool.calls(recording.trace, "jemalloc"), before))
        allocated = sum(counted[:3])
        assert allocated == made > 100_000, (way, counted, made)
        # Some blocks from before an attach are freed, too.
        assert freed == counted[3] + counted[2] or way == "attached" and freed <= counted[3] + counted[2], (way, counted, freed)
        print(f"redis, {way}: {made} allocations by breakpoints, the same in the trace; {counted[3]} calls of free, {counted[2]} of realloc, {freed} frees in the trace", flush=True)
        if way == "launched":
            # Redis configures its jemalloc with a quantum of 8 bytes.
            live = sum(usable_size(size, quantum=8) for size in live_sizes(events(tool, recording.trace, "jemalloc")))
            # Both numbers are of a moment at which the server had a client that asked, and jemalloc has blocks of its own. Redis counts what its own wrapper allocates.
            assert live <= by_jemalloc <= live + 50_000 and abs(by_redis - live) <= 50_000, (live, by_redis, by_jemalloc)
            print(f"redis: {live} bytes live by usable size; with the client that asks, redis says {by_redis}, jemalloc's statistics {by_jemalloc}", flush=True)


# A function of a library is found by its name, also if it is local. Then the allocator is asked for its own counts before and after the work.
ASKS = """
import ctypes, json, os, sys
sys.path.insert(0, sys.argv[1])
from breakpoints import base, symbols
def jemalloc(file, name):
    control = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, *[ctypes.c_void_p] * 3, ctypes.c_size_t)(base(os.getpid(), file) + symbols(file)[name])
    def ask(what):
        number, size, epoch = ctypes.c_uint64(), ctypes.c_size_t(8), ctypes.c_uint64(1)
        assert control(b'epoch', None, None, ctypes.byref(epoch), 8) == 0
        assert control(what.encode(), ctypes.byref(number), ctypes.byref(size), None, 0) == 0, what
        return number.value
    return ask
def steps(work, counts):
    early = counts()
    print('ready', flush=True)
    sys.stdin.readline()
    work()
    late = counts()
    print(json.dumps([early, late]), flush=True)
    sys.stdin.readline()
"""
ARROW = """
import pyarrow as pa
pool = pa.mimalloc_memory_pool(); pa.set_memory_pool(pool)
kept = [pa.allocate_buffer(640 * i) for i in range(1, 10)]
def work():
    kept.extend(pa.allocate_buffer(32768 + 64 * i) for i in range(100))
    for i in range(5000): pa.allocate_buffer(100_000)
    stream = pa.BufferOutputStream()
    for i in range(3000): stream.write(b'x' * 777)
    kept.append(pa.table({'a': list(range(100000)), 's': [str(i) for i in range(100000)]}).sort_by([('a', 'descending')]))
steps(work, lambda: [pool.num_allocations(), pool.bytes_allocated(), pool.max_memory()])
"""
DUCK = """
import duckdb, _duckdb
ask = jemalloc(_duckdb.__file__, 'duckdb_je_mallctl')
c = duckdb.connect(config={'threads': '1'})
def work():
    c.execute("create table t as select range a, range * 2 b, 'x' || range s from range(500000)")
    c.execute("select s, sum(a) from t group by s order by 2 desc limit 10").fetchall()
arena = 'stats.arenas.4096.'
steps(work, lambda: [ask(arena + 'small.nmalloc') + ask(arena + 'large.nmalloc'), ask('stats.allocated'), ask('thread.allocated')])
"""
POLARS = """
import polars as pl, _polars_runtime_32._polars_runtime as library
ask = jemalloc(library.__file__, '_rjem_mallctl')
kept = [pl.Series('a', list(range(100000)))]
def work():
    kept.extend(kept[0] + i for i in range(20))
    kept.append(pl.Series('t', [f'row {i} of many things' for i in range(20000)]).str.to_uppercase().sort())
    kept.append(pl.DataFrame({'a': kept[0], 'b': kept[1] % 1000}).group_by('b').agg(pl.col('a').sum()))
steps(work, lambda: [ask('thread.allocated')])
"""


def ask_python(tool, python, way, name, code, **environment):
    """Runs the code, and returns the trace and the allocator's own counts: of the whole run if it was launched, else since the attach."""
    script, told = tool.folder / f"asks_{name}.py", []
    script.write_text(ASKS + code)
    recording = Recording(tool, way, name, [python, script, HERE], reads_line("ready"), env=os.environ | environment)
    wait_for_input(recording.pid)
    recording.program.stdin.write("go\n")
    recording.program.stdin.flush()
    early, late = json.loads(recording.program.stdout.readline())
    wait_for_input(recording.pid)
    recording.kill()
    return recording.trace, late if way == "launched" else [after - before for after, before in zip(late, early)]


def python(tool):
    """Libraries of Python that bring an allocator, by what this allocator counts."""
    subprocess.run([sys.executable, "-m", "venv", tool.folder / "venv"], check=True)
    interpreter = tool.folder / "venv/bin/python"
    subprocess.run([interpreter, "-m", "pip", "install", "-q", "polars==2.1.0", "pyarrow==26.0.1", "duckdb==2.0.0"], check=True)
    for way in ("launched", "attached"):
        trace, [made, live, peak] = ask_python(tool, interpreter, way, "arrow", ARROW)
        totals = tool.summary(trace, "mimalloc")["totals"]
        found = [totals[name] for name in ("allocations", "live_bytes", "peak_bytes")]
        # The pool's highest size since the attach is not known.
        assert found[:2] == [made, live] and (found[2] == peak or way == "attached"), (way, found, made, live, peak)
        print(f"pyarrow, {way}: {made} allocations and {live} live bytes in Arrow's pool, the same in the trace", flush=True)

        # Without caches of threads, jemalloc counts each block when the program asks for it.
        trace, [made, live, total] = ask_python(tool, interpreter, way, "duckdb", DUCK, DUCKDB_JE_MALLOC_CONF="tcache:false")
        rows = events(tool, trace, "jemalloc")
        sizes = [int(row["size"]) for row in rows if row["event"] == "alloc"]
        found = [len(sizes), sum(usable_size(size) for size in live_sizes(rows)), sum(usable_size(size) for size in sizes)]
        assert found == [made, live, total], (way, found, made, live, total)
        print(f"duckdb, {way}: {made} allocations of {total} bytes by jemalloc's statistics, {live} of them live, the same in the trace", flush=True)

        # This jemalloc is built without statistics. It still counts what each thread allocates, but only the thread itself can ask.
        trace, [total] = ask_python(tool, interpreter, way, "polars", POLARS)
        sizes = [int(row["size"]) for row in events(tool, trace, "jemalloc") if row["event"] == "alloc" and row["thread"] == "0"]
        found = sum(usable_size(size, 14336) for size in sizes)
        assert found == total, (way, found, total)
        print(f"polars, {way}: {len(sizes)} allocations of the main thread, {total} bytes of usable size by jemalloc's own count, the same in the trace", flush=True)


# Most allocations of Chromium are calls of these. The other names of each are at the same address.
CHROMIUM = ["malloc", "calloc", "realloc", "_Znwm"]
CHROMIUM_RARE = ["_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t", "posix_memalign", "aligned_alloc"]


def chromium(tool):
    """Chromium defines malloc and the operators itself. In one process, so that all calls are the recorded program's."""
    program = Path("/usr/lib/chromium/chromium")
    (tool.folder / "page.html").write_text("<p id=p></p><script>p.textContent = [...Array(3000).keys()].map(n => n.toString(36)).join(' ')</script>")
    asked, answer = threading.Event(), threading.Event()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.set()
            answer.wait()
            self.send_response(200)
            self.end_headers()
            self.wfile.write((tool.folder / "page.html").read_bytes() if self.path == "/" else b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    # The browser may end before it has read an answer.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    profile = tool.folder / "profile"
    options = ["--headless", "--no-sandbox", "--single-process", "--no-zygote", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom", f"http://127.0.0.1:{server.server_address[1]}/"]
    command, trace = [program, *options], tool.folder / "chromium.htz"
    record = [tool.program, "-q", "--no-symbols", "-o", trace]

    def check(way, often, rare, made):
        # The rare functions are called about as often in each run.
        assert abs(sum(often) + sum(rare) - made) < made / 200, (way, often, rare, made)
        print(f"chromium, {way}: {sum(often)} calls by breakpoints, {sum(rare)} of rare functions in another run, {made} allocations in the trace", flush=True)

    answer.set()
    rare = count_run(program, CHROMIUM_RARE, *record, *command)
    often = count_run(program, CHROMIUM, *record, *command)
    check("launched", often, rare, tool.calls(trace)[0])

    def attached(functions):
        asked.clear(), answer.clear()
        recording = Recording(tool, "attached", "chromium", command, lambda _: asked.wait(), stderr=subprocess.DEVNULL)
        # Some of its threads are at work while it waits.
        recording.stop()
        before, counter = recording.calls(None), Counter(recording.pid, program, functions)
        os.kill(recording.pid, signal.SIGCONT)
        answer.set()
        recording.program.communicate()
        recording.recorder.wait()
        return counter.finish(is_running=False), tool.calls(recording.trace)[0] - before[0]

    rare, _ = attached(CHROMIUM_RARE)
    often, made = attached(CHROMIUM)
    check("attached", often, rare, made)


SOURCE = """use std::collections::{BTreeMap, HashMap};
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)] pub struct A { a: u32, b: String, c: Vec<u8> }
#[derive(Debug, Clone, PartialEq)] pub enum E { X(A), Y { m: HashMap<A, BTreeMap<String, Vec<A>>> }, Z(Box<E>) }
pub fn f(n: usize) -> Vec<String> { (0..n).map(|i| format!("{i:?}")).filter(|s| s.len() > 2).collect() }
fn main() { let e = E::Z(Box::new(E::X(A::default()))); println!("{:?} {:?}", e, f(100)); }
"""


def rust_tool(name):
    return Path(subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()) / "bin" / name


def rustc(tool):
    """rustc has jemalloc under the names of libc. The breakpoints count in the process that is recorded, because rustc itself makes some calls more or less in each run."""
    program, often, rare = rust_tool("rustc"), ["malloc", "calloc", "realloc", "aligned_alloc"], ["posix_memalign", "memalign", "valloc"]
    (tool.folder / "big.rs").write_text(SOURCE)
    trace = tool.folder / "rustc.htz"
    record = [tool.program, "-q", "--no-symbols", "-o", trace, program, "-O", "--emit=obj", "big.rs"]
    # There are only four breakpoints. These functions are called a few times in every run.
    rarely = count_run(program, rare, *record, cwd=tool.folder)
    counted = count_run(program, often, *record, cwd=tool.folder)
    made = tool.calls(trace)[0]
    assert made == sum(counted) + sum(rarely), (counted, rarely, made)
    print(f"rustc, launched: {made} calls by breakpoints, the same in the trace", flush=True)

    def attached(functions):
        recording = Recording(tool, "attached", "rustc", [program, "-O", "--emit=obj", "-o", "out.o", "-"], lambda program: wait_for_input(program.pid), cwd=tool.folder)
        counter = Counter(recording.pid, program, functions)
        recording.program.communicate(SOURCE)
        recording.recorder.wait()
        return counter.finish(is_running=False), tool.calls(recording.trace)[0]

    rarely, _ = attached(rare)
    counted, made = attached(often)
    assert made == sum(counted) + sum(rarely), (counted, rarely, made)
    print(f"rustc, attached: {made} calls by breakpoints, the same in the trace", flush=True)


def cargo(tool):
    """cargo calls libc's functions, which count.c counts in a run of its own. The process has two more variables in that run, and cargo
    keeps its environment in a tree, so the recorded one gets two with names that are at the same places in the alphabet."""
    program, library, project = rust_tool("cargo"), tool.folder / "count.so", tool.folder / "project"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", HERE / "count.c", "-o", library], check=True)
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src/main.rs").write_text("fn main() {}\n")
    head = "[package]\nname = '{}'\nversion = '0.1.0'\nedition = '2024'\n"
    parts = [f"part{number}" for number in range(60)]
    (project / "Cargo.toml").write_text(head.format("project") + "[workspace]\n[dependencies]\n" + "".join(f"{part} = {{ path = '{part}' }}\n" for part in parts))
    for part in parts:
        (project / part / "src").mkdir(parents=True, exist_ok=True)
        (project / part / "src/lib.rs").write_text("")
        (project / part / "Cargo.toml").write_text(head.format(part))
    command = [program, "metadata", "--offline", "--format-version", "1"]
    run = lambda words, **more: subprocess.run(words, check=True, capture_output=True, cwd=project, env=os.environ | more)
    run(command)
    for old in tool.folder.glob("count.[0-9]*"):
        old.unlink()
    run(command, LD_PRELOAD=str(library), COUNT_FILE=str(tool.folder / "count"))
    # cargo asks rustc for its version. Of the two files, cargo's has the higher counts.
    counted = max(tuple(int(word) for word in file.read_text().split()) for file in tool.folder.glob("count.[0-9]*"))
    trace = tool.folder / "cargo.htz"
    run([tool.program, "-q", "--no-symbols", "-o", trace, *command], LD_PRELOAE="1", COUNT_FILF="2")
    assert tool.calls(trace) == counted, (counted, tool.calls(trace))
    print(f"cargo, launched: {counted[0]} allocations and {counted[1]} frees by the counting library, the same in the trace", flush=True)

    # It reads this manifest from its standard input.
    piped = tool.folder / "piped"
    (piped / "src").mkdir(parents=True, exist_ok=True)
    (piped / "src/main.rs").write_text("fn main() {}\n")
    (piped / "Cargo.toml").unlink(missing_ok=True)
    (piped / "Cargo.toml").symlink_to("/dev/stdin")
    manifest = head.format("piped") + "[dependencies]\n" + "".join(f"{part} = {{ path = '{project}/{part}' }}\n" for part in parts)
    for functions in (["memalign", "aligned_alloc"], ["malloc", "calloc", "realloc", "posix_memalign"]):
        command = [program, "verify-project", "--offline", "--manifest-path", piped / "Cargo.toml"]
        recording = Recording(tool, "attached", "cargo", command, lambda program: wait_for_input(program.pid), cwd=piped)
        counter = Counter(recording.pid, LIBC, functions)
        recording.program.communicate(manifest)
        recording.recorder.wait()
        counted, made = counter.finish(is_running=False), tool.calls(recording.trace)[0]
        expected = 0 if "memalign" in functions else made
        assert sum(counted) == expected, (functions, counted, made)
    print(f"cargo, attached: {made} allocations by breakpoints, the same in the trace", flush=True)


ALL = {"busybox": busybox, "go": go, "node": node, "redis": redis, "python": python, "chromium": chromium, "rustc": rustc, "cargo": cargo}
