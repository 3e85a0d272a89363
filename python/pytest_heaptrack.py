"""Records tests with heaptrack, and fails those that do not keep their memory budgets.

`pytest --heaptrack` starts pytest a second time, under heaptrack. The second pytest makes a mark in the trace before and after each
test, and asks `heaptrack test-sections` for the numbers of the events between the two marks, on all threads.
"""

import ctypes
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

# Set for the second pytest: the path of the trace, and the path of heaptrack.
TRACE = "PYTEST_HEAPTRACK_TRACE"
BINARY = "PYTEST_HEAPTRACK_BINARY"

# The sizes of the blocks of a mark. `crates/cli/src/test_sections/marks.rs` has the same numbers.
SMALLEST = 40_009
DIGITS = 1024

METRICS = ("peak", "leaked", "allocations", "temporary")
SIZES = ("peak", "leaked")
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def pytest_addoption(parser):
    group = parser.getgroup("heaptrack", "heap budgets")
    group.addoption("--heaptrack", action="store_true", help="record the tests with heaptrack, and check their heap budgets")
    group.addoption("--heaptrack-binary", metavar="FILE", default="heaptrack", help="the heaptrack to use (default: from PATH)")
    group.addoption("--heaptrack-output", metavar="FILE", help="the trace (default: .pytest_heaptrack/pytest.htz)")
    group.addoption("--heaptrack-top", metavar="N", type=int, default=5, help="list the N tests with the highest peaks (default: 5)")


