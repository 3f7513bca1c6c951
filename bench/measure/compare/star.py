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
import subprocess
import threading
import time
import types

import bridged
import namespaces
from namespaces import command, give_address, pair

PLAIN = "plain0"
LEAF = "10:"
# Addresses for documentation (RFC 5737): they exist in these namespaces only.
PLAIN_RECEIVER, PLAIN_PROBER = "198.51.100.1", "198.51.100.2"
# HTB knows the 14 bytes of the Ethernet header; preamble, FCS and gap are 24 more.
UNSEEN_OVERHEAD_BYTES = 24
BURST_PACKETS = 1  # that HTB may send at once after a late timer; a real link sends none


@dataclasses.dataclass(frozen=True)
class Shape:
    senders: int   # hosts
    rate_bps: int  # 0: no limit
    mtu_bytes: int
    queue_bytes: int
    neighbour: bool = False


class Star(bridged.Hosts):
    """Host 0 receives, host 1 probes, the others send; the neighbour is the last."""

    def __init__(self, shape):
        super().__init__(2 + shape.senders + shape.neighbour)
        self.shape = shape
        self.receiver, self.prober, *self.senders = self.members
        self.neighbour = self.senders.pop() if shape.neighbour else None
        self.egress = self.ports[0]

    def join(self, mtu_bytes):
        super().join(mtu_bytes)
        for member in self.members:
            command("ip", "-n", member, "link", "set", self.interface, "gso_max_segs", "1")
        pair(self.receiver, PLAIN, self.prober, PLAIN, mtu_bytes)
        give_address(self.receiver, PLAIN, f"{PLAIN_RECEIVER}/30")
        give_address(self.prober, PLAIN, f"{PLAIN_PROBER}/30")

    def limit(self):
        tc = ["tc", "-n", self.hub, "qdisc", "add", "dev", self.egress]
        command(*tc, "root", "handle", "1:", "htb", "default", "10")
        self.set_rate(self.shape.rate_bps, "add")
        command(*tc, "parent", "1:10", "handle", LEAF, "bfifo", "limit",
                str(self.shape.queue_bytes))

    def set_rate(self, bps, verb="change"):
        """Changes the rate of the limited link."""
        mtu = self.shape.mtu_bytes + 14
        burst = str(BURST_PACKETS * (mtu + UNSEEN_OVERHEAD_BYTES))
        command("tc", "-n", self.hub, "class", verb, "dev", self.egress, "parent", "1:", "classid",
                "1:10", "htb", "rate", f"{bps}bit", "burst", burst, "cburst", burst, "quantum",
                str(mtu), "overhead", str(UNSEEN_OVERHEAD_BYTES))

    @contextlib.contextmanager
    def queue_sampler(self):
        """Yields samples, which only a switch has, and the number of drops, at the end."""
        before = self._drops()
        seen = types.SimpleNamespace(samples=None, drops=None)
        yield seen
        seen.drops = self._drops() - before

    def _drops(self):
        done = subprocess.run(["tc", "-n", self.hub, "-s", "-j", "qdisc", "show", "dev",
                               self.egress], capture_output=True, text=True, check=True)
        return sum(one["drops"] for one in json.loads(done.stdout) if one.get("handle") == LEAF)


@contextlib.contextmanager
def star(shape):
    made = Star(shape)
    with namespaces.made(made.namespaces, ("ip", "tc")):
        made.join(shape.mtu_bytes)
        made.bridge(shape.mtu_bytes)
        if shape.rate_bps:
            made.limit()
        yield made


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

    def __init__(self, interval_s, look):
        super().__init__()
        self._interval_s, self._look = interval_s, look
        self.samples = []  # (CLOCK_MONOTONIC seconds, what look() returned) each

    def run(self):
        while not self.stop.wait(self._interval_s):
            seen = self._look()
            self.samples.append((time.monotonic(), seen))
