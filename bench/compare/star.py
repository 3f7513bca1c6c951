"""N senders and a prober that meet in front of one receiver: namespaces, a bridge, an HTB class.

    sender 1 --veth--+
    ...              bridge --HTB, then a FIFO--> receiver
    sender N --veth--+                               |
    prober ---veth---+                               |
         +------------- veth past the queue ---------+

All senders' packets are cut to the MTU before the bridge, so that the queue holds packets, as a
switch's does, and not joined segments. The class counts what Ethernet adds to each of them.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import threading
import time

from links import Unavailable, interrupts_ignored

INTERFACE = "net0"
PLAIN = "plain0"
EGRESS = "to-receiver"
LEAF = "10:"
# Addresses for documentation (RFC 5737): they exist in these namespaces only.
RECEIVER, PROBER, FIRST_SENDER = "192.0.2.1", "192.0.2.9", 11
PLAIN_RECEIVER, PLAIN_PROBER = "198.51.100.1", "198.51.100.2"
# HTB knows the 14 bytes of the Ethernet header; preamble, FCS and gap are 24 more.
UNSEEN_OVERHEAD_BYTES = 24
BURST_PACKETS = 1  # what a late timer may make up for; a link has no such credit
SAMPLE_INTERVAL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Shape:
    senders: int
    rate_bps: int
    mtu_bytes: int
    queue_bytes: int


@dataclasses.dataclass(frozen=True)
class Star:
    shape: Shape
    mark: str

    def namespace(self, role):
        return f"{self.mark}-{role}"

    @property
    def hub(self):
        return self.namespace("hub")

    @property
    def receiver(self):
        return self.namespace("receiver")

    @property
    def prober(self):
        return self.namespace("prober")

    @property
    def senders(self):
        return [self.namespace(f"sender{i}") for i in range(1, self.shape.senders + 1)]

    @property
    def namespaces(self):
        return [self.hub, self.receiver, self.prober, *self.senders]

    def qdisc(self):
        """What `tc` counts for the FIFO: backlog in bytes, drops and so on."""
        done = subprocess.run(["tc", "-n", self.hub, "-s", "-j", "qdisc", "show", "dev", EGRESS],
                              capture_output=True, text=True, check=True)
        return next(one for one in json.loads(done.stdout) if one.get("handle") == LEAF)

    def queue_sampler(self):
        return QueueSampler(self)


def prefix(namespace):
    """What puts a command into a namespace."""
    return ("ip", "netns", "exec", namespace)


@contextlib.contextmanager
def star(shape):
    check_needs()
    made = Star(shape, f"pacecar-{os.getpid()}")
    try:
        build(made)
        yield made
    finally:
        with interrupts_ignored():
            remove(made)


def check_needs():
    for program in ("ip", "tc"):
        if not shutil.which(program):
            raise Unavailable(f"the program '{program}' is missing: install iproute2")
    if os.geteuid() != 0:
        raise Unavailable("this needs root, which makes the network namespaces: run it as root")


def remove(made):
    for namespace in made.namespaces:
        # Its interfaces go with it. One that was never made is no matter.
        subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def make_namespaces(made):
    for namespace in made.namespaces:
        command("ip", "netns", "add", namespace)
        # Nothing but what is measured: no router solicitations, no detour of bridged packets.
        command(*prefix(namespace), "sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1",
                "net.ipv6.conf.default.disable_ipv6=1")
        command("ip", "-n", namespace, "link", "set", "lo", "up")


def build(made):
    make_namespaces(made)
    command("ip", "-n", made.hub, "link", "add", "bridge0", "type", "bridge")
    command("ip", "-n", made.hub, "link", "set", "bridge0", "mtu", str(made.shape.mtu_bytes), "up")
    attach(made, made.receiver, RECEIVER, EGRESS)
    attach(made, made.prober, PROBER, "to-prober")
    for number, namespace in enumerate(made.senders):
        attach(made, namespace, f"192.0.2.{FIRST_SENDER + number}", f"to-sender{number + 1}")
    join_plain(made)
    limit(made)


def join_plain(made):
    pair(made.receiver, PLAIN, made.prober, PLAIN, made.shape.mtu_bytes)
    command("ip", "-n", made.receiver, "address", "add", f"{PLAIN_RECEIVER}/30", "dev", PLAIN)
    command("ip", "-n", made.prober, "address", "add", f"{PLAIN_PROBER}/30", "dev", PLAIN)


def attach(made, namespace, address, port):
    join(made, namespace, address, port)
    command("ip", "-n", made.hub, "link", "set", port, "master", "bridge0")


def join(made, namespace, address, port):
    pair(namespace, INTERFACE, made.hub, port, made.shape.mtu_bytes)
    command("ip", "-n", namespace, "link", "set", INTERFACE, "gso_max_segs", "1")
    command("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", INTERFACE)


def pair(one, name, other, other_name, mtu_bytes):
    mtu = ["mtu", str(mtu_bytes)]
    command("ip", "link", "add", name, *mtu, "netns", one, "type", "veth", "peer", other_name, *mtu,
            "netns", other)
    command("ip", "-n", one, "link", "set", name, "up")
    command("ip", "-n", other, "link", "set", other_name, "up")


def limit(made):
    shape = made.shape
    burst = str(BURST_PACKETS * (shape.mtu_bytes + 14 + UNSEEN_OVERHEAD_BYTES))
    quantum = str(shape.mtu_bytes + 14)
    tc = ["tc", "-n", made.hub]
    command(*tc, "qdisc", "add", "dev", EGRESS, "root", "handle", "1:", "htb", "default", "10")
    command(*tc, "class", "add", "dev", EGRESS, "parent", "1:", "classid", "1:10", "htb", "rate",
            f"{shape.rate_bps}bit", "burst", burst, "cburst", burst, "quantum", quantum,
            "overhead", str(UNSEEN_OVERHEAD_BYTES))
    command(*tc, "qdisc", "add", "dev", EGRESS, "parent", "1:10", "handle", LEAF, "bfifo", "limit",
            str(shape.queue_bytes))


def command(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"'{' '.join(argv)}' failed ({done.stderr.strip()}): this needs the "
                          "right to make network namespaces, and a kernel with veth, bridge and "
                          "sch_htb")


class QueueSampler:
    """Asks `tc` for the backlog while something runs: (CLOCK_MONOTONIC seconds, bytes) each."""

    def __init__(self, made):
        self._star = made
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._drops_before = 0
        self.samples = []
        self.drops = 0

    def __enter__(self):
        self._drops_before = self._star.qdisc()["drops"]
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()
        self.drops = self._star.qdisc()["drops"] - self._drops_before

    def _sample(self):
        while not self._stop.wait(SAMPLE_INTERVAL_S):
            backlog = self._star.qdisc()["backlog"]
            self.samples.append((time.monotonic(), backlog))
