"""N equal hosts: network namespaces, each joined to one bridge by a veth pair. A job of
collective_bench: its ranks on such hosts, over loopback, or on other NICs."""

import contextlib
import json
import os
import tempfile

import namespaces
from exchange import Failed, started
from namespaces import command, pair, prefix

INTERFACE = "net0"
RUN_LIMIT_S = 120


class Hosts:
    interface = INTERFACE

    def __init__(self, count):
        self.hub = f"pacecar-{os.getpid()}-hub"
        self.members = [f"pacecar-{os.getpid()}-host{number}" for number in range(count)]
        self.namespaces = [self.hub, *self.members]
        self.ports = [f"to-host{number}" for number in range(count)]  # in the hub

    def address(self, number):
        # For documentation (RFC 5737): they exist in these namespaces only.
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
def hosts(count, mtu_bytes, rate_mbps=None):
    """`rate_mbps`: of each host's link, in both directions; None: no limit."""
    made = Hosts(count)
    with namespaces.made(made.namespaces, ("ip", "tc") if rate_mbps else ("ip",)):
        made.join(mtu_bytes)
        made.bridge(mtu_bytes)
        for member, port in zip(made.members, made.ports) if rate_mbps else ():
            shape(member, INTERFACE, mtu_bytes, rate_mbps)
            shape(made.hub, port, mtu_bytes, rate_mbps)
        yield made


def shape(namespace, interface, mtu_bytes, rate_mbps):
    # A burst of 1 ms, 8 packets at least: the timer that refills the bucket may be that late.
    burst = max(8 * (mtu_bytes + 18), rate_mbps * 125)
    command("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate",
            f"{rate_mbps}mbit", "burst", str(burst), "latency", "20ms")


@contextlib.contextmanager
def place(path, ranks, mtu_bytes, rate_mbps=None, nic=None):
    """Yields run(arguments, environment), which returns the JSON of one job. `nic`: of all ranks on
    path loopback; default soft:udp:lo. On path memif two ranks share memory."""
    with contextlib.ExitStack() as stack:
        made, nics = Here(), [nic or "soft:udp:lo"] * ranks
        if path == "veth":
            made = stack.enter_context(hosts(ranks, mtu_bytes, rate_mbps))
            nics = [f"soft:udp:{INTERFACE}"] * ranks
        elif path == "memif":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            end = f"socket={folder}/memif.sock,socket-abstract=no"
            nics = [f"soft:dpdk:net_memif0,role={role},{end}"
                    for role in ("server", *["client"] * (ranks - 1))]
        yield lambda arguments, environment: one_job(made, nics, arguments, environment)


def one_job(made, nics, arguments, environment):
    environment = {**environment, "NCCL_SOCKET_IFNAME": made.interface}
    # Below the kernel's range of ephemeral ports.
    meeting = ["--root", made.address(0), "--port", 18000 + os.getpid() % 10000]
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile() as file, contextlib.ExitStack() as stack:
        processes = [
            started(stack, [*made.prefix(rank), "taskset", "-c",
                            str(processors[rank % len(processors)])],
                    [*arguments, "--ranks", len(nics), "--rank", rank, *meeting,
                     "--out_json_file", file.name], {**environment, "PACECAR_NICS": nic})
            for rank, nic in enumerate(nics)]
        if not all([process.ends_well(RUN_LIMIT_S) for process in processes]):
            raise Failed("; ".join(process.complaint() for process in processes))
        return json.load(file)
