"""The programs that run on a link, and the figures from their output.

The figures of all programs mean the same: `gbps` is 1e9 bit/s of payload that arrived; `cpu_*` are
seconds of processor time per 1e9 bytes; `rtt_*_us` are whole round trips of 8 bytes, also where a
program prints half of one.
"""

import json
import math
import shutil
import socket
import types

from exchange import Failed, exchange, free_port

MESSAGE_BYTES = 1 << 20
IN_FLIGHT = 8
PING_BYTES = 8
PING_PONGS_PER_S = 1000  # fi_pingpong takes a count, not a time


def figures(run, tools, link, seconds):
    """Those of a probe's function."""
    try:
        return run(tools, link, seconds)
    except (ValueError, LookupError, ZeroDivisionError) as error:
        raise Failed(f"its output lacks an expected value ({error!r})") from error


def find_tools(build):
    """(tools, paths of missing own programs, sentences about missing peers).

    Tools are paths; None: a program of others that is not installed.
    """
    own = {"plugin": build / "net_plugin/libnccl-net-pacecar.so",
           "plugin_bench": build / "bench/nccl/plugin_bench",
           "pacecar": build / "bench/pacecar",
           "udp_limit": build / "bench/measure/compare/udp_limit"}
    peers = {"iperf3": "iperf3", "fi_pingpong": "libfabric-bin"}
    found = {name: shutil.which(name) for name in peers}
    notes = [f"{name} is not installed (package {package}): its figures and the ratios to them "
             "are left out" for name, package in peers.items() if not found[name]]
    missing = [str(path) for path in own.values() if not path.is_file()]
    return types.SimpleNamespace(**own, **found), missing, notes


def probes(tools):
    """(row of the table, test, function) each, in the order of a round."""
    every = [("plugin", "stream", plugin_stream), ("iperf3", "stream", iperf3_stream),
             ("udp_limit", "stream", udp_stream), ("pacecar", "stream", pacecar_bw),
             ("plugin", "ping-pong", plugin_ping_pong), ("pacecar", "ping-pong", pacecar_lat),
             ("udp_limit", "ping-pong", udp_ping_pong), ("fi_pingpong", "ping-pong", fi_ping_pong)]
    return [probe for probe in every if getattr(tools, probe[0])]


def stream(gbps, sender, receiver):
    return {"gbps": gbps, "cpu_sender": sender, "cpu_receiver": receiver,
            "cpu_total": sender + receiver}


def plugin_bench(tools, link, seconds, *flags):
    port = free_port()
    program = [tools.plugin_bench, tools.plugin]
    place = f"{link.address}:{port}"
    client = [*program, "--connect", place, "--seconds", seconds, "--json"]
    return json.loads(exchange(link, [*program, "--listen", place], [*client, *flags], seconds,
                               port))


def plugin_stream(tools, link, seconds):
    result = plugin_bench(tools, link, seconds, "--size", MESSAGE_BYTES, "--in-flight", IN_FLIGHT)
    return stream(result["gbps"], result["sender_cpu_s_per_gb"], result["receiver_cpu_s_per_gb"])


def plugin_ping_pong(tools, link, seconds):
    half = plugin_bench(tools, link, seconds, "--latency")
    return {"rtt_median_us": 2 * half["p50_us"], "rtt_p99_us": 2 * half["p99_us"]}


def pacecar(tools, link, seconds, test, *flags):
    port = free_port()
    common = [tools.pacecar, test, "--quiet", "-p", port]
    client = [*common, "-D", seconds, "--out_json_file", "-", *flags, link.address]
    return json.loads(exchange(link, common, client, seconds, port))["results"]


def pacecar_bw(tools, link, seconds):
    result = pacecar(tools, link, seconds, "bw", "-s", MESSAGE_BYTES, "-t", IN_FLIGHT,
                     "--report_gbits")
    return stream(result["BW_average"], result["client"]["cpu_s_per_gb"],
                  result["server"]["cpu_s_per_gb"])


def pacecar_lat(tools, link, seconds):
    half = pacecar(tools, link, seconds, "lat", "-s", PING_BYTES)
    return {"rtt_median_us": 2 * half["t_typical"], "rtt_p99_us": 2 * half["percentile_99"]}


def iperf3_stream(tools, link, seconds):
    port = free_port()
    whole_seconds = math.ceil(seconds)  # iperf3 takes no fractions
    server = [tools.iperf3, "--server", "--one-off", "--bind", link.address, "--port", port]
    client = [tools.iperf3, "--client", link.address, "--port", port, "--time", whole_seconds,
              "--json"]
    result = json.loads(exchange(link, server, client, whole_seconds, port))
    if "error" in result:  # its exit code is 0
        raise Failed(f"iperf3 reports '{result['error']}'")
    end = result["end"]
    busy, sent, received = end["cpu_utilization_percent"], end["sum_sent"], end["sum_received"]

    def cpu_per_gb(percent, side):
        return percent / 100 * side["seconds"] / (side["bytes"] * 1e-9)

    return stream(received["bits_per_second"] * 1e-9, cpu_per_gb(busy["host_total"], sent),
                  cpu_per_gb(busy["remote_total"], received))


def udp_limit(tools, link, seconds, mode):
    common = [tools.udp_limit, mode, "--address", link.address, "--port",
              free_port(socket.SOCK_DGRAM)]
    client = [*common, "--connect", "--seconds", seconds]
    return json.loads(exchange(link, [*common, "--server"], client, seconds))


def udp_stream(tools, link, seconds):
    result = udp_limit(tools, link, seconds, "stream")
    return {**stream(result["gbps"], result["cpu_s_per_gb_sender"],
                     result["cpu_s_per_gb_receiver"]), "lost_share": result["lost_share"]}


def udp_ping_pong(tools, link, seconds):
    result = udp_limit(tools, link, seconds, "pingpong")
    return {"rtt_median_us": result["rtt_us_median"], "rtt_p99_us": result["rtt_us_p99"]}


def fi_ping_pong(tools, link, seconds):
    port = free_port()
    count = max(1, round(PING_PONGS_PER_S * seconds))
    common = [tools.fi_pingpong, "-p", "tcp", "-e", "rdm", "-S", PING_BYTES, "-I", count]
    output = exchange(link, [*common, "-B", port], [*common, "-P", port, link.address], seconds,
                      port)
    return {"rtt_mean_us": 2 * fi_half_round_trip(output)}


def fi_half_round_trip(output):
    """The mean microseconds of one transfer, which is one direction, from fi_pingpong's table."""
    heading, values = [line.split() for line in output.splitlines() if line.strip()][-2:]
    return float(values[heading.index("usec/xfer")])
