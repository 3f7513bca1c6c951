#!/usr/bin/env python3
"""One machine's part of incast_verbs: rank 0 is the receiver behind the bottleneck, rank 1 has the
senders. They meet through files in the common folder."""

import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys

sys.dont_write_bytecode = True  # no __pycache__ among the sources

import star
from exchange import wait_until
from incast_figures import jain, percentile

RANK = int(os.environ["LAB_RANK"])
SHARE = pathlib.Path(os.environ["LAB_SHARE"])
MEET_LIMIT_S = 60
POLL_US = 2000  # an eighth of a message's time; waking is expensive in an emulated machine
RUN_LIMIT_S = 60
SAMPLE_INTERVAL_S = 0.004
QUEUE = "ifb0"

RTM_NEWQDISC, RTM_GETQDISC = 36, 38
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
NLMSG_DONE = 3
TCA_STATS2, TCA_STATS_QUEUE = 7, 3


def main():
    plan = json.loads((SHARE / "plan.json").read_text("utf-8"))
    if RANK == 0:
        make_bottleneck(plan)
    rounds = []
    for number in range(plan["rounds"]):
        rounds.append({})
        for arm in plan["arms"]:
            label = f"{number}.{arm}"
            meet(label)
            if RANK == 1:
                send(plan, arm, label)
                continue
            rounds[-1][arm] = receive(plan, arm, label)
            print(f"round {number + 1}, {arm}: {json.dumps(rounds[-1][arm])}", flush=True)
    if RANK == 0:
        (SHARE / "results.json").write_text(json.dumps(rounds), "utf-8")


def make_bottleneck(plan):
    """Redirects what eth0 receives through the queue of an ifb interface."""
    for command in [f"ip link add {QUEUE} type ifb", f"ip link set {QUEUE} up",
                    "tc qdisc add dev eth0 handle ffff: ingress",
                    "tc filter add dev eth0 parent ffff: protocol all matchall action mirred "
                    f"egress redirect dev {QUEUE}",
                    f"tc qdisc add dev {QUEUE} root netem rate {plan['rate_mbps']}mbit "
                    f"limit {plan['queue_packets']}"]:
        subprocess.run(command.split(), check=True)


def meet(label):
    (SHARE / f"at.{label}.{RANK}").touch()
    wait_for(f"at.{label}.{1 - RANK}", f"the other machine does not reach {label}")


def wait_for(name, trouble):
    if not wait_until((SHARE / name).exists, MEET_LIMIT_S, pause_s=0.05):
        sys.exit(f"rank {RANK}: {trouble}")


def peer(plan, arm, label, *role):
    environment = {**os.environ, "PACECAR_NICS": "rxe0", "PACECAR_CC": arm,
                   "PACECAR_PROGRESS": "thread", "PACECAR_SPIN": "0s",
                   "PACECAR_LINE_RATE": f"{plan['rate_mbps']}M"}
    command = [plan["incast_peer"], *role, "--handle-file", SHARE / f"handle.{label}", "--size",
               plan["message"], "--in-flight", plan["in_flight"], "--seconds", plan["seconds"],
               "--warm-up", plan["warm_up"], "--poll", POLL_US]
    return subprocess.Popen(list(map(str, command)), env=environment, text=True,
                            stdout=subprocess.PIPE)


def finish(process):
    output, _ = process.communicate(timeout=RUN_LIMIT_S)
    if process.returncode != 0:
        sys.exit(f"rank {RANK}: incast_peer failed")
    return json.loads(output)


def send(plan, arm, label):
    wait_for(f"handle.{label}", "the receiver does not start")
    for process in [peer(plan, arm, label, "send") for _ in range(plan["senders"])]:
        finish(process)


def receive(plan, arm, label):
    with star.QueueSampler(SAMPLE_INTERVAL_S, NetlinkQueue().look) as sampler:
        result = finish(peer(plan, arm, label, "receive", "--senders", plan["senders"]))
    rates = [sender["gbps"] for sender in result["senders"]]
    waits = [backlog * 8 / plan["rate_mbps"] for at, backlog in sampler.samples
             if result["begin_s"] <= at < result["end_s"]]
    return {"gbps": sum(rates), "per_sender_gbps": rates,
            "link_share": sum(rates) * 1e3 / plan["rate_mbps"],
            "jain": jain(rates),
            "delay_p50_us": statistics.median(waits), "delay_p99_us": percentile(waits, 99),
            "delay_max_us": max(waits), "samples": len(waits), "drops": sampler.drops}


class NetlinkQueue:
    """The bottleneck's queue, read by netlink."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._index = socket.if_nametoindex(QUEUE)

    def look(self):
        """Bytes in the queue, and packets dropped so far."""
        tcmsg = struct.pack("=BxxxiIII", socket.AF_UNSPEC, self._index, 0, 0, 0)
        header = struct.pack("=IHHII", 16 + len(tcmsg), RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP,
                             1, 0)
        self._socket.send(header + tcmsg)
        found = (0, 0)
        while True:
            data = self._socket.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == NLMSG_DONE:
                    return found
                if kind == RTM_NEWQDISC and struct.unpack_from("=i", data, 20)[0] == self._index:
                    found = queue_statistics(data[36:length]) or found
                data = data[(length + 3) & ~3:]


def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3:]


def queue_statistics(data):
    for kind, value in attributes(data):
        for inner, body in attributes(value) if kind == TCA_STATS2 else ():
            if inner == TCA_STATS_QUEUE:
                _qlen, backlog, drops = struct.unpack_from("=III", body)
                return backlog, drops
    return None


if __name__ == "__main__":
    main()
