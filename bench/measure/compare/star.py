"""N sending hosts, joined to one receiving host: namespaces, a bridge, an HTB class.

    sender 1 --veth--+
    ...              bridge --HTB, then a FIFO--> receiver
    sender N --veth--+
    neighbour -veth--+

The senders cut their data to the MTU before the bridge, so that the queue holds packets, as a
switch's does, and no larger segments. The class counts Ethernet's overhead of each packet. The
neighbour, if there is one, is a host that sends other traffic. Without a rate there is neither
class nor FIFO: packets pass as fast as the machine allows. With `every_port` the bridge limits
the traffic to every host.
"""

import contextlib
import dataclasses
import random

import bridged
import namespaces
from namespaces import command
from queues import Qdisc, Sampler

LEAF, LEAF_HANDLE = "10:", 0x100000
# HTB knows the 14 bytes of the Ethernet header; preamble, FCS and gap are 24 more.
UNSEEN_OVERHEAD_BYTES = 24
BURST_PACKETS = 1  # that HTB may send at once after a late timer; a real link sends none
SAMPLE_INTERVAL_S = 0.001


@dataclasses.dataclass(frozen=True)
class Shape:
    senders: int   # hosts
    rate_bps: int  # 0: no limit
    mtu_bytes: int
    queue_bytes: int
    neighbour: bool = False
    every_port: bool = False
    joined: bool = False  # the senders do not cut their data: it passes as segments of up to 64 KB
    # With switched_star only: of each cable; the probability of loss; as of pacecar switch --ecn.
    delay_s: float = 1e-6
    loss: float = 0
    ecn: str = "50K,200K,0.2"


class Star(bridged.Hosts):
    """Host 0 receives, the others send; the neighbour is the last."""

    def __init__(self, shape):
        super().__init__(1 + shape.senders + shape.neighbour)
        self.shape = shape
        self.receiver, *self.senders = self.members
        self.neighbour = self.senders.pop() if shape.neighbour else None
        self.limited = self.ports if shape.every_port else self.ports[:1]

    def join(self, mtu_bytes):
        super().join(mtu_bytes)
        if self.shape.joined:
            return
        for member in self.members:
            command("ip", "-n", member, "link", "set", self.interface, "gso_max_segs", "1")

    def limit(self):
        for port in self.limited:
            tc = ["tc", "-n", self.hub, "qdisc", "add", "dev", port]
            command(*tc, "root", "handle", "1:", "htb", "default", "10")
            self._class("add", port, self.shape.rate_bps)
            command(*tc, "parent", "1:10", "handle", LEAF, "bfifo", "limit",
                    str(self.shape.queue_bytes))

    def set_rate(self, bps):
        """Changes the rate of the limited links."""
        for port in self.limited:
            self._class("change", port, bps)

    def _class(self, verb, port, bps):
        mtu = self.shape.mtu_bytes + 14
        burst = str(BURST_PACKETS * (mtu + UNSEEN_OVERHEAD_BYTES))
        command("tc", "-n", self.hub, "class", verb, "dev", port, "parent", "1:", "classid",
                "1:10", "htb", "rate", f"{bps}bit", "burst", burst, "cburst", burst, "quantum",
                str(mtu), "overhead", str(UNSEEN_OVERHEAD_BYTES))

    def watched_queue(self):
        """A context: an object whose `samples` of the limited links' queues are all there at its
        end. No samples without a limit."""
        if not self.shape.rate_bps:
            return contextlib.nullcontext(Sampler(SAMPLE_INTERVAL_S, None))
        queues = [Qdisc(port, LEAF_HANDLE, self.hub) for port in self.limited]
        return Sampler(SAMPLE_INTERVAL_S, lambda: random.choice(queues).sample())


@contextlib.contextmanager
def star(shape):
    made = Star(shape)
    with namespaces.made(made.namespaces, ("ip", "tc")):
        made.join(shape.mtu_bytes)
        made.bridge(shape.mtu_bytes)
        if shape.rate_bps:
            made.limit()
        yield made
