"""The network paths that are measured: loopback, and a veth pair between two network namespaces."""

import contextlib
import dataclasses
import secrets

import namespaces

VETH_MTU = 9000
VETH_NAME = "veth0"
# Addresses for documentation (RFC 5737): they exist in the two namespaces only.
VETH_SERVER = "192.0.2.1"
VETH_CLIENT = "192.0.2.2"


@dataclasses.dataclass(frozen=True)
class Link:
    name: str
    interface: str
    mtu_bytes: int
    address: str  # the server's
    server_prefix: tuple = ()  # words that run a command in the server's namespace
    client_prefix: tuple = ()

    @property
    def nic(self):
        return f"soft:udp:{self.interface}"


@contextlib.contextmanager
def loopback():
    with open("/sys/class/net/lo/mtu", encoding="ascii") as file:
        yield Link("loopback", "lo", int(file.read()), "127.0.0.1")


@contextlib.contextmanager
def veth():
    mark = f"pacecar-{secrets.token_hex(3)}"
    server, client = f"{mark}-server", f"{mark}-client"
    with namespaces.made((server, client)):
        namespaces.pair(server, VETH_NAME, client, VETH_NAME, VETH_MTU)
        for name, address in ((server, VETH_SERVER), (client, VETH_CLIENT)):
            namespaces.give_address(name, VETH_NAME, f"{address}/24")
        yield Link("veth", VETH_NAME, VETH_MTU, VETH_SERVER, namespaces.prefix(server),
                   namespaces.prefix(client))


LINKS = {"loopback": loopback, "veth": veth}
