"""Waits for processes and measures their memory."""
import os
import signal
import threading

LOOK_S = 0.004


def wait(child, seconds):
    """Waits until a child that leads its own session has ended. Returns its exit code, or `None` if it had to be killed after this many
    seconds. (`Popen.wait` with a timeout polls every 50 ms, which is too coarse for these measurements.)"""
    late = threading.Event()

    def kill():
        late.set()
        os.killpg(child.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    _, status = os.waitpid(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return None if late.is_set() else child.returncode


def reap():
    """Waits for all remaining descendants, including orphans if this process is their reaper."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Watch:
    """A context manager that records the highest resident size (VmHWM) of each descendant. (`ru_maxrss` of a child is never less than
    that of the process that forked it.)"""

    def __enter__(self):
        self.peaks, self.done = {}, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def look(self):
        while not self.done.wait(LOOK_S):
            for pid in descendants(os.getpid()):
                size, path = resident(pid)
                if size:
                    self.peaks[pid] = (max(size, self.peaks.get(pid, (0,))[0]), path)

    def of(self, program):
        """The highest size of any process that runs this program, in kB."""
        program = os.path.realpath(program)
        return max((size for size, path in self.peaks.values() if path == program), default=0)

    def others(self, program):
        """The sum of the highest sizes of all other processes, in kB."""
        program = os.path.realpath(program)
        return sum(size for size, path in self.peaks.values() if path != program)


def descendants(root):
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    below = [int(word) for word in file.read().split()]
                found += below
                queue += below
        except OSError:
            continue
    return found


def resident(pid):
    try:
        path = os.readlink(f"/proc/{pid}/exe")
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]), path
    except OSError:
        pass
    return 0, ""
