"""The star of star.py with `pacecar switch` in its middle instead of a bridge and HTB.

Every host has a link of the same rate to the switch. A host that sends alone has a faster one, so
that the queue is in the switch. The measured queue is that of the limited ports, from the log of
the switch. A switch that does not mark is fast, and only delays and loses packets: HTB limits its
ports.
"""

import contextlib
import csv
import os
import pathlib
import tempfile
import time
import types

import namespaces
import star
from exchange import Failed, started, wait_until
from queues import Sample

LOG_LIMIT_S = 10
SAMPLE = "1ms"
ALONE_FACTOR, FAST_FACTOR = 4, 20


@contextlib.contextmanager
def switched_star(shape, program):
    # In memory where possible: a busy disk would delay the switch.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, contextlib.ExitStack() as stack:
        made = SwitchedStar(shape, pathlib.Path(folder, "queue.csv"))
        stack.enter_context(namespaces.made(made.namespaces, ("ip", "tc")))
        made.join(shape.mtu_bytes)
        if not shape.ecn:
            made.limit()
        # Above the hosts' priority: a late switch delays every host.
        switch = started(stack, ("nice", "-n", "-10", *namespaces.prefix(made.hub)),
                         [program, "switch", *flags_of(made)], os.environ)
        try:
            switch.wait_for(made.log.exists)
        except Failed as reason:
            raise namespaces.Unavailable(f"'pacecar switch' does not run: {reason}") from reason
        yield made


def flags_of(made):
    rate = made.shape.rate_bps * (1 if made.shape.ecn else FAST_FACTOR)
    flags = ["--rate", rate, "--buffer", made.shape.queue_bytes, "--sample", SAMPLE, "--queue-log",
             made.log, "--quiet", *(["--ecn", made.shape.ecn] if made.shape.ecn else []),
             "--delay", f"{round(made.shape.delay_s * 1e6)}us", "--loss", made.shape.loss]
    for member, port in zip(made.members, made.ports):
        alone = made.senders == [member]
        flags += ["--port", f"{port},{ALONE_FACTOR * rate}" if alone else port]
    return flags


class SwitchedStar(star.Star):
    """A star whose queue is read from the switch's log."""

    def __init__(self, shape, log):
        super().__init__(shape)
        self.log = log  # for all runs; each reads its part

    def watched_queue(self):
        return self._switch_queue() if self.shape.ecn else super().watched_queue()

    @contextlib.contextmanager
    def _switch_queue(self):
        """The switch samples its queue. Its log has no drops; retransmissions show them."""
        begin = self.log.stat().st_size
        seen = types.SimpleNamespace(samples=[])
        yield seen
        end_s = time.monotonic()

        def reaches_the_end():  # the switch writes in blocks
            seen.samples = self._read(begin)
            return seen.samples and seen.samples[-1].at_s >= end_s

        wait_until(reaches_the_end, LOG_LIMIT_S, pause_s=0.05)

    def _read(self, begin):
        with self.log.open(encoding="ascii") as file:
            file.seek(begin)
            lines = file.read().split("\n")[1:-1]  # the first and last may be incomplete
        return [Sample(float(at), int(size), None, None, port)
                for at, port, size in csv.reader(lines) if port in self.limited]
