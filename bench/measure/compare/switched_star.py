"""The star of star.py with `pacecar switch` in its middle instead of a bridge and HTB.

Every host has a link of the same rate to the switch. A host that sends alone has a faster one, so
that the queue is in the switch. The measured queue is that of the receiver's port, from the
switch's log.
"""

import contextlib
import csv
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import namespaces
import star
from exchange import ends_within
from namespaces import Unavailable

START_LIMIT_S = 10
SAMPLE = "1ms"
ALONE_FACTOR = 4


@contextlib.contextmanager
def switched_star(shape, program, ecn):
    made = star.Star(shape, f"pacecar-{os.getpid()}")
    # In memory where possible: a busy disk would delay the switch.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (tempfile.TemporaryDirectory(dir=memory) as folder,
          namespaces.made(made.namespaces, ("ip", "tc")), contextlib.ExitStack() as stack):
        build(made)
        switch = Switch(made, program, ecn, pathlib.Path(folder))
        stack.callback(switch.end)
        switch.wait_until_up()
        yield SwitchedStar(shape, made.mark, switch)


class SwitchedStar(star.Star):
    """A star whose queue is read from the switch's log."""

    knows_queue = True

    def __init__(self, shape, mark, switch):
        super().__init__(shape, mark)
        object.__setattr__(self, "switch", switch)  # the base class is frozen

    def queue_sampler(self):
        return QueueSampler(self.switch)


def build(made):
    for namespace, address, port in made.hosts:
        star.join(made, namespace, address, port)
    star.join_plain(made)


def fast_cable(made, port):
    alone = made.shape.senders == 1 and port == "to-sender1"
    return f",{ALONE_FACTOR * made.shape.rate_bps}" if alone else ""


class Switch:
    """The switch's process, for all rounds; each round reads its part of the log."""

    def __init__(self, made, program, ecn, folder):
        self.log = folder / "queue.csv"
        self._errors = (folder / "errors").open("w+", encoding="utf-8")
        flags = [word for _, _, port in made.hosts
                 for word in ("--port", port + fast_cable(made, port))]
        flags += ["--rate", str(made.shape.rate_bps), "--buffer", str(made.shape.queue_bytes),
                  "--sample", SAMPLE, "--queue-log", str(self.log), "--quiet"]
        if ecn:
            flags += ["--ecn", ecn]
        # Above the hosts' priority: a late switch delays all of them.
        command = ["nice", "-n", "-10", *namespaces.prefix(made.hub), str(program), "switch",
                   *flags]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=self._errors,
                                         start_new_session=True)

    def wait_until_up(self):
        deadline = time.monotonic() + START_LIMIT_S
        while not self.log.exists():
            if ends_within(self._process, 0) or time.monotonic() > deadline:
                self._errors.seek(0)
                raise Unavailable(f"'pacecar switch' does not run: {self._errors.read().strip()}")
            time.sleep(0.01)

    @namespaces.interrupts_ignored()
    def end(self):
        if not ends_within(self._process, 0):
            self._process.send_signal(signal.SIGINT)
            if not ends_within(self._process, START_LIMIT_S):
                self._process.kill()
                self._process.wait()
        self._errors.close()


class QueueSampler:
    """The part of the log that is written while something runs."""

    def __init__(self, switch):
        self._log = switch.log
        self._begin = 0
        self.samples = []  # (CLOCK_MONOTONIC seconds, bytes)
        self.drops = None  # unknown; "retransmitted" shows them

    def __enter__(self):
        self._begin = self._log.stat().st_size
        return self

    def __exit__(self, *unused):
        end_s = time.monotonic()
        deadline = end_s + START_LIMIT_S
        while not self.samples or self.samples[-1][0] < end_s:  # the switch writes in blocks
            self._read()
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)

    def _read(self):
        with self._log.open(encoding="ascii") as file:
            file.seek(self._begin)
            lines = file.read().split("\n")[1:-1]  # the first and last may be incomplete
        self.samples = [(float(at), int(size)) for at, port, size in csv.reader(lines)
                        if port == star.EGRESS]
