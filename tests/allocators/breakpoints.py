"""Counts how often functions are entered, by hardware breakpoints: an oracle that shares no code with heaptrack and changes no byte of the program.

The processor has four breakpoints for each thread, so at most four functions can be counted at a time."""
import os, signal, subprocess

# Where the kernel loads a position independent program without address randomisation.
PIE_BASE = 0x555555554000


def symbols(file):
    """Returns the addresses of the functions in a file, by name: its symbol table's, and else those that it exports."""
    found = {}
    for options in ([], ["-D"]):
        for line in subprocess.run(["nm", "--defined-only", *options, file], check=True, capture_output=True, text=True).stdout.split("\n"):
            words = line.split()
            if len(words) == 3 and words[1] in "tTwWiV":
                found.setdefault(words[2].split("@")[0], int(words[0], 16))
    return found


def is_pie(file):
    return "DYN" in subprocess.run(["readelf", "-h", file], check=True, capture_output=True, text=True).stdout


def base(pid, file):
    """Returns where a file's first page is mapped in a process, or 0 if its addresses are absolute."""
    if not is_pie(file):
        return 0
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[2] == "00000000" and words[5].strip() == os.path.realpath(file):
                return int(words[0].split("-")[0], 16)
    raise AssertionError(f"{file} is not mapped in {pid}")


def counts(text):
    """Returns the counts of the breakpoints in what `perf stat -x,` prints."""
    return [int(line.split(",")[0]) for line in text.split("\n") if ",mem:" in line]


def count_run(program, functions, *command, **how):
    """Runs a command, and returns how often each of these functions of `program` was entered in it or in its children."""
    places, start = symbols(program), PIE_BASE if is_pie(program) else 0
    events = [word for name in functions for word in ("-e", f"mem:{start + places[name]:#x}:x")]
    done = subprocess.run(["setarch", "-R", "perf", "stat", "-x,", *events, *command], check=True, capture_output=True, text=True, **how)
    return counts(done.stderr)


class Counter:
    """Counts in all threads of a running process, from the moment it is made until `finish`, which returns the counts."""

    def __init__(self, pid, file, functions):
        places, start = symbols(file), base(pid, file)
        events = [word for name in functions for word in ("-e", f"mem:{start + places[name]:#x}:x")]
        theirs, self.tell = os.pipe()
        self.told, answer = os.pipe()
        command = ["perf", "stat", "-x,", "-D", "-1", f"--control=fd:{theirs},{answer}", *events, "-p", str(pid)]
        self.perf = subprocess.Popen(command, pass_fds=[theirs, answer], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        os.close(theirs), os.close(answer)
        self.ask("enable")

    def ask(self, what):
        os.write(self.tell, f"{what}\n".encode())
        answer = os.read(self.told, 16)
        assert answer.startswith(b"ack"), answer

    def finish(self, is_running=True):
        if is_running:
            self.ask("disable")
            self.perf.send_signal(signal.SIGINT)
        text = self.perf.stderr.read()
        self.perf.wait()
        os.close(self.tell), os.close(self.told)
        assert "<not" not in text, text
        return counts(text)
