"""From rounds of figures to medians, thresholds and a table.

`rounds` is a list of {arm: figures of incast_arms.run}; an arm whose run failed is not there.
"""

import statistics

from report import aligned, spread, text_of

# (figure, heading, decimals, factor)
COLUMNS = [("link_share", "goodput / link", 3, 1), ("jain", "Jain", 4, 1),
           ("slowest_to_fastest", "slowest / fastest", 3, 1),
           ("delay_p50_us", "queue p50 us", 0, 1), ("delay_p99_us", "p99 us", 0, 1),
           ("delay_max_us", "max us", 0, 1), ("start_max_us", "start max us", 0, 1),
           ("noise_p99_us", "noise p99 us", 0, 1),
           ("backlog_median_bytes", "backlog p50 KB", 0, 1e-3),
           ("backlog_p99_bytes", "p99 KB", 0, 1e-3),
           ("backlog_max_bytes", "max KB", 0, 1e-3), ("drops", "drops", 0, 1),
           ("probes_lost", "probes lost", 0, 1), ("retransmitted", "sent again", 0, 1),
           ("processors_used", "processors used", 2, 1),
           ("processors_idle", "all idle", 2, 1)]


def values_of(rounds, arm, figure):
    return [one[arm][figure] for one in rounds
            if arm in one and one[arm].get(figure) is not None]


def table(rounds, arms):
    """Lines: a row per arm; medians (min..max) over the rounds."""
    rows = [["", *(heading for _, heading, _, _ in COLUMNS)]]
    for arm in arms:
        row = [arm]
        for figure, _, decimals, factor in COLUMNS:
            values = [value * factor for value in values_of(rounds, arm, figure)]
            row.append(text_of(spread(values), decimals) if values else "-")
        rows.append(row)
    # On its side: there are more figures than arms.
    return aligned([list(column) for column in zip(*rows)])


def thresholds(rounds, judged, arms, least_share, most_delay, at_switch=False):
    """[{sentence, value, limit, met}] for the arm that is judged; empty when it is none of them."""
    if judged not in arms:
        return []
    figure, name = (("backlog_p99_bytes", "p99 queue at the switch") if at_switch
                    else ("delay_p99_us", "p99 queueing delay"))
    shares = values_of(rounds, judged, "link_share")
    result = [verdict(f"goodput of {judged} / link", shares, ">=", least_share)]
    for other in arms:
        if other == judged:
            continue
        ratios = [one[judged][figure] / max(one[other][figure], 1) for one in rounds
                  if judged in one and other in one]
        result.append(verdict(f"{name}, {judged} / {other}", ratios, "<=", most_delay))
    return result


def metrics(figures):
    """What `pacecar ab` compares, by its names."""
    names = {"link_share": "link_share", "jain": "jain", "retransmissions": "retransmitted",
             "queue_p50_bytes": "backlog_median_bytes", "queue_p99_bytes": "backlog_p99_bytes",
             "queue_max_bytes": "backlog_max_bytes", "delay_p99_us": "delay_p99_us"}
    return {name: figures[key] for name, key in names.items() if figures.get(key) is not None}


def verdict(name, values, sign, limit):
    value = statistics.median(values) if values else None
    met = value is not None and (value >= limit if sign == ">=" else value <= limit)
    return {"name": name, "value": value, "sign": sign, "limit": limit, "met": met}


def sentence(one):
    value = "not measured" if one["value"] is None else f"{one['value']:.3f}"
    return (f"{'pass' if one['met'] else 'FAIL'}  {one['name']}: {value} (wanted {one['sign']} "
            f"{one['limit']:g})")
