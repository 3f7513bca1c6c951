"""Computes the figures of one run: goodput, shares, queue, recovery. Pure functions.

Goodput is payload that arrived within the window. A queue's delay is the time in which the link
carries it.
"""

import bisect
import dataclasses
import math

REACHED = 0.9           # the share of a new rate at which the senders have found it
SETTLE_SPAN_S = 0.03    # over which the rate behind the queue is computed
QUEUE_SPAN_S = 0.02     # the median of the samples in it decides whether the queue is back
LEAST_USUAL_PACKETS = 2  # the usual queue counts as at least that many packets


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What the senders did. Times are CLOCK_MONOTONIC; counts are the transport's own."""
    begin_s: float
    end_s: float
    gbps: list
    payload_share: float  # of the bytes on the link, when all packets are full
    retransmitted: int
    neighbour_gbps: float | None = None
    # For a link whose rate changes: [(seconds, bits/s from then on)], the first at begin_s.
    rates: list = dataclasses.field(default_factory=list)


def throughput(traffic, told_bps, shape):
    rates = traffic.gbps
    figures = {"gbps": sum(rates), "jain": jain(rates),
               "slowest_to_fastest": min(rates) / max(rates) if max(rates) else 0}
    if not shape.rate_bps:
        return figures

    capacity = mean_rate_bps(traffic, shape) * traffic.payload_share * 1e-9
    told = min(capacity, (told_bps or math.inf) * traffic.payload_share * 1e-9)
    total = sum(rates) + (traffic.neighbour_gbps or 0)
    figures.update({"link_share": total / capacity, "told_share": total / told})
    if traffic.neighbour_gbps is not None:
        fair = capacity * len(rates) / (len(rates) + 1)
        figures["fair_share"] = sum(rates) / fair
    return figures


def mean_rate_bps(traffic, shape):
    """The link's mean rate within the window."""
    if not traffic.rates:
        return shape.rate_bps
    ends = [*(at for at, _ in traffic.rates[1:]), traffic.end_s]
    bits = sum(bps * (end - at) for (at, bps), end in zip(traffic.rates, ends))
    return bits / (traffic.end_s - traffic.begin_s)


def jain(rates):
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 0


def queue(samples, begin_s, end_s, rate_bps=None):
    """Figures of the samples within the window. `rate_bps`: of the link; None: it varies."""
    within = [one for one in samples if begin_s <= one.at_s < end_s]
    if not within:
        return {}
    sizes = [one.bytes for one in within]
    figures = {"queue_p50_bytes": percentile(sizes, 50), "queue_p99_bytes": percentile(sizes, 99),
               "queue_max_bytes": max(sizes)}
    if rate_bps:
        figures |= {name.replace("queue", "delay").replace("bytes", "us"): size * 8e6 / rate_bps
                    for name, size in figures.items()}
    if within[0].drops is not None:
        figures["drops"] = samples[-1].drops - samples[0].drops
    return figures


def percentile(values, percent):
    """The least value that at least `percent` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def recovery(samples, traffic, shape):
    """Times in ms from each change of the rate, maximum over all changes: until packets leave the
    queue at the new rate (settle), and until the queue stays at its usual size (drain). An event
    that never happens counts as the whole time until the next change."""
    if not traffic.rates:
        return {}
    changes = traffic.rates[1:]
    ends = [at for at, _ in changes[1:]] + [traffic.end_s]
    before = [one.bytes for one in samples if traffic.begin_s <= one.at_s < changes[0][0]]
    usual = max(percentile(before, 50) if before else 0, LEAST_USUAL_PACKETS * shape.mtu_bytes)
    settled, drained = [], []
    for (begin, bps), end in zip(changes, ends):
        within = [one for one in samples if begin <= one.at_s < end]
        settled.append(settle_s(within, bps, begin, end))
        drained.append(drain_s(within, 2 * usual, begin))
    return {"settle_ms": max(settled) * 1e3, "drain_ms": max(drained) * 1e3}


def settle_s(samples, bps, begin_s, end_s):
    times = [one.at_s for one in samples]
    for one in samples:
        after = bisect.bisect_left(times, one.at_s + SETTLE_SPAN_S)
        if after == len(samples):
            break
        later = samples[after]
        sent = later.sent_bytes - one.sent_bytes
        if sent * 8 >= REACHED * bps * (later.at_s - one.at_s):
            return one.at_s - begin_s
    return end_s - begin_s


def drain_s(samples, limit_bytes, begin_s):
    """Until the last span of samples whose median is above the limit; 0: there is none."""
    times = [one.at_s for one in samples]
    for first, at in reversed(list(enumerate(times))):
        after = bisect.bisect_left(times, at + QUEUE_SPAN_S)
        if percentile([one.bytes for one in samples[first:after]], 50) > limit_bytes:
            return times[after - 1] - begin_s
    return 0
