"""The laboratory's clock, by which its limits of time are meant.

A guest on a busy host does little in a second. So the clock leaves out the time in which a thread
of an emulator was ready to run and got no processor (the kernel's schedstat): other load on the
host makes a test longer, but does not make it fail. A guest's own waits count in full.
"""

import collections
import contextlib
import pathlib
import time

LEAST = 0.02   # seconds of it per second at least: a limit is reached in the end
WINDOW_S = 10  # of real time, in which `slowness` is measured


class Clock:
    def __init__(self):
        self.seconds = 0.0
        self._processes = []
        self._waited = {}  # seconds, by thread
        self._samples = collections.deque([(time.monotonic(), 0.0)])

    def watch(self, process):
        self._processes.append(process)

    def advance(self):
        real = time.monotonic()
        passed = real - self._samples[-1][0]
        waited = waits(self._processes)
        most = max((now - self._waited.get(thread, 0.0) for thread, now in waited.items()),
                   default=0.0)
        self._waited = waited
        self.seconds += max(passed - most, LEAST * passed)
        self._samples.append((real, self.seconds))
        while self._samples[1][0] < real - WINDOW_S:
            self._samples.popleft()
        return self.seconds

    def slowness(self):
        """Real seconds in which it advances by one, lately: 1 where nobody else wants to run."""
        (real_then, then), (real_now, now) = self._samples[0], self._samples[-1]
        return max(1.0, (real_now - real_then) / (now - then)) if now > then else 1.0


def waits(processes):
    """Seconds for which each thread has waited for a processor; none where the kernel does not
    say."""
    found = {}
    for process in processes:
        for file in pathlib.Path(f"/proc/{process}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, IndexError, ValueError):  # it may have ended
                found[file] = int(file.read_text("ascii").split()[1]) / 1e9
    return found
