"""One job of Open MPI: its ranks on this host, or each in a network namespace."""

import contextlib
import dataclasses
import os
import pathlib
import shlex
import tempfile

import namespaces
from exchange import Failed, Process

LIMIT_S = 240
COLLECTIVES = pathlib.Path(__file__).with_name("mpi_collectives")
# The transport of each arm; the collectives are Open MPI's own.
ARMS = {
    "tcp": ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"],
    "ofi-tcp": ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
                "tcp;ofi_rxm"],
    "pacecar": ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
                "pacecar", "--mca", "btl", "self,ofi", "--mca", "btl_ofi_provider_include",
                "pacecar"],  # the btl for one-sided operations
}


@dataclasses.dataclass(frozen=True)
class Place:
    interface: str
    # The namespace of each rank, by the rank's address; empty: all ranks run on this host.
    namespaces: dict = dataclasses.field(default_factory=dict)


def place_of(hosts):
    """The place of bridged.Hosts, a rank on each."""
    return Place(hosts.interface, {hosts.address(number): namespace
                                   for number, namespace in enumerate(hosts.members)})


def run(place, ranks, arm, provider, program, environment=None):
    """Returns the job's standard output. Raises Failed."""
    with started(place, ranks, arm, provider, program, environment) as process:
        if not process.ends_well(LIMIT_S):
            raise Failed(process.complaint())
        return process.output()


@contextlib.contextmanager
def started(place, ranks, arm, provider, program, environment=None):
    environment = {**os.environ, "FI_PROVIDER_PATH": str(provider),
                   "PACECAR_NICS": f"soft:udp:{place.interface}", **(environment or {})}
    passed = [name for name in environment if name.startswith(("FI_", "PACECAR_"))]
    # All ranks share this host: Open MPI may spin only if each rank has a processor.
    idle = int(ranks > len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks,
                   "--mca", "btl_tcp_if_include", place.interface,
                   "--mca", "oob_tcp_if_include", place.interface,
                   "--mca", "mpi_yield_when_idle", idle, "--bind-to", "none", *ARMS[arm],
                   *(word for name in passed for word in ("-x", name))]
        prefix = ()
        if place.namespaces:
            command += ["--host", ",".join(list(place.namespaces)[:ranks]),
                        "--mca", "plm_rsh_agent", agent(pathlib.Path(folder), place.namespaces)]
            prefix = namespaces.prefix(next(iter(place.namespaces.values())))
        with Process(prefix, [*command, *program], environment) as process:
            yield process


def agent(folder, namespace_of):
    """A program in place of ssh, called with an address and a command for that host.

    Each host has its own TMPDIR: Open MPI's daemons on one host do not share temporary files.
    """
    script = folder / "into-namespace"
    cases = "".join(f"{address}) namespace={shlex.quote(namespace)} ;;\n"
                    for address, namespace in namespace_of.items())
    script.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}'
                      '*) echo "no host $host" >&2; exit 1 ;;\nesac\n'
                      f'export TMPDIR={shlex.quote(str(folder))}/$host\n'
                      'mkdir "$TMPDIR" || exit 1\n'
                      'exec ip netns exec "$namespace" sh -c "$*"\n', encoding="ascii")
    script.chmod(0o700)
    return str(script)
