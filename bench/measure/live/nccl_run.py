"""One run of NCCL through limited links: starts jobs and neighbours, samples queues, and asks the
ranks what limited their flows."""

import contextlib
import json
import math
import os
import pathlib
import signal
import socket
import statistics
import sys
import tempfile
import time

import arms
import figures
import incast_figures
import job
import namespaces
from exchange import Failed, started, wait_until
from queues import Background

BUS_FACTOR = {**{name: factor for name, (factor, *_) in figures.OPERATIONS.items()},
              "incast": lambda ranks: (ranks - 1) / ranks}
OPERATIONS = ["allreduce", "alltoall", "sendrecv", "incast"]
PER_PEER = ["alltoall", "incast"]  # whose buffer is that of all peers
LINE_RATES = {"right": 1, "ten": 10, "none": None}  # times the real one
WARM_UP_SHARE = 0.2   # of the measured time
ASK_INTERVAL_S = 0.4
SET_UP_LIMIT_S = 60
BESIDE_PORT = 5201


def run(options, made):
    """The figures by name."""
    for number, host in enumerate(made.members):
        set_tcp(host, made, number, options.arm.partition(":")[2] or "cubic")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        beside = Beside(stack, options, made) if options.beside else None
        for _ in range(options.busy):
            started(stack, (), [sys.executable, "-c", "while True: pass"], os.environ)
        limits = stack.enter_context(Limits(folder))
        with made.watched_queue() as queue:
            outputs = run_jobs(options, made, folder)
        neighbour = beside.intervals() if beside else []
    jobs = [figures.merge(outputs[first:first + options.ranks])[0]
            for first in range(0, len(outputs), options.ranks)]
    if any(one["wrong"] for one in jobs):
        raise Failed("NCCL's results are wrong: report this")
    begin_s = max(one["starts_s"][0] for one in jobs)
    end_s = min(one["starts_s"][-1] + one["times_s"][-1] for one in jobs)
    begin_s += WARM_UP_SHARE * (end_s - begin_s)
    found = {**speed(options, jobs, begin_s, end_s), **queues(queue.samples, begin_s, end_s),
             **limits.shares()}
    within = [part for at_s, part in neighbour if begin_s <= at_s < end_s]
    if within:
        beside_bps = 8 * sum(part["bytes"] for part in within) / sum(
            part["seconds"] for part in within)
        own_bps = found["busbw_mbytes"] * 8e6
        found["share"] = own_bps / (own_bps + beside_bps)
    return found


def set_tcp(host, made, number, algorithm):
    """By the route: a namespace may choose only those algorithms that the machine allows to all."""
    namespaces.command("ip", "-n", host, "route", "change", made.NETWORK, "dev", made.interface,
                       "src", made.address(number), "congctl", algorithm)


def run_jobs(options, made, folder):
    network, _, _ = options.arm.partition(":")
    arm = arms.parse("socket" if network == "socket" else f"soft:udp:{made.interface}")
    ranks = []
    for number in range(options.jobs):
        place = folder / f"job{number}"
        place.mkdir()
        for rank in range(options.ranks):
            log = place / f"nccl.{rank}.log"
            total = options.bytes * (options.ranks if options.op in PER_PEER else 1)
            argv = [options.collectives, options.nccl, rank, options.ranks, 0, place / "id",
                    options.op, f"{total}:1", 1, options.seconds, options.pause]
            environment = {**os.environ, **libraries(options),
                           **arms.environment(arm, rank, options.plugin, log, made.interface),
                           **settings(options, network, folder)}
            ranks.append(job.Rank(argv, environment, log, made.prefix(rank)))
    outputs = job.run(ranks, SET_UP_LIMIT_S + 4 * options.seconds)
    for rank in ranks:
        if why := arms.complaint(arm, job.nccl_log(rank)):
            raise Failed(why)
    return outputs


def libraries(options):
    return {"LD_LIBRARY_PATH": f"{options.cpu_device}:{pathlib.Path(options.nccl).parent}",
            # As with a GPU, waiting kernels take no processor time.
            "CPU_GPU_SPIN": "0",
            **({"LD_PRELOAD": str(options.preload)} if options.preload else {})}


