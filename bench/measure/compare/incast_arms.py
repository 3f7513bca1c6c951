"""One run of an arm: runs senders and receivers, and samples queue, arrivals and processor time.

A group is the processes of one algorithm: its senders, and one receiver for all of them or one for
each. The arm is one group; with --beside there is a second one. All receivers start at the same
time, which is written to a file when every sender has connected. The warm-up comes first, then the
window.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import sys
import tempfile
import threading
import time

import incast_figures
import namespaces
import star
from exchange import END_LIMIT_S, SET_UP_LIMIT_S, START_LIMIT_S, Failed, started, write_whole

TCP = "tcp:"
IDLE_S = 1  # the probes run alone before the senders start
SOON_S = 0.02  # from writing the start time until it comes, so that every receiver reads it before
INCAST, PAIRS, FAN_IN = "incast", "pairs", "fan-in"
TCP_PEER = pathlib.Path(__file__).with_name("tcp_peer.py")
# Many processes share few processors: each must sleep when it has nothing to do.
CALM = {"PACECAR_PROGRESS": "thread", "PACECAR_SPIN": "0s"}


@dataclasses.dataclass(frozen=True)
class Plan:
    incast_peer: pathlib.Path
    queue_probe: pathlib.Path
    seconds: float
    warm_up: float
    message_bytes: int
    in_flight: int
    probe_rate: float
    told_bps: int | None  # PACECAR_LINE_RATE; None: not set
    shape: str = INCAST
    senders: int = 1           # processes
    share: str | None = None   # PACECAR_SHARE
    beside: str | None = None  # an arm with one process
    rates: tuple = ()          # of the link, one after the other


def run(arm, plan, made):
    """Figures of one run."""
    probe = [plan.queue_probe, "--from", made.prober, "--to", made.receiver, "--shaped",
             star.RECEIVER, "--plain", star.PLAIN_RECEIVER, "--rate", plan.probe_rate]
    with contextlib.ExitStack() as stack:
        probing = started(stack, (), probe, os.environ)
        backlog = stack.enter_context(made.queue_sampler())
        before_s = time.monotonic()
        time.sleep(IDLE_S)
        busy = ProcessorTime()
        traffic = send_all(arm, plan, made)
        processors = busy.figures()
        probing.stop()
        try:
            probes = json.loads(probing.output())
        except ValueError as error:
            raise Failed(probing.complaint()) from error
    idle = [one for one in probes if before_s < one[0] < before_s + IDLE_S]
    by_probes = incast_figures.queue_of_probes(probes, idle, traffic, made.shape)
    judged = backlog.samples if made.knows_queue else by_probes
    return {**incast_figures.throughput(traffic, plan, made.shape),
            **incast_figures.delays(probes, idle, traffic),
            **incast_figures.queue(judged, traffic, "queue"),
            **incast_figures.queue(backlog.samples, traffic, "backlog"),
            **incast_figures.recovery(by_probes, traffic, made.shape),
            "drops": backlog.drops, "retransmitted": traffic.retransmitted,
            "senders": traffic.senders, **processors}


def send_all(arm, plan, made):
    hosts = made.senders * plan.senders if plan.shape == PAIRS else made.senders
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        group = Group(arm, hosts, plan.shape == INCAST, plan, made, folder)
        groups = [group]
        if plan.beside:
            groups.append(Group(plan.beside, [made.neighbour], True, plan, made, folder))
        for one in groups:
            one.start(stack)
        for one in groups:
            one.wait_until_joined()
        start_s = time.monotonic() + SOON_S
        begin_s = start_s + plan.warm_up
        changes = arrivals = None
        if plan.rates:
            arrivals = stack.enter_context(star.ArrivalSampler(group.receivers[0].pid))
            changes = stack.enter_context(Changes(made, plan, begin_s))
        write_whole(folder / "start", f"{start_s:.6f}")
        for one in groups:
            one.finish(plan)
    if changes and len(changes.rates) < len(plan.rates):
        raise Failed("the link's rate could not be changed")
    result = group.results[0]
    payload, overhead = result["packet_payload_bytes"], result["packet_overhead_bytes"]
    return incast_figures.Traffic(
        start_s, begin_s, begin_s + plan.seconds, group.gbps(), payload / (payload + overhead),
        sum(end["packets_retransmitted"] for end in group.ends), group.ends,
        sum(groups[1].gbps()) if plan.beside else None,
        changes.rates if changes else [], arrivals.samples if arrivals else [])


class Group:
    """The processes of one algorithm, with a handle file for each receiver."""

    def __init__(self, arm, hosts, one_receiver, plan, made, folder):
        self._hosts, self._made = hosts, made
        self._argv, self._environment = peer(arm, plan)
        self._start_file = folder / "start"
        name = "neighbour" if hosts == [made.neighbour] else "handle"
        count = 1 if one_receiver else len(hosts)
        self._handles = [folder / f"{name}{number}" for number in range(count)]
        self._senders = []
        self.receivers, self.ends, self.results = [], [], []

    def start(self, stack):
        def process(namespace, role, handle, *flags):
            argv = [*self._argv, role, "--handle-file", handle, *flags]
            return started(stack, namespaces.prefix(namespace), argv, self._environment)

        each = len(self._hosts) // len(self._handles)
        self.receivers = [process(self._made.receiver, "receive", handle, "--senders", each,
                                  "--start-file", self._start_file) for handle in self._handles]
        for handle, receiver in zip(self._handles, self.receivers):
            wait_for(handle, receiver)
        self._senders = [process(host, "send", self._handles[number % len(self._handles)])
                         for number, host in enumerate(self._hosts)]

    def wait_until_joined(self):
        for handle, receiver in zip(self._handles, self.receivers):
            wait_for(handle.with_name(handle.name + ".joined"), receiver, *self._senders)

    def finish(self, plan):
        length = plan.seconds + plan.warm_up
        self.ends = [finish(sender, length) for sender in self._senders]
        self.results = [finish(receiver, END_LIMIT_S) for receiver in self.receivers]

    def gbps(self):
        """Of each sender."""
        return [sender["gbps"] for result in self.results for sender in result["senders"]]


def peer(arm, plan):
    """The command and the environment of an end."""
    window = ["--seconds", plan.seconds, "--warm-up", plan.warm_up]
    if arm.startswith(TCP):
        return [sys.executable, TCP_PEER, "--congestion", arm.removeprefix(TCP),
                *window], os.environ
    environment = {**CALM, **os.environ, "PACECAR_NICS": f"soft:udp:{star.INTERFACE}",
                   "PACECAR_CC": arm}
    environment.pop("PACECAR_LINE_RATE", None)
    if plan.told_bps:
        environment["PACECAR_LINE_RATE"] = str(plan.told_bps)
    if plan.share:
        environment["PACECAR_SHARE"] = plan.share
    return [plan.incast_peer, *window, "--size", plan.message_bytes, "--in-flight",
            plan.in_flight], environment


class Changes:
    """Sets the link's rates in turn, each for an equal part of the window; at the end the first."""

    def __init__(self, made, plan, begin_s):
        self._made, self._plan = made, plan
        self._part_s = plan.seconds / len(plan.rates)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rates = [(begin_s, plan.rates[0])]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()
        self._made.set_rate(self._plan.rates[0])

    def _run(self):
        begin_s, _ = self.rates[0]
        for number, bps in enumerate(self._plan.rates[1:], 1):
            if self._stop.wait(begin_s + number * self._part_s - time.monotonic()):
                return
            self._made.set_rate(bps)
            self.rates.append((time.monotonic(), bps))


def finish(process, seconds):
    if not process.ends_well(seconds + SET_UP_LIMIT_S):
        raise Failed(process.complaint())
    return json.loads(process.output())


def wait_for(file, *processes):
    """Waits for the file. Fails when one of the processes has ended, or after START_LIMIT_S."""
    deadline = time.monotonic() + START_LIMIT_S
    while not file.exists():
        ended = [one for one in processes if one.ended()]
        if ended or time.monotonic() > deadline:
            raise Failed((ended or processes)[0].complaint())
        time.sleep(0.01)


class ProcessorTime:
    """Since it was made: the idle share of all processors, and the time of ended children."""

    def __init__(self):
        self._began_s = time.monotonic()
        self._children_s = self._of_children()
        self._idle, self._total = self._of_machine()

    @staticmethod
    def _of_children():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    @staticmethod
    def _of_machine():
        fields = pathlib.Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
        ticks = list(map(int, fields))
        return ticks[3] + ticks[4], sum(ticks)  # idle and iowait; all

    def figures(self):
        idle, total = self._of_machine()
        wall_s = time.monotonic() - self._began_s
        return {"processors_idle": (idle - self._idle) / max(total - self._total, 1),
                "processors_used": (self._of_children() - self._children_s) / wall_s}
