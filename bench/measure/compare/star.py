"""N sending hosts, joined to one receiving host: namespaces, a bridge, an HTB class.

    sender 1 --veth--+
    ...              bridge --HTB, then a FIFO--> receiver
    sender N --veth--+
    neighbour -veth--+

The senders cut their data to the MTU before the bridge, so that the queue holds packets, as a
switch's does, and no larger segments. The class counts Ethernet's overhead of each packet. The
neighbour, if there is one, is a host that sends other traffic. Without a rate there is neither
class nor FIFO: packets pass as fast as the machine allows.
"""

import contextlib
import dataclasses

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


class Star(bridged.Hosts):
    """Host 0 receives, the others send; the neighbour is the last."""

    def __init__(self, shape):
        super().__init__(1 + shape.senders + shape.neighbour)
        self.shape = shape
        self.receiver, *self.senders = self.members
        self.neighbour = self.senders.pop() if shape.neighbour else None
        self.egress = self.ports[0]

    def join(self, mtu_bytes):
        super().join(mtu_bytes)
        for member in self.members:
            command("ip", "-n", member, "link", "set", self.interface, "gso_max_segs", "1")

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

    def watched_queue(self):
        """A context: an object whose `samples` of the limited link's queue are all there at its
        end. No samples without a limit."""
        if not self.shape.rate_bps:
            return contextlib.nullcontext(Sampler(SAMPLE_INTERVAL_S, None))
        return Sampler(SAMPLE_INTERVAL_S, Qdisc(self.egress, LEAF_HANDLE, self.hub).sample)


@contextlib.contextmanager
def star(shape):
    made = Star(shape)
    with namespaces.made(made.namespaces, ("ip", "tc")):
        made.join(shape.mtu_bytes)
        made.bridge(shape.mtu_bytes)
        if shape.rate_bps:
            made.limit()
        yield made
