"""N sending hosts and a prober, joined to one receiving host: namespaces, a bridge, an HTB class.

    sender 1 --veth--+
    ...              bridge --HTB, then a FIFO--> receiver
    sender N --veth--+                               |
    neighbour -veth--+                               |
    prober ---veth---+                               |
         +------------- veth past the queue ---------+

The senders cut their data to the MTU before the bridge, so that the queue holds packets, as a
switch's does, and no larger segments. The class counts Ethernet's overhead of each packet. The
neighbour, if there is one, is a host that sends other traffic. Without a rate there is neither
class nor FIFO: packets pass as fast as the machine allows.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import threading
import time
import types

import namespaces
from namespaces import command, give_address, pair

INTERFACE = "net0"
PLAIN = "plain0"
EGRESS = "to-receiver"
LEAF = "10:"
# Addresses for documentation (RFC 5737): they exist in these namespaces only.
RECEIVER, PROBER, NEIGHBOUR, FIRST_SENDER = "192.0.2.1", "192.0.2.9", "192.0.2.10", 11
PLAIN_RECEIVER, PLAIN_PROBER = "198.51.100.1", "198.51.100.2"
# HTB knows the 14 bytes of the Ethernet header; preamble, FCS and gap are 24 more.
UNSEEN_OVERHEAD_BYTES = 24
BURST_PACKETS = 1  # that HTB may send at once after a late timer; a real link sends none
SAMPLE_INTERVAL_S = 0.1

@dataclasses.dataclass(frozen=True)
class Shape:
    senders: int   # hosts
    rate_bps: int  # 0: no limit
    mtu_bytes: int
    queue_bytes: int
    neighbour: bool = False


class Star:
    # Whether the queue's sampler is exact and frequent enough for the thresholds.
    knows_queue = False

    def __init__(self, shape):
        def name(role):
            return f"pacecar-{os.getpid()}-{role}"

        self.shape = shape
        self.hub, self.receiver, self.prober, self.neighbour = map(
            name, ("hub", "receiver", "prober", "neighbour"))
        self.senders = [name(f"sender{number}") for number in range(1, shape.senders + 1)]
        # (namespace, its address, its port at the hub) of every host
        self.hosts = [(self.receiver, RECEIVER, EGRESS), (self.prober, PROBER, "to-prober")]
        self.hosts += [(namespace, f"192.0.2.{FIRST_SENDER + number}", f"to-sender{number + 1}")
                       for number, namespace in enumerate(self.senders)]
        if shape.neighbour:
            self.hosts.append((self.neighbour, NEIGHBOUR, "to-neighbour"))
        self.namespaces = [self.hub, *(namespace for namespace, _, _ in self.hosts)]

    def set_rate(self, bps):
        """Changes the rate of the limited link."""
        command("tc", "-n", self.hub, "class", "change", *class_of(self.shape, bps))

    def queue(self):
        """The backlog of the FIFO in bytes, and its drops, by `tc`."""
        done = subprocess.run(["tc", "-n", self.hub, "-s", "-j", "qdisc", "show", "dev", EGRESS],
                              capture_output=True, text=True, check=True)
        fifo = next(one for one in json.loads(done.stdout) if one.get("handle") == LEAF)
        return fifo["backlog"], fifo["drops"]

    def queue_sampler(self):
        """A context with samples and drops; without a FIFO there are none."""
        if not self.shape.rate_bps:
            return contextlib.nullcontext(types.SimpleNamespace(samples=[], drops=None))
        return QueueSampler(SAMPLE_INTERVAL_S, self.queue)


@contextlib.contextmanager
def star(shape):
    made = Star(shape)
    with namespaces.made(made.namespaces, ("ip", "tc")):
        namespaces.bridge(made.hub, shape.mtu_bytes)
        for namespace, address, port in made.hosts:
            join(made, namespace, address, port)
            command("ip", "-n", made.hub, "link", "set", port, "master", "bridge0")
        join_plain(made)
        if shape.rate_bps:
            limit(made)
        yield made


def join_plain(made):
    pair(made.receiver, PLAIN, made.prober, PLAIN, made.shape.mtu_bytes)
    give_address(made.receiver, PLAIN, f"{PLAIN_RECEIVER}/30")
    give_address(made.prober, PLAIN, f"{PLAIN_PROBER}/30")


def join(made, namespace, address, port):
    pair(namespace, INTERFACE, made.hub, port, made.shape.mtu_bytes)
    command("ip", "-n", namespace, "link", "set", INTERFACE, "gso_max_segs", "1")
    give_address(namespace, INTERFACE, f"{address}/24")


def limit(made):
    tc = ["tc", "-n", made.hub]
    command(*tc, "qdisc", "add", "dev", EGRESS, "root", "handle", "1:", "htb", "default", "10")
    command(*tc, "class", "add", *class_of(made.shape, made.shape.rate_bps))
    command(*tc, "qdisc", "add", "dev", EGRESS, "parent", "1:10", "handle", LEAF, "bfifo", "limit",
            str(made.shape.queue_bytes))


def class_of(shape, rate_bps):
    burst = str(BURST_PACKETS * (shape.mtu_bytes + 14 + UNSEEN_OVERHEAD_BYTES))
    return ["dev", EGRESS, "parent", "1:", "classid", "1:10", "htb", "rate", f"{rate_bps}bit",
            "burst", burst, "cburst", burst, "quantum", str(shape.mtu_bytes + 14), "overhead",
            str(UNSEEN_OVERHEAD_BYTES)]


class Background:
    """A context that calls run() in a thread. run() returns soon when `stop` is set."""

    def __init__(self):
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self.run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self.stop.set()
        self._thread.join()


class Sampler(Background):
    """Calls look() at an interval."""

    def __init__(self, interval_s):
        super().__init__()
        self._interval_s = interval_s
        self.samples = []  # (CLOCK_MONOTONIC seconds, what look() returned) each

    def run(self):
        while not self.stop.wait(self._interval_s):
            seen = self.look()
            self.samples.append((time.monotonic(), seen))


class QueueSampler(Sampler):
    """Samples the bytes in a queue. `queue`: returns them, and how many packets it has dropped."""

    def __init__(self, interval_s, queue):
        super().__init__(interval_s)
        self._queue = queue
        self.drops = None

    def look(self):
        return self._queue()[0]

    def __enter__(self):
        self._drops_before = self._queue()[1]
        return super().__enter__()

    def __exit__(self, *unused):
        super().__exit__()
        self.drops = self._queue()[1] - self._drops_before


class ArrivalSampler(Sampler):
    """Bytes that the receiving host has received so far, as on the wire."""

    def __init__(self, pid):
        """`pid`: a process of the receiving host; it may end meanwhile."""
        super().__init__(interval_s=0.01)
        self._counters = open(f"/proc/{pid}/net/dev", encoding="ascii")

    def look(self):
        self._counters.seek(0)
        line = next(line for line in self._counters if line.strip().startswith(f"{INTERFACE}:"))
        size, packets = map(int, line.split(":")[1].split()[:2])
        return size + packets * UNSEEN_OVERHEAD_BYTES

    def __exit__(self, *unused):
        super().__exit__()
        self._counters.close()
