"""Waiting for processes and looking at their memory."""
import os
import signal
import threading

LOOK_S = 0.004


def wait(child, seconds):
    """Waits until a child that leads a session of its own has ended. Returns its exit code, or `None` if it had to be killed after this many seconds.
    (`Popen.wait` with a timeout looks again every 50 ms, which is too coarse for what is measured here.)"""
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
    """Waits for what is left below us, orphans included."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Watch:
    """While it is entered: the highest resident size of each process below us, by VmHWM. (`ru_maxrss` of a child is no less than that of
    the process that forked it.)"""

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
        """The highest of the processes that run this program, in kB."""
        program = os.path.realpath(program)
        return max((size for size, path in self.peaks.values() if path == program), default=0)

    def others(self, program):
        """All other processes together."""
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
