"""One run of incast: runs senders and receivers, and samples queue, arrivals and processor time.

A group is the processes of one algorithm: its senders, and one receiver for all of them or one for
each. With --beside there is a second group. All receivers start at the same time, which is written
to a file when every sender has connected. The warm-up comes first, then the window.
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
ARRIVALS_INTERVAL_S = 0.01
INCAST, PAIRS, FAN_IN = "incast", "pairs", "fan-in"
TCP_PEER = pathlib.Path(__file__).with_name("tcp_peer.py")
# Many processes share few processors: each must sleep when it has nothing to do.
CALM = {"PACECAR_PROGRESS": "thread", "PACECAR_SPIN": "0s"}


def run(options, made):
    """The figures by name; None: not measured."""
    probe = [options.queue_probe, "--from", made.prober, "--to", made.receiver, "--shaped",
             made.address(0), "--plain", star.PLAIN_RECEIVER]
    with contextlib.ExitStack() as stack:
        probing = started(stack, (), probe, os.environ)
        queue = stack.enter_context(made.queue_sampler())
        before_s, used_s = time.monotonic(), children_s()
        time.sleep(IDLE_S)
        traffic = send_all(options, made)
        used = (children_s() - used_s) / (time.monotonic() - before_s - IDLE_S)
        probing.stop()
        try:
            probes = json.loads(probing.output())
        except ValueError as error:
            raise Failed(probing.complaint()) from error
    idle = [one for one in probes if before_s < one[0] < before_s + IDLE_S]
    by_probes = incast_figures.queue_of_probes(probes, idle, traffic, made.shape)
    return {**incast_figures.throughput(traffic, options.told_bps, made.shape),
            **incast_figures.delays(probes, idle, traffic),
            **incast_figures.queue(by_probes if queue.samples is None else queue.samples, traffic),
            **incast_figures.recovery(by_probes, traffic, made.shape),
            "drops": queue.drops, "retransmissions": traffic.retransmitted,
            "processors_used": used}


def send_all(options, made):
    hosts = made.senders * options.senders if options.shape == PAIRS else made.senders
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        group = Group(os.environ.get("PACECAR_CC", "pace"), hosts, options.shape == INCAST,
                      options, made, folder)
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
            arrivals = stack.enter_context(star.Sampler(
                ARRIVALS_INTERVAL_S, Arrivals(stack, group.receivers[0].pid).look))
            changes = stack.enter_context(Changes(made, options, begin_s))
        write_whole(folder / "start", f"{start_s:.6f}")
        for one in groups:
            one.finish(options)
    if changes and len(changes.rates) < len(options.change):
        raise Failed("the link's rate could not be changed")
    result = group.results[0]
    payload, overhead = result["packet_payload_bytes"], result["packet_overhead_bytes"]
    return incast_figures.Traffic(
        begin_s, begin_s + options.seconds, group.gbps(), payload / (payload + overhead),
        sum(end["packets_retransmitted"] for end in group.ends),
        sum(groups[1].gbps()) if options.beside else None,
        changes.rates if changes else [], arrivals.samples if arrivals else [])


class Group:
    """The processes of one algorithm, with a handle file for each receiver."""

    def __init__(self, algorithm, hosts, one_receiver, options, made, folder):
        self._hosts, self._made = hosts, made
        self._argv, self._environment = peer(algorithm, options, made)
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
        return [gbps for result in self.results for gbps in result["senders_gbps"]]


def peer(algorithm, options, made):
    """The command and the environment of an end."""
    window = ["--seconds", options.seconds, "--warm-up", options.warm_up]
    if algorithm.startswith(TCP):
        return [sys.executable, TCP_PEER, "--congestion", algorithm.removeprefix(TCP), "--address",
                made.address(0), *window], os.environ
    environment = {**CALM, **os.environ, "PACECAR_NICS": f"soft:udp:{made.interface}",
                   "PACECAR_CC": algorithm}
    environment.pop("PACECAR_LINE_RATE", None)
    if options.told_bps:
        environment["PACECAR_LINE_RATE"] = str(options.told_bps)
    return [options.incast_peer, *window], environment


class Changes(star.Background):
    """Sets the link's rates in turn, each for an equal part of the window."""

    def __init__(self, made, options, begin_s):
        super().__init__()
        self._made, self._options = made, options
        self.rates = [(begin_s, options.change[0])]

    def run(self):
        begin_s, _ = self.rates[0]
        part_s = self._options.seconds / len(self._options.change)
        for number, bps in enumerate(self._options.change[1:], 1):
            if self.stop.wait(begin_s + number * part_s - time.monotonic()):
                return
            self._made.set_rate(bps)
            self.rates.append((time.monotonic(), bps))


class Arrivals:
    """Bytes that the receiving host has received so far, as on the wire."""

    def __init__(self, stack, pid):
        """`pid`: a process of the receiving host; it may end meanwhile."""
        self._counters = stack.enter_context(open(f"/proc/{pid}/net/dev", encoding="ascii"))

    def look(self):
        self._counters.seek(0)
        prefix = f"{star.Star.interface}:"
        line = next(line for line in self._counters if line.strip().startswith(prefix))
        size, packets = map(int, line.split(":")[1].split()[:2])
        return size + packets * star.UNSEEN_OVERHEAD_BYTES


def finish(process, seconds):
    if not process.ends_well(seconds + SET_UP_LIMIT_S):
        raise Failed(process.complaint())
    return json.loads(process.output())


def children_s():
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