def pytest_configure(config):
    line = "heap_budget(peak, leaked, allocations, temporary): the most that the test may take from the heap; needs --heaptrack"
    config.addinivalue_line("markers", line)
    if config.getoption("heaptrack") and os.environ.get(TRACE):
        config.pluginmanager.register(Recorded(config), "heaptrack-recorded")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Starts pytest a second time, under heaptrack."""
    is_for_people = config.option.help or getattr(config.option, "version", 0)
    if not config.getoption("heaptrack") or os.environ.get(TRACE) or is_for_people:
        return None
    if getattr(config.option, "numprocesses", None) or getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError(
            "--heaptrack cannot be combined with -n: pytest-xdist runs tests at the same time in other processes; add -n 0"
        )
    binary = shutil.which(config.getoption("heaptrack_binary"))
    if binary is None:
        raise pytest.UsageError(f"--heaptrack-binary: cannot find {config.getoption('heaptrack_binary')}")
    trace = config.getoption("heaptrack_output") or str(config.rootpath / ".pytest_heaptrack" / "pytest.htz")
    trace = os.path.abspath(trace)
    if not trace.endswith(".htz"):
        trace += ".htz"
    os.makedirs(os.path.dirname(trace), exist_ok=True)
    # Small objects come from Python's own pools otherwise, of which heaptrack sees nothing.
    environment = {**os.environ, TRACE: trace, BINARY: binary, "PYTHONMALLOC": "malloc"}
    if sys.version_info >= (3, 12):
        # Stacks then have the names of Python's functions.
        environment.setdefault("PYTHONPERFSUPPORT", "1")
    record = [binary, "-q", "-o", trace.replace("%", "%%"), "--"]
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), *entry(), *config.invocation_params.args]
    # Ctrl-C is for the tests. A handler of ours is not inherited by them, as an ignored signal would be.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(record + command, env=environment, cwd=config.invocation_params.dir).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - code if code < 0 else code


def entry():
    """The words with which pytest was started: `python -m pytest` has the current folder in sys.path, `pytest` has not."""
    script = sys.argv[0]
    if os.path.basename(script) in ("pytest", "py.test") and os.path.isfile(script):
        return [script]
    return ["-m", "pytest"]


def pytest_collection_modifyitems(items):
    for item in items:
        Budget.of(item)


class Budget:
    """The limits of a test, by metric."""

    def __init__(self, limits):
        self.limits = limits

    @staticmethod
    def of(item):
        """Returns the budget of a test. The nearest marker counts: that of the function before that of its class or module."""
        marker = item.get_closest_marker("heap_budget")
        if marker is None:
            return Budget({})
        given = dict(marker.kwargs)
        if len(marker.args) > 1 or (marker.args and "peak" in given):
            raise pytest.UsageError(f"{item.nodeid}: heap_budget has one limit without a name, which is the peak")
        if marker.args:
            given["peak"] = marker.args[0]
        if not given:
            raise pytest.UsageError(f"{item.nodeid}: heap_budget needs a limit, as heap_budget('10MB')")
        unknown = [name for name in given if name not in METRICS]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid}: heap_budget has no {unknown[0]}; it has {', '.join(METRICS)}")
        try:
            return Budget({name: parse(given[name], name in SIZES) for name in METRICS if name in given})
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid}: heap_budget: {error}") from None

    def broken(self, numbers):
        """Returns the metrics that are above their limits."""
        return [metric for metric, limit in self.limits.items() if value(numbers, metric) > limit]


def value(numbers, metric):
    return numbers[f"{metric}_bytes" if metric in SIZES else metric]


def parse(limit, is_size):
    """Parses '10MB', '4 KiB' or a number."""
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return limit
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", limit) if isinstance(limit, str) else None
    unit = match.group(2).lower() if match else None
    if match and is_size and unit.endswith("b"):
        unit = unit[:-1]
    if match is None or unit not in UNITS or (not is_size and unit.endswith("i")):
        examples = "'10MB', '4KiB', 100000" if is_size else "100000, '100k'"
        raise ValueError(f"{limit!r} is not a valid {'size' if is_size else 'number'} (examples: {examples})")
    number = match.group(1)
    return int(number) * UNITS[unit] if number.isdigit() else int(float(number) * UNITS[unit])


def shown(number, is_size):
    if not is_size:
        return str(number)
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95 or unit == "GB":
            return f"{number} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000


class Recorded:
    """Marks the tests of the pytest that is recorded, and judges them."""

    def __init__(self, config):
        self.config = config
        self.trace = os.environ[TRACE]
        self.binary = os.environ[BINARY]
        self.helper = None
        self.marks = 0
        # The marks around each test.
        self.sections = {}
        self.blocks = (ctypes.c_void_p * 2)()
        libc = ctypes.CDLL(None)
        self.malloc, self.free = libc.malloc, libc.free
        self.malloc.restype, self.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self.free.restype, self.free.argtypes = None, [ctypes.c_void_p]

    def sizes(self):
        """Returns the number of the next mark, and the sizes of its blocks."""
        number = self.marks
        self.marks += 1
        size = ctypes.c_size_t
        return number, size(SMALLEST + number % DIGITS), size(SMALLEST + DIGITS + number // DIGITS % DIGITS)

    def mark(self, one, two):
        """Makes a mark in the trace. As few objects as possible are made here, because those after the first mark of a test and
        before its second one are counted."""
        self.blocks[0] = self.malloc(one)
        self.blocks[1] = self.malloc(two)
        self.free(self.blocks[0])
        self.free(self.blocks[1])

    def between_marks(self, name, call):
        first, one, two = self.sizes()
        last, three, four = self.sizes()
        self.sections[name] = (first, last)
        self.mark(one, two)
        try:
            return call()
        finally:
            self.mark(three, four)

    def ask(self, section, places=False):
        """Returns the numbers of a section. Raises RuntimeError if they cannot be known."""
        if self.helper is None:
            pipe = subprocess.PIPE
            # A test that replaces sys.stdin or the environment must not matter.
            self.helper = subprocess.Popen([self.binary, "test-sections", self.trace], stdin=pipe, stdout=pipe, text=True)
        request = {"from": section[0], "to": section[1], "places": places}
        try:
            self.helper.stdin.write(json.dumps(request) + "\n")
            self.helper.stdin.flush()
            line = self.helper.stdout.readline()
        except OSError as error:
            raise RuntimeError(f"heaptrack test-sections ended: {error}") from None
        if not line:
            raise RuntimeError("heaptrack test-sections ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        budget = Budget.of(item)
        run = item.runtest
        if "leaked" in budget.limits:
            def collected():
                try:
                    return run()
                finally:
                    gc.collect()

            gc.collect()
        else:
            collected = run
        # Pytest's own work around the call is left out: it sets a variable of the environment, and runs other plugins.
        item.runtest = lambda: self.between_marks(item.nodeid, collected)
        try:
            result = yield
        finally:
            del item.runtest
        if budget.limits:
            self.judge(budget, self.sections[item.nodeid])
        return result

    def judge(self, budget, section):
        try:
            numbers = self.ask(section)
            broken = budget.broken(numbers)
            if broken:
                numbers = self.ask(section, places=True)
        except RuntimeError as error:
            pytest.fail(f"the heap budget cannot be judged: {error}", pytrace=False)
        if broken:
            pytest.fail("\n".join(self.complaint(budget, numbers, metric) for metric in broken), pytrace=False)

    @staticmethod
    def complaint(budget, numbers, metric):
        is_size = metric in SIZES
        number, limit = value(numbers, metric), budget.limits[metric]
        short = shown(number, is_size), shown(limit, is_size)
        if short[0] == short[1]:
            short = f"{number} B", f"{limit} B"
        lines = [f"heap budget broken: {metric} is {short[0]}, above the limit of {short[1]}"]
        for place in numbers["places"][metric]:
            where = f"  {place['file']}:{place['line']}" if place["file"] else ""
            lines.append(f"  {shown(place['value'], is_size):>10}  {place['function']}{where}")
        return "\n".join(lines)

    def pytest_terminal_summary(self, terminalreporter):
        top = self.config.getoption("heaptrack_top")
        rows = []
        try:
            for name, section in self.sections.items() if top > 0 else ():
                rows.append((self.ask(section), name))
        except RuntimeError as error:
            terminalreporter.write_line(f"heaptrack: {error}")
        rows.sort(key=lambda row: (-row[0]["peak_bytes"], row[1]))
        if rows:
            terminalreporter.section("highest peaks of the heap")
        for numbers, name in rows[:top]:
            peak, leaked = shown(numbers["peak_bytes"], True), shown(numbers["leaked_bytes"], True)
            terminalreporter.write_line(f"{peak:>10}  {numbers['allocations']:>9} allocations  {leaked:>10} kept  {name}")
        path = os.path.relpath(self.trace, self.config.invocation_params.dir)
        terminalreporter.write_line(f"heaptrack: {path}  (Next: heaptrack analyze {path})")

    def pytest_unconfigure(self):
        if self.helper is not None:
            self.helper.stdin.close()
            self.helper.wait()
            self.helper = None
