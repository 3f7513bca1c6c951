"""Medians, thresholds and the table of several rounds.

`rounds` is a list of {arm: figures of incast_arms.run}; an arm whose run failed is not there.
"""

import statistics

from report import aligned, spread, text_of

# (figure, heading, decimals, factor)
COLUMNS = [("gbps", "goodput Gb/s", 3, 1), ("link_share", "all goodput / link", 3, 1),
           ("told_share", "/ what was told", 3, 1), ("best_share", "/ best arm's", 3, 1),
           ("fair_share", "own / fair part", 3, 1), ("jain", "Jain", 4, 1),
           ("slowest_to_fastest", "slowest / fastest", 3, 1),
           ("queue_p50_bytes", "queue p50 KB", 1, 1e-3), ("queue_p99_bytes", "p99 KB", 1, 1e-3),
           ("queue_max_bytes", "max KB", 1, 1e-3),
           ("delay_p50_us", "queue p50 us", 0, 1), ("delay_p99_us", "p99 us", 0, 1),
           ("delay_max_us", "max us", 0, 1), ("start_max_us", "start max us", 0, 1),
           ("noise_p99_us", "noise p99 us", 0, 1),
           ("settle_ms", "rate found ms", 0, 1), ("drain_ms", "queue back ms", 0, 1),
           ("backlog_p50_bytes", "backlog p50 KB", 0, 1e-3),
           ("backlog_p99_bytes", "p99 KB", 0, 1e-3),
           ("backlog_max_bytes", "max KB", 0, 1e-3), ("drops", "drops", 0, 1),
           ("probes_lost", "probes lost", 0, 1), ("retransmitted", "sent again", 0, 1),
           ("processors_used", "processors used", 2, 1),
           ("processors_idle", "all idle", 2, 1)]
METRICS = ["gbps", "link_share", "told_share", "fair_share", "jain", "queue_p50_bytes",
           "queue_p99_bytes", "queue_max_bytes", "delay_p50_us", "delay_p99_us", "delay_max_us",
           "start_max_us", "settle_ms", "drain_ms", "drops", "probes_lost", "processors_used"]


def values_of(rounds, arm, figure):
    return [one[arm][figure] for one in rounds
            if arm in one and one[arm].get(figure) is not None]


def table(rounds, arms, columns=COLUMNS):
    """Lines: a column per arm; medians (min..max) over the rounds."""
    rows = [["", *(heading for _, heading, _, _ in columns)]]
    for arm in arms:
        row = [arm]
        for figure, _, decimals, factor in columns:
            values = [value * factor for value in values_of(rounds, arm, figure)]
            row.append(text_of(spread(values), decimals) if values else "-")
        rows.append(row)
    # Transposed, as there are more figures than arms. A figure that no arm has is left out.
    return aligned([figures for figures in zip(*rows) if set(figures[1:]) != {"-"}])


def compare_within(round_figures):
    """Adds each run's share of the best goodput in its round: the measure where the capacity of the
    link is unknown."""
    best = max((figures["gbps"] for figures in round_figures.values()), default=0)
    for figures in round_figures.values():
        figures["best_share"] = figures["gbps"] / best if best else None


def thresholds(rounds, judged, arms, least_share, most_delay):
    """[{name, value, sign, limit, met}] for the arm that is judged; empty when it did not run."""
    if judged not in arms:
        return []
    unlimited = any(one[judged].get("link_share") is None for one in rounds if judged in one)
    figure, whole = ("best_share", "the best arm's") if unlimited else ("link_share", "link")
    shares = values_of(rounds, judged, figure)
    result = [verdict(f"goodput of {judged} / {whole}", shares, ">=", least_share)]
    for other in arms:
        if other == judged:
            continue
        ratios = [one[judged]["queue_p99_bytes"] / max(one[other]["queue_p99_bytes"], 1)
                  for one in rounds if judged in one and other in one]
        result.append(verdict(f"p99 queue, {judged} / {other}", ratios, "<=", most_delay))
    return result


def metrics(figures):
    """The metrics for `pacecar ab`, by its names."""
    names = {"retransmissions": "retransmitted", **{name: name for name in METRICS}}
    return {name: figures[key] for name, key in names.items() if figures.get(key) is not None}


def verdict(name, values, sign, limit):
    value = statistics.median(values) if values else None
    met = value is not None and (value >= limit if sign == ">=" else value <= limit)
    return {"name": name, "value": value, "sign": sign, "limit": limit, "met": met}


def sentence(one):
    value = "not measured" if one["value"] is None else f"{one['value']:.3f}"
    return (f"{'pass' if one['met'] else 'FAIL'}  {one['name']}: {value} (wanted {one['sign']} "
            f"{one['limit']:g})")
