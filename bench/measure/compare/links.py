"""The network paths that are measured: loopback, and a veth pair between two network namespaces."""

import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import subprocess

VETH_MTU = 9000
VETH_NAME = "veth0"
# Addresses for documentation (RFC 5737): they exist in the two namespaces only.
VETH_SERVER = "192.0.2.1"
VETH_CLIENT = "192.0.2.2"


class Unavailable(Exception):
    """This path cannot be measured here; the text has the reason and the cure."""


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
    if not shutil.which("ip"):
        raise Unavailable("the veth pair needs the program 'ip' (package iproute2)")
    if os.geteuid() != 0:
        raise Unavailable("the veth pair needs root, which makes the two network namespaces: run "
                          "as root for it")
    mark = secrets.token_hex(3)
    server, client = f"pacecar-{mark}-server", f"pacecar-{mark}-client"
    try:
        make_pair(server, client)
        yield Link("veth", VETH_NAME, VETH_MTU, VETH_SERVER, ("ip", "netns", "exec", server),
                   ("ip", "netns", "exec", client))
    finally:
        with interrupts_ignored():
            for namespace in (server, client):
                # This deletes the pair, too. The namespace may not have been made.
                subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def make_pair(server, client):
    end = [VETH_NAME, "mtu", str(VETH_MTU)]
    ip("netns", "add", server)
    ip("netns", "add", client)
    ip("link", "add", *end, "netns", server, "type", "veth", "peer", *end, "netns", client)
    for namespace, address in ((server, VETH_SERVER), (client, VETH_CLIENT)):
        ip("-n", namespace, "address", "add", f"{address}/24", "dev", VETH_NAME)
        ip("-n", namespace, "link", "set", VETH_NAME, "up")
        ip("-n", namespace, "link", "set", "lo", "up")


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"'ip {' '.join(arguments)}' failed ({done.stderr.strip()}): the veth "
                          "pair needs the right to make network namespaces")


@contextlib.contextmanager
def interrupts_ignored():
    """For a clean-up: a second Ctrl-C is ignored."""
    before = {number: signal.signal(number, signal.SIG_IGN)
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


LINKS = {"loopback": loopback, "veth": veth}
