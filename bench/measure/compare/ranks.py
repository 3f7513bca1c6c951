"""One job of collective_bench: its ranks over loopback, in a namespace each, or on other NICs."""

import contextlib
import json
import os
import tempfile

import bridged
from exchange import Failed, started

RUN_LIMIT_S = 120


@contextlib.contextmanager
def place(path, ranks, mtu_bytes, rate_mbps=None, nic=None):
    """Yields run(arguments, environment), which returns the JSON of one job. `nic`: of all ranks on
    path loopback; default soft:udp:lo. On path memif two ranks share memory."""
    def run_on(hosts, nic_of):
        return lambda arguments, environment: one_job(hosts, nic_of, ranks, arguments, environment)

    if path == "veth":
        with bridged.hosts(ranks, mtu_bytes, rate_mbps) as hosts:
            yield run_on(hosts, lambda rank: f"soft:udp:{hosts.interface}")
    elif path == "memif":
        with tempfile.TemporaryDirectory() as folder:
            yield run_on(bridged.Here(), lambda rank: memif(folder, rank))
    else:
        yield run_on(bridged.Here(), lambda rank: nic or "soft:udp:lo")


def memif(folder, rank):
    role = "server" if rank == 0 else "client"
    return f"soft:dpdk:net_memif0,role={role},socket={folder}/memif.sock,socket-abstract=no"


def one_job(hosts, nic_of, ranks, arguments, environment):
    environment = {**environment, "NCCL_SOCKET_IFNAME": hosts.interface}
    # Below the kernel's range of ephemeral ports.
    meeting = ["--root", hosts.address(0), "--port", 18000 + os.getpid() % 10000]
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile() as file:
        finish(([*hosts.prefix(rank), "taskset", "-c", str(processors[rank % len(processors)])],
                [*arguments, "--ranks", ranks, "--rank", rank, *meeting,
                 "--out_json_file", file.name],
                {**environment, "PACECAR_NICS": nic_of(rank)}) for rank in range(ranks))
        return json.load(file)


def finish(commands):
    with contextlib.ExitStack() as stack:
        processes = [started(stack, *command) for command in commands]
        if not all([process.ends_well(RUN_LIMIT_S) for process in processes]):
            raise Failed("; ".join(process.complaint() for process in processes))
