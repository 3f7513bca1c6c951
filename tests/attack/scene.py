"""Two hosts, a bridge between them on which the attacker runs, and the victims' jobs."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/measure/compare"))

import bridged  # noqa: E402
import namespaces  # noqa: E402
from exchange import Failed, Process  # noqa: E402

MTU = 9000
PORT = 18515
PACKET_ATTACKS = ("replay", "reorder", "reflect", "forge", "trim", "sweep", "truncate", "flood",
                  "icmp")
SET_UP_LIMIT_S = 60
LOOK_INTERVAL_S = 0.2
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Scene:
    build: pathlib.Path
    hosts: bridged.Hosts
    folder: pathlib.Path
    security: str = "auth"
    # The processor of each role; a role that is not named runs on any.
    processors: dict = dataclasses.field(default_factory=dict)

    def program(self, name):
        return self.build / {"pacecar": "bench/pacecar", "attacker": "tests/attack/attacker"}[name]

    def environment(self):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
        return {**clean, "PACECAR_NICS": f"soft:udp:{self.hosts.interface}",
                "NCCL_SOCKET_IFNAME": self.hosts.interface, "PACECAR_SECURITY": self.security,
                "PACECAR_STATE_DIR": str(self.folder / "state")}

    def start(self, where, role, argv):
        processors = self.processors.get(role)
        pinned = ("taskset", "-c", str(processors)) if processors is not None else ()
        return Process((*namespaces.prefix(where), *pinned), list(map(str, argv)),
                       self.environment())

    def attacker(self, attacks, seconds, rate, seed, role="attacker"):
        """Repeats the attacks until it is stopped; `seconds`: of each."""
        ports = [f"--tap=to-host{number}" for number in range(2)]
        return self.start(self.hosts.hub, role,
                          [self.program("attacker"), "--attack", ",".join(attacks), *ports,
                           "--again", "--seconds", seconds, "--rate", rate, "--seed", seed,
                           "--security", self.security])

    def caller(self, tables, seconds, rate, seed):
        return self.start(self.hosts.hub, "attacker",
                          [self.program("attacker"), "--listening", *tables, "--seconds", seconds,
                           "--rate", rate, "--seed", seed])

    @contextlib.contextmanager
    def collective(self, seconds, size="1M", iterations=2):
        """NCCL's all-reduce of two ranks, which check every element after timed operations."""
        argv = [ROOT / "bench/nccl/run", "--cpu", "--build", self.build, "--ops", "allreduce",
                "--ranks", 2, "--master", f"{self.hosts.address(0)}:{PORT + 1}", "--sizes", size,
                "-n", iterations, "--repetitions", 1, "--seconds", seconds]
        with contextlib.ExitStack() as stack:
            yield Job([stack.enter_context(self.start(self.hosts.members[rank], f"rank{rank}",
                                                      [*argv, "--rank", rank]))
                       for rank in range(2)])

    @contextlib.contextmanager
    def bandwidth(self, seconds, port=PORT):
        """`pacecar bw` and its client, which write a pattern and check it."""
        figures = self.folder / f"bw-{random.randrange(1 << 30)}.json"
        with self.bandwidth_server(port) as server:
            server.wait_for_port(port)
            with self.bandwidth_client(seconds, port, figures) as client:
                yield Job([server, client], figures)

    def bandwidth_server(self, port=PORT):
        return self.start(self.hosts.members[0], "rank0",
                          [self.program("pacecar"), "bw", "-p", port, "--data_validation"])

    def bandwidth_client(self, seconds, port, figures):
        return self.start(self.hosts.members[1], "rank1",
                          [self.program("pacecar"), "bw", "-p", port, "-D", max(1, round(seconds)),
                           "--data_validation", "--out_json_file", figures, self.hosts.address(0)])

    def counters(self):
        """The NIC counters of all processes, summed by name; empty while no process answers."""
        done = subprocess.run([self.program("pacecar"), "doctor", "--json", "--watch", "0"],
                              env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            return {}
        total = {}
        for process in json.loads(done.stdout)["processes"]:
            for nic in process["now"]["nics"]:
                for name, count in nic["statistics"].items():
                    if isinstance(count, int):
                        total[name] = total.get(name, 0) + count
        return total


class Job:
    """Both processes of a victim, with their largest memory, CPU time and counters so far."""

    def __init__(self, processes, figures=None):
        self.processes = processes
        self._figures = figures
        self._before = None
        self.grown_bytes = 0
        self.counters = {}
        self.cpu_seconds = [0] * len(processes)

    def await_traffic(self, scene):
        """Waits for traffic; memory should not grow from then on."""
        give_up = time.monotonic() + SET_UP_LIMIT_S
        while not scene.counters().get("bytes_received", 0) > 1 << 20:
            if self.ended() or time.monotonic() > give_up:
                raise Failed("no traffic: " + self.complaint())
            time.sleep(LOOK_INTERVAL_S)
        self.note_memory()

    def note_memory(self):
        self._before = [resident(process.pid) for process in self.processes]

    def look(self, scene):
        for number, process in enumerate(self.processes):
            if (now := resident(process.pid)) and self._before:
                self.grown_bytes = max(self.grown_bytes, now - self._before[number])
            self.cpu_seconds[number] = max(self.cpu_seconds[number], cpu_seconds(process.pid))
        for name, count in scene.counters().items():
            self.counters[name] = max(self.counters.get(name, 0), count)

    def ended(self):
        return any(process.ended() for process in self.processes)

    def ends_well(self, limit_s):
        return all([process.ends_well(limit_s) for process in self.processes])

    def complaint(self):
        return "; ".join(process.complaint() for process in self.processes)

    def figures(self):
        return json.loads(self._figures.read_text("utf-8"))

    def wrong(self):
        """The number of wrong elements of a collective."""
        return sum(json.loads(line)["wrong"] for process in self.processes
                   for line in process.output().splitlines() if line.startswith("{"))


def resident(pid):
    """Resident bytes of the process; 0 once it has ended."""
    return of_status(pid, "VmRSS:") * 1024


def of_status(pid, name):
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def cpu_seconds(pid):
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return 0


@contextlib.contextmanager
def scene(build):
    """Errors: namespaces.Unavailable where no namespace can be made."""
    with bridged.hosts(2, MTU) as hosts, tempfile.TemporaryDirectory() as folder:
        namespaces.command("ip", "-n", hosts.hub, "address", "add", "192.0.2.254/24", "dev",
                           "bridge0")
        yield Scene(build, hosts, pathlib.Path(folder))


@contextlib.contextmanager
def tables(made):
    """Files that list the TCP ports that listen on each host."""
    with contextlib.ExitStack() as stack:
        anchors = [stack.enter_context(made.start(member, "anchor", ["sleep", "infinity"]))
                   for member in made.hosts.members]
        yield [f"/proc/{anchor.pid}/net/tcp" for anchor in anchors]
