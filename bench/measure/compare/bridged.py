"""N equal hosts: network namespaces, each joined to one bridge by a veth pair."""

import contextlib
import dataclasses
import os

import namespaces
from namespaces import command, pair, prefix

INTERFACE = "net0"


@dataclasses.dataclass(frozen=True)
class Hosts:
    count: int
    mark: str
    interface = INTERFACE

    @property
    def hub(self):
        return f"{self.mark}-hub"

    @property
    def members(self):
        return [f"{self.mark}-host{number}" for number in range(self.count)]

    @property
    def namespaces(self):
        return [self.hub, *self.members]

    def address(self, number):
        # For documentation (RFC 5737): they exist in these namespaces only.
        return f"192.0.2.{number + 1}"

    def prefix(self, number):
        return prefix(self.members[number])


class Here:
    """All ranks on this host, with the interface of Hosts."""
    interface = "lo"

    def address(self, number):
        return "127.0.0.1"

    def prefix(self, number):
        return ()


@contextlib.contextmanager
def hosts(count, mtu_bytes, rate_mbps=None):
    """`rate_mbps`: of each host's link, in both directions; None: no limit."""
    made = Hosts(count, f"pacecar-{os.getpid()}")
    with namespaces.made(made.namespaces, ("ip", "tc") if rate_mbps else ("ip",)):
        command("ip", "-n", made.hub, "link", "add", "bridge0", "type", "bridge")
        command("ip", "-n", made.hub, "link", "set", "bridge0", "mtu", str(mtu_bytes), "up")
        for number, namespace in enumerate(made.members):
            port = f"to-host{number}"
            pair(namespace, INTERFACE, made.hub, port, mtu_bytes)
            command("ip", "-n", made.hub, "link", "set", port, "master", "bridge0")
            command("ip", "-n", namespace, "address", "add", f"{made.address(number)}/24", "dev",
                    INTERFACE)
            if rate_mbps:
                shape(namespace, INTERFACE, mtu_bytes, rate_mbps)
                shape(made.hub, port, mtu_bytes, rate_mbps)
        yield made


def shape(namespace, interface, mtu_bytes, rate_mbps):
    # A burst of 1 ms, 8 packets at least: the timer that refills the bucket may be that late.
    burst = max(8 * (mtu_bytes + 18), rate_mbps * 125)
    command("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate",
            f"{rate_mbps}mbit", "burst", str(burst), "latency", "20ms")
