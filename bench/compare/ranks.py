"""One job of collective_bench: its ranks over loopback, or in a namespace each."""

import contextlib
import json
import os
import tempfile

import bridged
from exchange import Failed, Process

RUN_LIMIT_S = 120


@contextlib.contextmanager
def place(path, ranks, mtu_bytes, rate_mbps=None):
    """Gives run(arguments, environment): the JSON of one job."""
    if path == "loopback":
        yield lambda arguments, environment: one_job(bridged.Here(), ranks, arguments, environment)
        return
    with bridged.hosts(ranks, mtu_bytes, rate_mbps) as hosts:
        yield lambda arguments, environment: one_job(hosts, ranks, arguments, environment)


def one_job(hosts, ranks, arguments, environment):
    environment = {**environment, "PACECAR_NICS": f"soft:udp:{hosts.interface}",
                   "NCCL_SOCKET_IFNAME": hosts.interface}
    # Not among those that the system gives to whoever asks for any.
    meeting = ["--root", hosts.address(0), "--port", 18000 + os.getpid() % 10000]
    processors = sorted(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile() as file:
        finish([Process([*hosts.prefix(rank), "taskset", "-c",
                         str(processors[rank % len(processors)])],
                        [*arguments, "--ranks", ranks, "--rank", rank, *meeting,
                         "--out_json_file", file.name],
                        environment) for rank in range(ranks)])
        return json.load(file)


def finish(processes):
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
        if not all([process.ends_well(RUN_LIMIT_S) for process in processes]):
            raise Failed("; ".join(process.complaint() for process in processes))
