"""Computes nccl-tests' columns and ratios from the ranks' output.

`runs` is a list of {"ranks", "round", "arm", "rows"}; `merge` makes a row of the lines that the
ranks print for one operation and size. Times are in seconds, bandwidths in bytes per second.
"""

import json
import math
import statistics

from exchange import Failed

# Operation: (bus / algorithm bandwidth for N ranks, redop, root), as nccl-tests have them.
OPERATIONS = {"allreduce": (lambda n: 2 * (n - 1) / n, "sum", -1),
              "allgather": (lambda n: (n - 1) / n, "none", -1),
              "reducescatter": (lambda n: (n - 1) / n, "sum", -1),
              "broadcast": (lambda n: 1, "none", 0),
              "reduce": (lambda n: 1, "sum", 0),
              "sendrecv": (lambda n: 1, "none", -1),
              "alltoall": (lambda n: (n - 1) / n, "none", -1)}
COLUMNS = "{:>12} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8} {:>7} {:>10} {:>10} {:>10}"
KIB, MIB = 1 << 10, 1 << 20
# 97.5% quantiles of Student's t with 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def merge(outputs):
    """Rows of one run: the time of a repetition is that of the slowest rank, the processor time
    that of all ranks together."""
    # Libraries may print other lines.
    ranks = [[json.loads(line) for line in output.splitlines() if line.startswith("{")]
             for output in outputs]
    if len({tuple((row["op"], row["bytes"]) for row in rows) for rows in ranks}) != 1:
        raise Failed("the ranks did not measure the same operations")
    merged = []
    for rows in zip(*ranks):
        first = rows[0]
        merged.append({"op": first["op"], "size_bytes": first["bytes"], "count": first["count"],
                       "iterations": first["iterations"],
                       "wrong": sum(row["wrong"] for row in rows),
                       "times_s": [max(times)
                                   for times in zip(*(row["seconds"] for row in rows))],
                       "starts_s": first["starts"],
                       "processor_s": sum(row["processor_seconds"] for row in rows)})
    return merged


def key(row):
    return row["op"], row["size_bytes"]


def rows_of(runs, ranks, arm):
    """{(operation, size): its rows, one of each round}."""
    result = {}
    for run in runs:
        if run["ranks"] == ranks and run["arm"] == arm:
            for row in run["rows"]:
                result.setdefault(key(row), []).append({**row, "round": run["round"]})
    return result


def summary(runs, ranks, arm):
    """A line of nccl-tests' table per operation and size, over all rounds and repetitions."""
    result = []
    for (op, size), rows in rows_of(runs, ranks, arm).items():
        times = [time for row in rows for time in row["times_s"]]
        factor, redop, root = OPERATIONS[op]
        median = statistics.median(times)
        result.append({"op": op, "size_bytes": size, "count": rows[0]["count"], "type": "float",
                       "redop": redop, "root": root, "time_s": median, "time_min_s": min(times),
                       "time_mean_s": statistics.mean(times), "n": len(times),
                       "processor_s": processor_median(rows),
                       "algbw_Bps": size / median, "busbw_Bps": size / median * factor(ranks),
                       "wrong": sum(row["wrong"] for row in rows)})
    return result


def table(lines, ranks, arm):
    text = []
    for op in dict.fromkeys(line["op"] for line in lines):
        text += ["", f"# {op}, {ranks} ranks, {arm}",
                 "#" + COLUMNS.format("size", "count", "type", "redop", "root", "time", "algbw",
                                      "busbw", "#wrong", "least", "mean", "CPU")[1:],
                 "#" + COLUMNS.format("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)",
                                      "", "(us)", "(us)", "(us)")[1:]]
        text += [COLUMNS.format(line["size_bytes"], line["count"], line["type"], line["redop"],
                                line["root"], f"{line['time_s'] * 1e6:.2f}",
                                f"{line['algbw_Bps'] * 1e-9:.3f}",
                                f"{line['busbw_Bps'] * 1e-9:.3f}", line["wrong"],
                                f"{line['time_min_s'] * 1e6:.2f}",
                                f"{line['time_mean_s'] * 1e6:.2f}",
                                f"{line['processor_s'] * 1e6:.2f}")
                 for line in lines if line["op"] == op]
    return text


def ratios(runs, ranks, arms, baseline):
    """How many times as fast as the baseline each arm is, paired by rounds, and how many times its
    processor time each takes."""
    result, base = [], rows_of(runs, ranks, baseline)
    for arm in arms:
        for (op, size), rows in rows_of(runs, ranks, arm).items():
            others = base.get((op, size), [])
            pairs = [(other, row) for row in rows for other in others
                     if other["round"] == row["round"]]
            if arm == baseline or not pairs:
                continue
            result.append({"arm": arm, "op": op, "size_bytes": size,
                           "processor_ratio": processor_median(rows) / processor_median(others),
                           **mean_ratio([math.log(statistics.median(other["times_s"]) /
                                                  statistics.median(row["times_s"]))
                                         for other, row in pairs])})
    return result


def processor_median(rows):
    return statistics.median(row["processor_s"] for row in rows)


def mean_ratio(logarithms):
    """The geometric mean, with the 95% interval by Student's distribution."""
    n, mean = len(logarithms), statistics.mean(logarithms)
    if n == 1:
        return {"n": n, "ratio": math.exp(mean)}
    degrees = n - 1
    # Beyond the table: the first terms of Cornish and Fisher's expansion.
    quantile = (STUDENT[degrees - 1] if degrees <= len(STUDENT) else
                1.960 + 2.372 / degrees + 2.823 / degrees ** 2)
    reach = quantile * statistics.stdev(logarithms) / math.sqrt(n)
    return {"n": n, "ratio": math.exp(mean), "low": math.exp(mean - reach),
            "high": math.exp(mean + reach)}


def ratio_table(found, ranks, baseline):
    rows = [["ranks", "operation", "size", "arm", f"x {baseline}", "95%", "rounds", "CPU x"]]
    for one in found:
        interval = f"{one['low']:.2f}..{one['high']:.2f}" if "low" in one else "-"
        rows.append([str(ranks), one["op"], size_text(one["size_bytes"]), one["arm"],
                     f"{one['ratio']:.2f}", interval, str(one["n"]),
                     f"{one['processor_ratio']:.2f}"])
    return aligned(rows)


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows]


def size_text(size_bytes):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"
