"""The parts of a measurement: each is one program that writes its figures to a file of its own, so
that a part that fails does not spoil the others."""

import dataclasses
import json
import sys

import bundle_folder as bundle
import bridged

ROUNDS = 6  # from six on the intervals are a bootstrap's
LO = f"soft:udp:{bridged.Here.interface}"
SMALL, LARGE = "8,64,512,1K,4K,16K,64K", "256K,1M,4M,16M,64M,256M"
FIRST_LOOK = "8,64K,16M"


@dataclasses.dataclass(frozen=True)
class Part:
    """A measurement by bench/nccl/run with `flags`."""
    name: str
    what: str
    needs: tuple = ()   # names that must be in host.Host.has
    flags: tuple = ()
    rounds: int = ROUNDS

    def file(self, output):
        return output / "parts" / f"{self.name}.json"

    def read(self, output):
        """The part's document; {} when there is none, or an incomplete one."""
        try:
            return json.loads(self.file(output).read_text("utf-8"))
        except (OSError, ValueError):
            return {}

    def measured(self, document):
        """Whether the document has any result."""
        return bool(document.get("runs"))

    def failures(self, document):
        """A sentence for each run that failed."""
        return document.get("failures", [])

    def progress(self, output):
        """The progress, as text for the report."""
        document = self.read(output)
        return f"{rounds_of(document)} of {self.rounds} rounds" if document else "not begun"

    def finished(self, output, rounds):
        """Whether this many rounds, or all rounds of the part, are measured."""
        document = self.read(output)
        return bool(document) and rounds_of(document) >= min(rounds, self.rounds)

    def command(self, host, rounds, limits):
        """The command line of the program, which writes the file. `limits` has its flags for the
        budget, within which it ends, and the timeout."""
        return [sys.executable, "-B", bundle.RUN, "--plugin", host.plugin, "--nccl", host.nccl,
                "--resume", "--json", self.file(host.output), "--rounds",
                min(rounds, self.rounds), *limits, *self.flags]


class WholePart(Part):
    """A part that is measured in one go, without rounds."""

    def progress(self, output):
        return "done" if self.finished(output, 1) else "not begun"

    def finished(self, output, rounds):
        return self.measured(self.read(output))


class TorchPart(WholePart):
    """A training of each arm in each round."""

    def command(self, host, rounds, limits):
        return [host.torch, "-B", bundle.TORCH, "--plugin", host.plugin, "--json",
                self.file(host.output), *limits, *self.flags]


class TestsPart(WholePart):
    """Tests, each with its result."""

    def measured(self, document):
        return bool(document)

    def failures(self, document):
        return []


class GpuTestPart(TestsPart):
    """The tests of gdr on the GPU."""

    def command(self, host, rounds, limits):
        return host.lender.command(bundle.PROGRAMS / bundle.GPU_TEST,
                                   f"--gtest_output=json:{self.file(host.output)}")


class RulesPart(TestsPart):
    """The plugin under pacecar check-plugin: shows whether a fault is the plugin's or NCCL's."""

    def command(self, host, rounds, limits):
        return ["env", f"PACECAR_NICS={LO}", *host.lender.command(bundle.PROGRAMS / "pacecar"),
                "check-plugin", host.plugin, "--json", self.file(host.output)]


def rounds_of(document):
    """The number of rounds in which every arm that has not failed was measured."""
    failed = {name.rpartition(", ")[0] for name in document["left_out"]}
    arms = set(document["options"]["arms"].split(",")) - failed
    runs = [(run["round"], run["arm"]) for run in document["runs"]]
    return min((sum(one == arm for _, one in runs) for arm in arms), default=ROUNDS)


def matrix(path, ranks):
    """All operations on one path: small sizes with every arm, large sizes without
    PACECAR_EAGER=0, which makes no difference there."""
    nic = f"soft:udp:{bridged.INTERFACE if path == 'veth' else bridged.Here.interface}"
    needs = ("gpu", "veth") if path == "veth" else ("gpu",)
    common = ("--path", path, "--ranks", str(ranks))
    thread = f"{nic}+PACECAR_PROGRESS=thread"
    small = ("socket", nic, thread, f"{nic}+PACECAR_EAGER=0")
    return (Part(f"{path}-{ranks}-small", f"8 B to 64 KiB, {ranks} ranks, {path}", needs,
                 (*common, "--sizes", SMALL, "--iterations", "50", "--arms", ",".join(small))),
            Part(f"{path}-{ranks}-large", f"256 KiB to 256 MiB, {ranks} ranks, {path}", needs,
                 (*common, "--sizes", LARGE, "--repetitions", "2", "--arms",
                  ",".join(("socket", nic, thread)))))


def channels(count):
    return f"+NCCL_MIN_NCHANNELS={count}+NCCL_MAX_NCHANNELS={count}"


PARTS = (
    RulesPart("plugin-rules", "the plugin keeps NCCL's rules here, without NCCL and GPU",
              ("pacecar",)),
    GpuTestPart("gpu-tests", "gdr's tests: copies both ways, kinds of memory, dma-buf",
                ("gpu", bundle.GPU_TEST)),
    Part("first-look", "every operation once, also with GPU memory staged by the plugin", ("gpu",),
         ("--sizes", FIRST_LOOK, "--arms", f"socket,{LO},{LO}+PACECAR_GPU=staged"), rounds=1),
    *matrix("loopback", 2),
    TorchPart("training", "a training step of PyTorch's DistributedDataParallel", ("gpu", "torch"),
              ("--arms", f"socket,{LO}")),
    Part("profile", "what the ranks' threads do", ("gpu",),
         ("--profile", "--ops", "allreduce", "--sizes", "16M", "--repetitions", "20",
          "--iterations", "16", "--arms", f"socket,{LO},{LO}+PACECAR_PROGRESS=thread"), rounds=1),
    *matrix("loopback", 4),
    *matrix("veth", 2),
    *matrix("veth", 4),
    Part("all-nics", "every NIC of this host, with raw sockets and RDMA where there are any",
         ("gpu",), ("--sizes", "8,4K,64K,1M,16M,256M", "--repetitions", "2")),
    Part("channels", "numbers of channels, set directly", ("gpu",),
         ("--ops", "allreduce,alltoall", "--sizes", "4K,64K,1M,16M,64M", "--arms",
          ",".join(["socket", *(arm + channels(count) for count in (1, 2, 4, 8)
                                for arm in ("socket", LO))]))),
)
