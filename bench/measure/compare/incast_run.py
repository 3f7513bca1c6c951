"""One run of incast: runs senders and receivers, and samples queue and processor time.

A group is the processes of one algorithm: its senders, and one receiver for all of them or one for
each. With --beside there is a second group. All groups start at the same time, when every sender of
Pacecar has connected; for its receivers that time is written to a file. The warm-up comes first,
then the window.
"""

import contextlib
import json
import math
import os
import pathlib
import resource
import tempfile
import time

import incast_figures
import namespaces
from exchange import (END_LIMIT_S, SET_UP_LIMIT_S, Failed, parse_iperf3, started,
                      write_whole)
from queues import Background

TCP = "tcp:"
TCP_PORT = 5201  # of the first pair of iperf3
TCP_OVERHEAD_BYTES = 38 + 20 + 20 + 12  # Ethernet, IPv4, TCP, its time stamps
TCP_INTERVAL_S = 0.1  # the least that iperf3 takes
MARGIN_S = 0.3  # how long senders continue after the window, so that none stops within it
SOON_S = 0.02  # from writing the start time until it comes, so that every receiver reads it before
MOST_SENDERS = 64
INCAST, PAIRS, FAN_IN = "incast", "pairs", "fan-in"
# Many processes share few processors: each must sleep when it has nothing to do.
CALM = {"PACECAR_PROGRESS": "thread", "PACECAR_EXPERT_SPIN": "0s"}


def run(options, made):
    """The figures by name."""
    before_s, used_s = time.monotonic(), children_s()
    with made.watched_queue() as queue:
        traffic = send_all(options, made)
        processors = (children_s() - used_s) / (time.monotonic() - before_s)
    one_rate = None if traffic.rates else made.shape.rate_bps
    return {**incast_figures.throughput(traffic, options.told_bps, made.shape),
            **incast_figures.queue(queue.samples, traffic.begin_s, traffic.end_s, one_rate),
            **incast_figures.recovery(queue.samples, traffic, made.shape),
            "retransmissions": traffic.retransmitted, "processors_used": processors}


def send_all(options, made):
    hosts = made.senders * options.senders if options.shape == PAIRS else made.senders
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        group = group_of(os.environ.get("PACECAR_CC", "pace"), hosts, options.shape == INCAST,
                         options, made, folder)
        groups = [group]
        if options.beside:
            groups.append(group_of(options.beside, [made.neighbour], True, options, made, folder))
        for one in groups:
            one.connect(stack)
        start_s = time.monotonic() + SOON_S
        begin_s = start_s + options.warm_up
        changes = None
        if options.change:
            changes = stack.enter_context(Changes(made, options, begin_s))
        write_whole(folder / "start", f"{start_s:.6f}")
        for one in groups:
            one.start(stack)
        for one in groups:
            one.finish()
    if changes and len(changes.rates) < len(options.change):
        raise Failed("the link's rate could not be changed")
    return incast_figures.Traffic(
        begin_s, begin_s + options.seconds, group.gbps,
        group.payload_bytes / (group.payload_bytes + group.overhead_bytes), group.retransmitted,
        sum(groups[1].gbps) if options.beside else None, changes.rates if changes else [])


def group_of(algorithm, *arguments):
    if algorithm.startswith(TCP):
        return TcpGroup(algorithm.removeprefix(TCP), *arguments)
    return PacecarGroup(algorithm, *arguments)


class Group:
    """The processes of one algorithm. Has after finish(): gbps (of each sender), retransmitted,
    payload_bytes and overhead_bytes (of a full packet)."""

    def __init__(self, algorithm, hosts, one_receiver, options, made, folder):
        self.algorithm, self.hosts, self.one_receiver = algorithm, hosts, one_receiver
        self.options, self.made, self.folder = options, made, folder
        self.beside = hosts == [made.neighbour]
        self.senders, self.receivers = [], []

    def finish(self):
        length = self.options.seconds + self.options.warm_up
        sent = [self.result_of(sender, length) for sender in self.senders]
        self.evaluate(sent, [self.result_of(one, END_LIMIT_S) for one in self.receivers])

    def result_of(self, process, seconds):
        if not process.ends_well(seconds + SET_UP_LIMIT_S):
            raise Failed(process.complaint())
        return self.parse(process.output())


