#!/usr/bin/env python3
"""quickstart_table.py FOLDER: the figures of a quickstart run as a short table."""

import json
import pathlib
import sys

WHAT_NEXT = """\
What next
  build/release/bench/pacecar info -c      the NICs, and every parameter with its value
  build/release/bench/pacecar bw --help    the flags of perftest; start the server, then the
                                                   client with the server's name on another host
  PACECAR_FAULT=loss=0.01 deploy/quickstart        the same with one packet in a hundred lost
  NCCL_NET_PLUGIN=pacecar                          in an NCCL job, with build/release/net_plugin
                                                   in LD_LIBRARY_PATH"""


def rows(folder):
    """(what, figure) for each line of the table."""
    if (folder / "nccl.json").exists():
        yield all_reduce(json.loads((folder / "nccl.json").read_text()))
    bandwidth = json.loads((folder / "bw.json").read_text())["results"]
    latency = json.loads((folder / "lat.json").read_text())["results"]
    sender, receiver = bandwidth["client"], bandwidth["server"]
    control = sender["congestion_control"]
    counters = sender["counters"]
    yield "bandwidth, 1 MiB messages", f"{bandwidth['BW_average']:.2f} Gb/s"
    yield ("latency, 8 bytes, half round trip",
           f"{latency['t_typical']:.1f} us, 99%: {latency['percentile_99']:.1f} us")
    yield f"rate decided by {control['name']}", f"{control['rate_bps'] / 1e9:.2f} Gb/s"
    yield ("retransmitted packets",
           f"{counters['packets_retransmitted']} of {counters['packets_sent']}")
    yield ("CPU seconds per GB",
           f"{sender['cpu_s_per_gb']:.2f} sending, {receiver['cpu_s_per_gb']:.2f} receiving")


def all_reduce(measured):
    run, = measured["runs"]
    return (f"NCCL {measured['versions']['nccl']}, {run['ranks']} processes, no GPU, all-reduce",
            f"{sum(row['wrong'] for row in run['rows'])} wrong")


def main(arguments):
    for what, figure in rows(pathlib.Path(arguments[0])):
        print(f"  {what:<50} {figure}")
    print(f"\n{WHAT_NEXT}")


if __name__ == "__main__":
    main(sys.argv[1:])
