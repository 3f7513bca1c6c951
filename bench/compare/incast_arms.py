"""One N-to-1 run of an arm: what each sender got, and how long probes waited in the queue.

A run has a warm-up and a window. Goodput is payload that arrived within the window; a delay is what
a probe took beyond the median of the idle path.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import resource
import statistics
import tempfile
import time

import star
from exchange import END_LIMIT_S, SET_UP_LIMIT_S, START_LIMIT_S, Failed, Process, uninterrupted

TCP = "tcp:"
IDLE_S = 1  # of probes alone, before the senders start
SETTLE_S = 0.2  # after the last program has started, and before the first stops
TCP_PORT = 5201
TCP_OVERHEAD_BYTES = 38 + 20 + 20 + 12  # Ethernet, IPv4, TCP, its time stamps
PROBE_BYTES = 38 + 20 + 8 + 8 + 10      # padded to the least Ethernet frame
# Each of many processes on few processors must sleep when it has nothing to do.
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
    line_rate_bps: int  # what Pacecar is told


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What the senders did. Times are CLOCK_MONOTONIC; counts are the transport's own."""
    start_s: float
    begin_s: float
    end_s: float
    gbps: list
    payload_share: float  # of the bytes on the link, when all packets are full
    retransmitted: int
    senders: list = dataclasses.field(default_factory=list)  # what each says of itself


def run(arm, plan, made):
    """Figures of one run."""
    probe = [plan.queue_probe, "--from", made.prober, "--to", made.receiver, "--shaped",
             star.RECEIVER, "--plain", star.PLAIN_RECEIVER, "--rate", plan.probe_rate]
    traffic_of = tcp if arm.startswith(TCP) else pacecar
    with Process((), probe, os.environ) as probing, made.queue_sampler() as queue:
        before_s = time.monotonic()
        time.sleep(IDLE_S)
        busy = ProcessorTime()
        traffic = traffic_of(arm.removeprefix(TCP), plan, made)
        processors = busy.figures()
        probing.stop()
        try:
            probes = json.loads(probing.output())
        except ValueError as error:
            raise Failed(probing.complaint()) from error
    idle = [one for one in probes if before_s < one[0] < before_s + IDLE_S]
    backlog = [size for at, size in queue.samples if traffic.begin_s <= at < traffic.end_s]
    return {**throughput(traffic, plan, made.shape), **delays(probes, idle, traffic),
            "backlog_max_bytes": max(backlog, default=None),
            "backlog_median_bytes": statistics.median(backlog) if backlog else None,
            "backlog_p99_bytes": percentile(backlog, 99) if backlog else None,
            "drops": queue.drops, "retransmitted": traffic.retransmitted,
            "senders": traffic.senders, **processors}


def throughput(traffic, plan, shape):
    rates = traffic.gbps
    probes_bps = plan.probe_rate * PROBE_BYTES * 8
    capacity = (shape.rate_bps - probes_bps) * traffic.payload_share * 1e-9
    squares = sum(rate * rate for rate in rates)
    return {"gbps": sum(rates), "per_sender_gbps": rates, "capacity_gbps": capacity,
            "link_share": sum(rates) / capacity,
            "jain": sum(rates) ** 2 / (len(rates) * squares) if squares else 0,
            "slowest_to_fastest": min(rates) / max(rates) if max(rates) else 0}


def delays(probes, idle, traffic):
    """Of what was sent within the window; `start_*` of what was sent in the warm-up before it."""
    window = [one for one in probes if traffic.begin_s <= one[0] < traffic.end_s]
    start = [one for one in probes if traffic.start_s <= one[0] < traffic.begin_s]
    shaped, plain = (base(idle, path) for path in (1, 2))
    waits, noise, first = arrived(window, 1), arrived(window, 2), arrived(start, 1)
    if not waits or not noise or not first:
        raise Failed("no probe came through the queue: raise --seconds or --probe-rate")
    return {"delay_p50_us": percentile(waits, 50) - shaped,
            "delay_p99_us": percentile(waits, 99) - shaped, "delay_max_us": max(waits) - shaped,
            "start_p99_us": percentile(first, 99) - shaped, "start_max_us": max(first) - shaped,
            "noise_p50_us": percentile(noise, 50) - plain,
            "noise_p99_us": percentile(noise, 99) - plain, "idle_path_us": shaped,
            "probes": len(window), "probes_lost": len(window) - len(waits)}