def settings(options, algorithm, folder):
    if algorithm == "socket":
        return {}
    chosen = {"PACECAR_CC": algorithm, "PACECAR_STATE_DIR": str(folder / "state")}
    factor = LINE_RATES["right" if algorithm == "fixed" else options.line_rate]
    return chosen | ({"PACECAR_LINE_RATE": str(options.rate * factor)} if factor else {})


def speed(options, jobs, begin_s, end_s):
    """Bus bandwidth of all jobs, as nccl-tests define it, and times of the operations."""
    factor = BUS_FACTOR[options.op](options.ranks)
    bandwidths, times = [], []
    for one in jobs:
        within = [took for start, took in zip(one["starts_s"], one["times_s"])
                  if begin_s <= start and start + took <= end_s] or one["times_s"]
        bandwidths.append(one["size_bytes"] * factor / statistics.fmean(within))
        times += within
    return {"busbw_mbytes": sum(bandwidths) / 1e6, "link_share": sum(bandwidths) * 8 / options.rate,
            "slowest_to_fastest": min(bandwidths) / max(bandwidths),
            "op_p50_ms": incast_figures.percentile(times, 50) * 1e3,
            "op_p99_ms": incast_figures.percentile(times, 99) * 1e3, "operations": len(times),
            "cpu_s_per_gbyte": statistics.fmean(
                one["processor_s"] / (one["size_bytes"] * factor * options.ranks * 1e-9)
                for one in jobs)}


def queues(samples, begin_s, end_s):
    """Of the fullest port; drops of all ports together."""
    ports = [incast_figures.queue([one for one in samples if one.interface == port], begin_s, end_s)
             for port in {one.interface for one in samples}]
    names = {name for figure in ports for name in figure}
    return {name: (sum if name == "drops" else max)(figure.get(name, 0) for figure in ports)
            for name in names}


class Limits(Background):
    """Asks the ranks of Pacecar for their states; the last answer of each counts."""

    def __init__(self, folder):
        super().__init__()
        self._folder, self._states = folder / "state", {}

    def run(self):
        while not self.stop.wait(ASK_INTERVAL_S):
            for place in self._folder.glob("*.sock"):
                with contextlib.suppress(OSError, ValueError):  # it ends
                    self._states[place] = ask(place)

    def shares(self):
        """{"limited_by_grant": share of the sending flows' time, ...}"""
        counts = {}
        for state in self._states.values():
            for nic in state["nics"]:
                for flow in nic["flows"]:
                    for limit, count in flow.get("limits", {}).items():
                        counts[limit] = counts.get(limit, 0) + count
        total = sum(counts.values())
        return {f"limited_by_{limit}": count / total for limit, count in counts.items() if total}


def ask(place):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(str(place))
        client.sendall(b"GET /state\n")
        with client.makefile("rb") as answer:
            return json.loads(answer.read())


class Beside:
    """TCP streams of another host into host 0's port."""

    def __init__(self, stack, options, made):
        receiver = started(stack, made.prefix(0), ["iperf3", "--server", "--one-off"], os.environ)
        receiver.wait_for_port(BESIDE_PORT)
        self._begin_s = time.monotonic()
        length = math.ceil(SET_UP_LIMIT_S + options.seconds)
        self._sender = started(stack, namespaces.prefix(made.neighbour),
                               ["iperf3", "--json", "--client", made.address(0), "--congestion",
                                "cubic", "--parallel", options.beside, "--time", length,
                                "--interval", "0.1"], os.environ)

    def intervals(self):
        """[(time of its middle, iperf3's sum)], after it has been interrupted."""
        os.kill(self._sender.pid, signal.SIGINT)
        wait_until(self._sender.ended, SET_UP_LIMIT_S)
        parts = [part["sum"] for part in json.loads(self._sender.output())["intervals"]]
        return [(self._begin_s + (part["start"] + part["end"]) / 2, part) for part in parts]
