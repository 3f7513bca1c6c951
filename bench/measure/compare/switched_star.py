"""The star of star.py with `pacecar switch` in its middle instead of a bridge and HTB.

Every host has a link of the same rate to the switch. A host that sends alone has a faster one, so
that the queue is in the switch. The measured queue is that of the receiver's port, from the
switch's log.
"""

import contextlib
import csv
import os
import pathlib
import tempfile
import time

import namespaces
import star
from exchange import Failed, started, wait_until
from namespaces import Unavailable

LOG_LIMIT_S = 10
SAMPLE = "1ms"
ALONE_FACTOR = 4


@contextlib.contextmanager
def switched_star(shape, program, ecn):
    # In memory where possible: a busy disk would delay the switch.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, contextlib.ExitStack() as stack:
        made = SwitchedStar(shape, pathlib.Path(folder, "queue.csv"))
        stack.enter_context(namespaces.made(made.namespaces, ("ip", "tc")))
        for namespace, address, port in made.hosts:
            star.join(made, namespace, address, port)
        star.join_plain(made)
        # Above the hosts' priority: a late switch delays all of them.
        switch = started(stack, ("nice", "-n", "-10", *namespaces.prefix(made.hub)),
                         [program, "switch", *flags_of(made, ecn)], os.environ)
        try:
            switch.wait_for(made.log.exists)
        except Failed as reason:
            raise Unavailable(f"'pacecar switch' does not run: {reason}") from reason
        yield made


class SwitchedStar(star.Star):
    """A star whose queue is read from the switch's log."""

    knows_queue = True

    def __init__(self, shape, log):
        super().__init__(shape)
        self.log = log  # for all rounds; each reads its part

    def queue_sampler(self):
        return QueueSampler(self.log)


def flags_of(made, ecn):
    flags = ["--rate", made.shape.rate_bps, "--buffer", made.shape.queue_bytes, "--sample", SAMPLE,
             "--queue-log", made.log, "--quiet", *(["--ecn", ecn] if ecn else [])]
    for _, _, port in made.hosts:
        alone = made.shape.senders == 1 and port == "to-sender1"
        flags += ["--port", f"{port},{ALONE_FACTOR * made.shape.rate_bps}" if alone else port]
    return flags


class QueueSampler:
    """The part of the log that is written while something runs."""

    def __init__(self, log):
        self._log = log
        self._begin = 0
        self.samples = []  # (CLOCK_MONOTONIC seconds, bytes)
        self.drops = None  # unknown; "retransmitted" shows them

    def __enter__(self):
        self._begin = self._log.stat().st_size
        return self

    def __exit__(self, *unused):
        end_s = time.monotonic()
        wait_until(lambda: self._reaches(end_s), LOG_LIMIT_S, pause_s=0.05)

    def _reaches(self, end_s):
        """Reads the log. Whether it goes on until then: the switch writes in blocks."""
        with self._log.open(encoding="ascii") as file:
            file.seek(self._begin)
            lines = file.read().split("\n")[1:-1]  # the first and last may be incomplete
        self.samples = [(float(at), int(size)) for at, port, size in csv.reader(lines)
                        if port == star.EGRESS]
        return self.samples and self.samples[-1][0] >= end_s
