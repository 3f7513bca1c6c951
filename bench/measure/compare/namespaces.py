"""Network namespaces as hosts, joined by veth pairs."""

import contextlib
import os
import shutil
import subprocess

from exchange import uninterrupted

WITHOUT_IPV6 = ("for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do "
                "if [ -e $file ]; then echo 1 > $file; fi; done")


class Unavailable(Exception):
    """This cannot be measured here; the text has the reason and the cure."""


@contextlib.contextmanager
def made(names, programs=("ip",)):
    """Makes the namespaces, and deletes them with their interfaces at the end."""
    for program in programs:
        if not shutil.which(program):
            raise Unavailable(f"the program '{program}' is missing: install iproute2")
    if os.geteuid() != 0:
        raise Unavailable("this needs root, which makes the network namespaces: run it as root")
    try:
        for name in names:
            command("ip", "netns", "add", name)
            # No other packets than the measured ones, such as router solicitations.
            command(*prefix(name), "sh", "-c", WITHOUT_IPV6)
            command("ip", "-n", name, "link", "set", "lo", "up")
        yield
    finally:
        with uninterrupted():
            for name in names:  # some may not have been made
                # In a session of its own, which a second Ctrl-C in the terminal does not reach.
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True,
                               start_new_session=True)


def prefix(name):
    """The words that run a command in a namespace."""
    return ("ip", "netns", "exec", name)


def pair(one, name, other, other_name, mtu_bytes):
    """Joins two namespaces by a veth pair."""
    mtu = ["mtu", str(mtu_bytes)]
    command("ip", "link", "add", name, *mtu, "netns", one, "type", "veth", "peer", other_name, *mtu,
            "netns", other)
    command("ip", "-n", one, "link", "set", name, "up")
    command("ip", "-n", other, "link", "set", other_name, "up")


def give_address(name, interface, address):
    command("ip", "-n", name, "address", "add", address, "dev", interface)


def command(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"'{' '.join(argv)}' failed ({done.stderr.strip()}): this needs the "
                          "right to make network namespaces, and a kernel with veth, bridge and "
                          "sch_htb")