class PacecarGroup(Group):
    parse = staticmethod(json.loads)

    def connect(self, stack):
        name = "neighbour" if self.beside else "handle"
        count = 1 if self.one_receiver else len(self.hosts)
        handles = [self.folder / f"{name}{number}" for number in range(count)]

        def peer(namespace, role, handle, *flags):
            argv = [self.options.incast_peer, "--seconds", self.options.seconds, "--warm-up",
                    self.options.warm_up, role, "--handle-file", handle, *flags]
            return started(stack, namespaces.prefix(namespace), argv, self.environment())

        self.receivers = [peer(self.made.receiver, "receive", handle, "--senders",
                               len(self.hosts) // count, "--start-file", self.folder / "start")
                          for handle in handles]
        for handle, receiver in zip(handles, self.receivers):
            receiver.wait_for(handle.exists)
        self.senders = [peer(host, "send", handles[number % count])
                        for number, host in enumerate(self.hosts)]
        for handle, receiver in zip(handles, self.receivers):
            receiver.wait_for(handle.with_name(handle.name + ".joined").exists,
                              others=self.senders)

    def environment(self):
        environment = {**CALM, **os.environ, "PACECAR_NICS": f"soft:udp:{self.made.interface}",
                       "PACECAR_CC": self.algorithm}
        environment.pop("PACECAR_LINE_RATE", None)
        if self.options.told_bps:
            environment["PACECAR_LINE_RATE"] = str(self.options.told_bps)
        return environment

    def start(self, stack):
        """The receivers read the time from the file."""

    def evaluate(self, sent, received):
        self.gbps = [gbps for one in received for gbps in one["senders_gbps"]]
        self.retransmitted = sum(one["packets_retransmitted"] for one in sent)
        self.payload_bytes = received[0]["packet_payload_bytes"]
        self.overhead_bytes = received[0]["packet_overhead_bytes"]


class TcpGroup(Group):
    """iperf3, which has a receiving process for each sender."""

    parse = staticmethod(parse_iperf3)

    def connect(self, stack):
        self.receivers = [self.iperf3(stack, self.made.receiver, number, "--server", "--one-off")
                          for number in range(len(self.hosts))]
        for number, receiver in enumerate(self.receivers):
            receiver.wait_for_port(self.port(number))

    def start(self, stack):
        length = math.ceil(self.options.warm_up + self.options.seconds + MARGIN_S)
        self.senders = [self.iperf3(stack, host, number, "--client", self.made.address(0),
                                    "--congestion", self.algorithm, "--time", length)
                        for number, host in enumerate(self.hosts)]

    def iperf3(self, stack, namespace, number, *flags):
        argv = ["iperf3", "--json", "--interval", TCP_INTERVAL_S, "--port", self.port(number),
                *flags]
        return started(stack, namespaces.prefix(namespace), argv, os.environ)

    def port(self, number):
        return TCP_PORT + number + (MOST_SENDERS if self.beside else 0)

    def evaluate(self, sent, received):
        begin_s, end_s = self.options.warm_up, self.options.warm_up + self.options.seconds
        self.gbps = []
        for one in received:
            parts = [part["sum"] for part in one["intervals"]
                     if begin_s <= (part["sum"]["start"] + part["sum"]["end"]) / 2 < end_s]
            seconds = sum(part["seconds"] for part in parts)
            self.gbps.append(sum(part["bytes"] for part in parts) * 8e-9 / seconds)
        self.retransmitted = sum(one["end"]["sum_sent"]["retransmits"] for one in sent)
        self.payload_bytes = sent[0]["start"]["tcp_mss_default"]
        self.overhead_bytes = TCP_OVERHEAD_BYTES


class Changes(Background):
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


def children_s():
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
