"""N equal hosts: network namespaces, each joined to one bridge by a veth pair."""

import contextlib
import os

import namespaces
from namespaces import command, pair, prefix

INTERFACE = "net0"


class Hosts:
    # For documentation (RFC 5737): it exists in these namespaces only.
    NETWORK = "192.0.2.0/24"
    interface = INTERFACE

    def __init__(self, count):
        self.hub = f"pacecar-{os.getpid()}-hub"
        self.members = [f"pacecar-{os.getpid()}-host{number}" for number in range(count)]
        self.namespaces = [self.hub, *self.members]
        self.ports = [f"to-host{number}" for number in range(count)]  # in the hub

    def address(self, number):
        return f"192.0.2.{number + 1}"

    def prefix(self, number):
        return prefix(self.members[number])

    def join(self, mtu_bytes):
        """Joins each member to the hub, in which nothing joins the ports yet."""
        for number, (member, port) in enumerate(zip(self.members, self.ports)):
            pair(member, INTERFACE, self.hub, port, mtu_bytes)
            namespaces.give_address(member, INTERFACE, f"{self.address(number)}/24")

    def bridge(self, mtu_bytes):
        command("ip", "-n", self.hub, "link", "add", "bridge0", "type", "bridge")
        command("ip", "-n", self.hub, "link", "set", "bridge0", "mtu", str(mtu_bytes), "up")
        for port in self.ports:
            command("ip", "-n", self.hub, "link", "set", port, "master", "bridge0")


class Here:
    """All ranks on this host, with the interface of Hosts."""
    interface = "lo"

    def address(self, number):
        return "127.0.0.1"

    def prefix(self, number):
        return ()


@contextlib.contextmanager
def hosts(count, mtu_bytes):
    made = Hosts(count)
    with namespaces.made(made.namespaces):
        made.join(mtu_bytes)
        made.bridge(mtu_bytes)
        yield made
