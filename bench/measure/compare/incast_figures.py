"""Computes the figures of one run: goodput, shares, queue, recovery. Pure functions.

Goodput is payload that arrived within the window. A delay is the time of a probe less the median on
the idle path. The queue in bytes is what the bottleneck carries in that time.
"""

import bisect
import dataclasses
import math
import statistics

from exchange import Failed

PROBE_RATE = 500        # a second, of queue_probe
PROBE_BYTES = 38 + 20 + 8 + 8 + 10  # padded to the least Ethernet frame
REACHED = 0.9           # the share of a new rate at which the senders have found it
STEPS = 3               # sampling intervals over which the arrival rate is computed
QUEUE_SPAN_S = 0.02     # the median of the probes in it decides whether the queue is back
LEAST_USUAL_PACKETS = 2  # the usual queue counts as at least so many


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What the senders did. Times are CLOCK_MONOTONIC; counts are the transport's own."""
    begin_s: float
    end_s: float
    gbps: list
    payload_share: float  # of the bytes on the link, when all packets are full
    retransmitted: int
    neighbour_gbps: float | None = None
    # Of a link whose rate changes: [(seconds, bits/s from then on)], the first at begin_s.
    rates: list = dataclasses.field(default_factory=list)
    arrivals: list = dataclasses.field(default_factory=list)  # (seconds, bytes on the cable so far)


def mean_rate_bps(traffic, shape):
    """The link's mean rate within the window; 0: no limit."""
    if not traffic.rates:
        return shape.rate_bps
    carried = carried_bytes(traffic.rates, traffic.begin_s, traffic.end_s)
    return carried * 8 / (traffic.end_s - traffic.begin_s)


def throughput(traffic, told_bps, shape):
    rates = traffic.gbps
    figures = {"gbps": sum(rates), "jain": jain(rates),
               "slowest_to_fastest": min(rates) / max(rates) if max(rates) else 0}
    if not shape.rate_bps:
        return figures

    probes_bps = PROBE_RATE * PROBE_BYTES * 8
    capacity = (mean_rate_bps(traffic, shape) - probes_bps) * traffic.payload_share * 1e-9
    told = min(capacity, (told_bps or math.inf) * traffic.payload_share * 1e-9)
    total = sum(rates) + (traffic.neighbour_gbps or 0)
    figures.update({"link_share": total / capacity, "told_share": total / told})
    if traffic.neighbour_gbps is not None:
        fair = capacity * len(rates) / (len(rates) + 1)
        figures["fair_share"] = sum(rates) / fair
    return figures


def jain(rates):
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 0


def delays(probes, idle, traffic):
    """Of the probes sent within the window."""
    window = [one for one in probes if traffic.begin_s <= one[0] < traffic.end_s]
    waits, noise = (arrived(window, path) for path in (1, 2))
    if not waits or not noise:
        raise Failed("no probe came through the queue: raise --seconds")
    shaped, plain = (base(idle, path) for path in (1, 2))
    return {"delay_p50_us": percentile(waits, 50) - shaped,
            "delay_p99_us": percentile(waits, 99) - shaped, "delay_max_us": max(waits) - shaped,
            "noise_p99_us": percentile(noise, 99) - plain}


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


def queue_of_probes(probes, idle, traffic, shape):
    """(seconds, bytes) of each probe: what the link carries while it waits."""
    shaped = base(idle, 1)
    carried_bps = shape.rate_bps or sum(traffic.gbps) * 1e9 / traffic.payload_share
    rates = traffic.rates or [(0, carried_bps)]
    return [(at, carried_bytes(rates, at, at + max(0, wait - shaped) * 1e-6))
            for at, wait, _ in probes if wait >= 0]


def carried_bytes(rates, begin_s, end_s):
    """What a link of these rates carries; the first rate holds before its time, too."""
    begins = [-math.inf, *(at for at, _ in rates[1:])]
    spans = zip(rates, begins, [*begins[1:], math.inf])
    return sum(bps / 8 * max(0, min(end, end_s) - max(begin, begin_s))
               for (_, bps), begin, end in spans)


def queue(samples, traffic):
    """Percentiles of (seconds, bytes) within the window."""
    sizes = [size for at, size in samples if traffic.begin_s <= at < traffic.end_s]
    return {"queue_p50_bytes": percentile(sizes, 50) if sizes else None,
            "queue_p99_bytes": percentile(sizes, 99) if sizes else None,
            "queue_max_bytes": max(sizes, default=None)}


def recovery(samples, traffic, shape):
    """Times from each change of the rate, in ms, and the longest of all changes: until the arrival
    rate is the new one (settle), and until the queue of `samples` is back for good (drain). What
    never happens counts as the whole time until the next change."""
    if not traffic.rates:
        return {}
    changes = traffic.rates[1:]
    ends = [at for at, _ in changes[1:]] + [traffic.end_s]
    before = [size for at, size in samples if traffic.begin_s <= at < changes[0][0]]
    usual = max(percentile(before, 50) if before else 0, LEAST_USUAL_PACKETS * shape.mtu_bytes)
    settled = [settle_s(traffic.arrivals, bps, at, end) for (at, bps), end in zip(changes, ends)]
    drained = [drain_s(samples, 2 * usual, at, end) for (at, _), end in zip(changes, ends)]
    return {"settle_ms": max(settled) * 1e3, "drain_ms": max(drained) * 1e3}


def settle_s(arrivals, bps, begin_s, end_s):
    within = [one for one in arrivals if begin_s <= one[0] < end_s]
    for (at, size), (later, later_size) in zip(within, within[STEPS:]):
        if (later_size - size) * 8 >= REACHED * bps * (later - at):
            return at - begin_s
    return end_s - begin_s


def drain_s(samples, limit_bytes, begin_s, end_s):
    """Until the last span of probes whose median is above the limit; 0: there is none."""
    within = [one for one in samples if begin_s <= one[0] < end_s]
    times = [at for at, _ in within]
    for first, at in reversed(list(enumerate(times))):
        after = bisect.bisect_left(times, at + QUEUE_SPAN_S)
        if percentile([size for _, size in within[first:after]], 50) > limit_bytes:
            return times[after - 1] - begin_s
    return 0
