"""One run of an arm: runs senders and receivers, and samples queue, arrivals and processor time.

A group is the processes of one algorithm: its senders, and one receiver for all of them or one for
each. The arm is one group; with --beside there is a second one. All receivers start at the same
time, which is written to a file when every sender has connected. The warm-up comes first, then the
window.
"""

import contextlib
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

import incast_figures
import namespaces
import star
from exchange import END_LIMIT_S, SET_UP_LIMIT_S, Failed, started, write_whole

TCP = "tcp:"
IDLE_S = 1  # the probes run alone before the senders start
SOON_S = 0.02  # from writing the start time until it comes, so that every receiver reads it before
INCAST, PAIRS, FAN_IN = "incast", "pairs", "fan-in"
TCP_PEER = pathlib.Path(__file__).with_name("tcp_peer.py")
# Many processes share few processors: each must sleep when it has nothing to do.
CALM = {"PACECAR_PROGRESS": "thread", "PACECAR_SPIN": "0s"}


def run(arm, options, made):
    """Figures of one run. `options`: of incast_options."""
    probe = [options.queue_probe, "--from", made.prober, "--to", made.receiver, "--shaped",
             star.RECEIVER, "--plain", star.PLAIN_RECEIVER, "--rate", options.probe_rate]
    with contextlib.ExitStack() as stack:
        probing = started(stack, (), probe, os.environ)
        backlog = stack.enter_context(made.queue_sampler())
        before_s = time.monotonic()
        time.sleep(IDLE_S)
        before = times()
        traffic = send_all(arm, options, made)
        wall_s, children_s, idle_ticks, all_ticks = (
            late - early for early, late in zip(before, times()))
        probing.stop()
        try:
            probes = json.loads(probing.output())
        except ValueError as error:
            raise Failed(probing.complaint()) from error
    idle = [one for one in probes if before_s < one[0] < before_s + IDLE_S]
    by_probes = incast_figures.queue_of_probes(probes, idle, traffic, made.shape)
    judged = backlog.samples if made.knows_queue else by_probes
    return {**incast_figures.throughput(traffic, options, made.shape),
            **incast_figures.delays(probes, idle, traffic),
            **incast_figures.queue(judged, traffic, "queue"),
            **incast_figures.queue(backlog.samples, traffic, "backlog"),
            **incast_figures.recovery(by_probes, traffic, made.shape),
            "drops": backlog.drops, "retransmitted": traffic.retransmitted,
            "senders": traffic.senders, "processors_idle": idle_ticks / max(all_ticks, 1),
            "processors_used": children_s / wall_s}


def send_all(arm, options, made):
    hosts = made.senders * options.senders if options.shape == PAIRS else made.senders
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        group = Group(arm, hosts, options.shape == INCAST, options, made, folder)
        groups = [group]
        if options.beside:
            groups.append(Group(options.beside, [made.neighbour], True, options, made, folder))
        for one in groups:
            one.start(stack)
        for one in groups:
            one.wait_until_joined()
        start_s = time.monotonic() + SOON_S
        begin_s = start_s + options.warm_up
        changes = arrivals = None
        if options.change:
            arrivals = stack.enter_context(star.ArrivalSampler(group.receivers[0].pid))
            changes = stack.enter_context(Changes(made, options, begin_s))
        write_whole(folder / "start", f"{start_s:.6f}")
        for one in groups:
            one.finish(options)
    if changes and len(changes.rates) < len(options.change):
        raise Failed("the link's rate could not be changed")
    result = group.results[0]
    payload, overhead = result["packet_payload_bytes"], result["packet_overhead_bytes"]
    return incast_figures.Traffic(
        start_s, begin_s, begin_s + options.seconds, group.gbps(), payload / (payload + overhead),
        sum(end["packets_retransmitted"] for end in group.ends), group.ends,
        sum(groups[1].gbps()) if options.beside else None,
        changes.rates if changes else [], arrivals.samples if arrivals else [])


class Group:
    """The processes of one algorithm, with a handle file for each receiver."""

    def __init__(self, arm, hosts, one_receiver, options, made, folder):
        self._hosts, self._made = hosts, made
        self._argv, self._environment = peer(arm, options)
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
            receiver.wait_for(handle.exists)
        self._senders = [process(host, "send", self._handles[number % len(self._handles)])
                         for number, host in enumerate(self._hosts)]

    def wait_until_joined(self):
        for handle, receiver in zip(self._handles, self.receivers):
            receiver.wait_for(handle.with_name(handle.name + ".joined").exists,
                              others=self._senders)

    def finish(self, options):
        length = options.seconds + options.warm_up
        self.ends = [finish(sender, length) for sender in self._senders]
        self.results = [finish(receiver, END_LIMIT_S) for receiver in self.receivers]

    def gbps(self):
        """Of each sender."""
        return [sender["gbps"] for result in self.results for sender in result["senders"]]


def peer(arm, options):
    """The command and the environment of an end."""
    window = ["--seconds", options.seconds, "--warm-up", options.warm_up]
    if arm.startswith(TCP):
        return [sys.executable, TCP_PEER, "--congestion", arm.removeprefix(TCP),
                *window], os.environ
    environment = {**CALM, **os.environ, "PACECAR_NICS": f"soft:udp:{star.INTERFACE}",
                   "PACECAR_CC": arm}
    environment.pop("PACECAR_LINE_RATE", None)
    if options.told_bps:
        environment["PACECAR_LINE_RATE"] = str(options.told_bps)
    if options.share:
        environment["PACECAR_SHARE"] = options.share
    return [options.incast_peer, *window, "--size", options.message, "--in-flight",
            options.in_flight], environment


class Changes(star.Background):
    """Sets the link's rates in turn, each for an equal part of the window; at the end the first."""

    def __init__(self, made, options, begin_s):
        super().__init__()
        self._made, self._options = made, options
        self.rates = [(begin_s, options.change[0])]

    def __exit__(self, *unused):
        super().__exit__()
        self._made.set_rate(self._options.change[0])

    def run(self):
        begin_s, _ = self.rates[0]
        part_s = self._options.seconds / len(self._options.change)
        for number, bps in enumerate(self._options.change[1:], 1):
            if self.stop.wait(begin_s + number * part_s - time.monotonic()):
                return
            self._made.set_rate(bps)
            self.rates.append((time.monotonic(), bps))


def finish(process, seconds):
    if not process.ends_well(seconds + SET_UP_LIMIT_S):
        raise Failed(process.complaint())
    return json.loads(process.output())


def times():
    """Seconds by the clock, and of ended children; ticks of all processors: idle, and all."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = list(map(int, pathlib.Path("/proc/stat").read_text("ascii").split()[1:9]))
    idle_and_iowait = ticks[3] + ticks[4]
    return time.monotonic(), used.ru_utime + used.ru_stime, idle_and_iowait, sum(ticks)
