"""A job of ranks, each in its own network namespace, joined by a bridge."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile

NETWORK = "10.77.0."


def run(*words, check=True):
    subprocess.run(words, check=check, capture_output=True, text=True)


class Job:
    """A context manager: starts the job, and removes everything at the end."""

    def __init__(self, program, plugin, rank_program, ranks, shifted_clock=None):
        self.program, self.plugin, self.rank_program = program, plugin, rank_program
        self.size = ranks
        self.shifted_clock = shifted_clock  # the rank whose clock is ahead
        self.cores = sorted(os.sched_getaffinity(0))
        self.mark = f"pcf{os.getpid()}"
        self.ranks = []
        self.others = []  # programs other than ranks
        self.undo = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.root = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.undo = stack
            self.state = self.root / "state"
            self.state.mkdir(mode=0o700)
            self.make_network()
            stack.callback(self.end_processes)
            for rank in range(self.size):
                self.ranks.append(self.start_rank(rank))
            for rank, process in enumerate(self.ranks):
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError(f"rank {rank} did not start: {process.stderr.read()}")
            self.undo = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.undo.close()

    def space(self, rank):
        return f"{self.mark}r{rank}"

    def port(self, rank):
        """The switch's end of the rank's link."""
        return f"{self.mark}p{rank}"

    def address(self, rank):
        return f"{NETWORK}{rank + 1}"

    def make_network(self):
        self.hub = f"{self.mark}hub"
        for name in [self.hub, *(self.space(rank) for rank in range(self.size))]:
            run("ip", "netns", "add", name)
            self.undo.callback(run, "ip", "netns", "delete", name, check=False)
        run("ip", "-n", self.hub, "link", "add", "switch", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "switch", "up")
        for rank in range(self.size):
            run("ip", "-n", self.hub, "link", "add", self.port(rank), "type", "veth", "peer",
                "name", "net0", "netns", self.space(rank))
            run("ip", "-n", self.hub, "link", "set", self.port(rank), "master", "switch", "up")
            run("ip", "-n", self.space(rank), "address", "add", f"{self.address(rank)}/24",
                "dev", "net0")
            run("ip", "-n", self.space(rank), "link", "set", "net0", "up")
            run("ip", "-n", self.space(rank), "link", "set", "lo", "up")

    def environment(self, rank):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
        return {**clean, "PACECAR_NICS": "soft:udp:net0", "PACECAR_STATE_DIR": str(self.state),
                "PACECAR_TIMEOUT": "60s", "RANK": str(rank)}

    def core_of(self, rank):
        return self.cores[rank % len(self.cores)]

    def disk(self, rank):
        return self.root / f"disk{rank}"

    def start_rank(self, rank):
        self.disk(rank).mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(self.disk(rank)))
        self.undo.callback(run, "umount", str(self.disk(rank)), check=False)
        command = ["ip", "netns", "exec", self.space(rank)]
        if rank == self.shifted_clock:
            command += ["unshare", "--time", "--monotonic", "100000", "--boottime", "100000"]
        command += [self.rank_program, "--plugin", self.plugin, "--rank", str(rank), "--ranks",
                    str(self.size), "--meeting", str(self.root), "--disk", str(self.disk(rank))]
        return subprocess.Popen(command, env=self.environment(rank), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def start_beside(self, *command, **options):
        self.others.append(subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL, **options))

    def end_processes(self):
        for process in [*self.ranks, *self.others]:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()

    def tell(self, rank, words):
        self.ranks[rank].stdin.write(words + "\n")
        self.ranks[rank].stdin.flush()

    def pid(self, rank):
        return self.ranks[rank].pid

    def name_of(self, text):
        """The rank that a report names by this text; None: no rank."""
        for rank in range(self.size):
            if re.search(rf"\bpid {self.pid(rank)}\b", text) or text.startswith(f"rank {rank} ("):
                return rank
        return None
