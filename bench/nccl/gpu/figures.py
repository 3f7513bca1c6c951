"""Computes nccl-tests' columns, ratios and goals from the ranks' output.

`runs` is a list of {"ranks", "round", "arm", "rows"}; `merge` makes a row of the lines that the
ranks print for one operation and size. Times are in seconds, bandwidths in bytes per second.
"""

import dataclasses
import json
import statistics
import subprocess

from exchange import Failed
from report import aligned

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
RATIOS_LIMIT_S = 60


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
                result.setdefault(key(row), []).append(row)
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
                       "processor_s": statistics.median(row["processor_s"] for row in rows),
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


@dataclasses.dataclass(frozen=True)
class Goals:
    bandwidth: float  # least ratio to the baseline's bandwidth, from 1 MiB on
    time: float       # most ratio to the baseline's time, from 1 to 64 KiB

    def least_ratio(self, size_bytes):
        """Goal for the baseline's time / the arm's time; None if this size has no goal."""
        if size_bytes >= MIB:
            return self.bandwidth
        return 1 / self.time if KIB <= size_bytes <= 64 * KIB else None


def ratios(program, runs, ranks, arms, baseline, goals, judged):
    """How many times as fast as the baseline each arm is, paired by rounds, and how many times its
    processor time each takes; with goals for the arm `judged`."""
    def medians(arm):
        return {(run["round"], *key(row)): statistics.median(row["times_s"]) for run in runs
                if run["ranks"] == ranks and run["arm"] == arm for row in run["rows"]}

    def processor_medians(arm):
        rows = rows_of(runs, ranks, arm)
        return {one: statistics.median(row["processor_s"] for row in rows[one]) for one in rows}

    pairs, base, base_processor = [], medians(baseline), processor_medians(baseline)
    for arm in arms:
        times, processor = medians(arm), processor_medians(arm)
        for op, size in dict.fromkeys(one[1:] for one in times):
            both = [(times[one], base[one]) for one in times if one[1:] == (op, size)
                    and one in base]
            if arm != baseline and both:
                pairs.append(({"arm": arm, "op": op, "size_bytes": size, "processor_ratio":
                               processor[op, size] / base_processor[op, size]}, both))
    for (one, _), found in zip(pairs, computed(program, [both for _, both in pairs])):
        one.update(found)
        least = goals.least_ratio(one["size_bytes"]) if one["arm"] == judged else None
        one.update(goal=least, met=None if least is None else one["ratio"] >= least)
    return [one for one, _ in pairs]


def computed(program, pairs):
    lines = [" ".join(",".join(f"{time:.9g}" for time in times) for times in zip(*both))
             for both in pairs]
    text = "\n".join(lines)
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True,
                          timeout=RATIOS_LIMIT_S)
    return [json.loads(line) for line in done.stdout.splitlines()]


def ratio_table(found, ranks, baseline):
    rows = [["ranks", "operation", "size", "arm", f"x {baseline}", "95%", "rounds", "CPU x",
             "goal"]]
    for one in found:
        interval = f"{one['low']:.2f}..{one['high']:.2f}" if "low" in one else "-"
        goal = "" if one["goal"] is None else (
            f">= {one['goal']:.2f} {'met' if one['met'] else 'MISSED'}")
        rows.append([str(ranks), one["op"], size_text(one["size_bytes"]), one["arm"],
                     f"{one['ratio']:.2f}", interval, str(one["n"]),
                     f"{one['processor_ratio']:.2f}", goal])
    return aligned(rows)


def size_text(size_bytes):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"