def base(idle, path):
    values = arrived(idle, path)
    if not values:
        raise Failed("no probe came over the idle path")
    return statistics.median(values)


def arrived(probes, path):
    return [one[path] for one in probes if one[path] >= 0]


def percentile(values, percent):
    """The least value that at least so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def finish(process, seconds):
    if not process.ends_well(seconds + SET_UP_LIMIT_S):
        raise Failed(process.complaint())
    return json.loads(process.output())


def tcp(algorithm, plan, made):
    seconds, warm_up = math.ceil(plan.seconds), math.ceil(plan.warm_up)  # iperf3 knows no others
    client = ["iperf3", "--client", star.RECEIVER, "--congestion", algorithm, "--time", seconds,
              "--omit", warm_up, "--json", "--port"]
    with contextlib.ExitStack() as stack:
        ports = range(TCP_PORT, TCP_PORT + len(made.senders))
        for port in ports:
            server = ["iperf3", "--server", "--one-off", "--port", port]
            process = Process(star.prefix(made.receiver), server, os.environ)
            stack.enter_context(process).wait_for_port(port)
        start_s = time.monotonic()
        clients = [stack.enter_context(Process(star.prefix(sender), [*client, port], os.environ))
                   for port, sender in zip(ports, made.senders)]
        begin_s = time.monotonic() + SETTLE_S + warm_up
        results = [finish(one, seconds + warm_up) for one in clients]
    for result in results:
        if "error" in result:  # its exit code is 0 all the same
            raise Failed(f"iperf3 says '{result['error']}'")
    ends = [result["end"] for result in results]
    payload = made.shape.mtu_bytes + 38 - TCP_OVERHEAD_BYTES
    return Traffic(start_s, begin_s, start_s + warm_up + seconds - SETTLE_S,
                   [end["sum_received"]["bits_per_second"] * 1e-9 for end in ends],
                   payload / (payload + TCP_OVERHEAD_BYTES),
                   sum(end["sum_sent"]["retransmits"] for end in ends))


def pacecar(algorithm, plan, made):
    environment = {**CALM, **os.environ, "PACECAR_NICS": f"soft:udp:{star.INTERFACE}",
                   "PACECAR_CC": algorithm, "PACECAR_LINE_RATE": str(plan.line_rate_bps)}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        handle = pathlib.Path(folder, "handle")
        common = ["--handle-file", handle, "--size", plan.message_bytes, "--in-flight",
                  plan.in_flight, "--seconds", plan.seconds, "--warm-up", plan.warm_up]

        def peer(namespace, *role):
            argv = [plan.incast_peer, *role, *common]
            with uninterrupted():
                return stack.enter_context(Process(star.prefix(namespace), argv, environment))

        receiver = peer(made.receiver, "receive", "--senders", len(made.senders))
        wait_for(handle, receiver)
        senders = [peer(sender, "send") for sender in made.senders]
        length = plan.seconds + plan.warm_up
        ends = [finish(sender, length) for sender in senders]
        result = finish(receiver, END_LIMIT_S)
    payload, overhead = result["packet_payload_bytes"], result["packet_overhead_bytes"]
    return Traffic(result["start_s"], result["begin_s"], result["end_s"],
                   [sender["gbps"] for sender in result["senders"]],
                   payload / (payload + overhead),
                   sum(end["packets_retransmitted"] for end in ends), ends)


def wait_for(file, process):
    deadline = time.monotonic() + START_LIMIT_S
    while not file.exists():
        if process.ended() or time.monotonic() > deadline:
            raise Failed(process.complaint())
        time.sleep(0.01)


class ProcessorTime:
    """What all processors did since this was made, and what the children that ended since used."""

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
        return ticks[3] + ticks[4], sum(ticks)  # idle and waiting for disks; all

    def figures(self):
        idle, total = self._of_machine()
        wall_s = time.monotonic() - self._began_s
        return {"processors_idle": (idle - self._idle) / max(total - self._total, 1),
                "processors_used": (self._of_children() - self._children_s) / wall_s}
