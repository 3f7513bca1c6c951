"""Medians, paired ratios and the table of several rounds.

`rounds` is a list of {program: {figure: value}}; a figure whose run failed is not there.
"""

import statistics

NAMES = {"plugin": "NCCL plugin", "pacecar": "pacecar bw, lat", "iperf3": "TCP (iperf3)",
         "fi_pingpong": "TCP (fi_pingpong)", "udp_limit": "bare UDP"}
COLUMNS = [("gbps", "Gb/s", 2), ("cpu_sender", "CPU s/GB sender", 3),
           ("cpu_receiver", "CPU s/GB receiver", 3), ("cpu_total", "CPU s/GB both", 3),
           ("rtt_median_us", "RTT us", 1), ("rtt_mean_us", "mean RTT us", 1)]
# (program, its figure, to which program)
RATIOS = [("plugin", "gbps", "iperf3"), ("plugin", "gbps", "udp_limit"),
          ("pacecar", "gbps", "udp_limit"),
          ("plugin", "cpu_sender", "iperf3"), ("plugin", "cpu_receiver", "iperf3"),
          ("plugin", "cpu_total", "iperf3"),
          ("plugin", "rtt_median_us", "udp_limit"), ("pacecar", "rtt_median_us", "udp_limit")]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "n": len(values)}


def summary(rounds):
    """{program: {figure: spread}}."""
    result = {}
    for program in NAMES:
        figures = dict.fromkeys(name for one in rounds for name in one.get(program, {}))
        if figures:
            result[program] = {name: spread([one[program][name] for one in rounds
                                             if name in one.get(program, {})])
                               for name in figures}
    return result


def ratios(rounds):
    """The spread of the ratios within each round: noise that the runs of a round share cancels."""
    result = []
    for program, figure, other in RATIOS:
        values = [one[program][figure] / one[other][figure] for one in rounds
                  if figure in one.get(program, {}) and one.get(other, {}).get(figure)]
        if values:
            result.append({"figure": figure, "program": program, "to": other, **spread(values)})
    return result


def text_of(values, decimals):
    return (f"{values['median']:.{decimals}f} "
            f"({values['min']:.{decimals}f}..{values['max']:.{decimals}f})")


def table(rounds):
    """Lines: a row per program, then a row per ratio; medians (min..max) over the rounds."""
    rows = summary(rounds)
    columns = [column for column in COLUMNS if any(column[0] in row for row in rows.values())]
    cells = [["", *(heading for _, heading, _ in columns)]]
    for program, row in rows.items():
        cells.append([NAMES[program], *(text_of(row[name], decimals) if name in row else "-"
                                        for name, _, decimals in columns)])
    headings = {name: heading for name, heading, _ in COLUMNS}
    pairs = [["ratio", "median (min..max)"]]
    for one in ratios(rounds):
        label = f"{headings[one['figure']]}: {NAMES[one['program']]} / {NAMES[one['to']]}"
        pairs.append([label, text_of(one, 2)])
    return [*aligned(cells), "", *aligned(pairs)]


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows]
