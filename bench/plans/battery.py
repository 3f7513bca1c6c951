#!/usr/bin/env python3
"""Random cases for congestion controls, and how one of them does compared with all others.

    battery.py plan --seed 1 --cases 500 > battery.toml
    pacecar ab battery.toml --out battery.results
    battery.py judge battery.results

Hosts are ideal, or late as --hosts tells: udp, dpdk, verbs or the file of a profile.

Case i of a seed is the same whatever the number of cases. Seeds up to 99 are for tuning; judge a
change with a larger one, drawn after the change, and once.
"""

import argparse
import collections
import json
import pathlib
import random
import statistics
import sys

# Made for fabrics without loss.
LOSSLESS = 'fabric = {pfc = {alpha = 0.125}, buffer = "64MB", queue = 0, trimming = false}'
# (name, algorithm, what differs from the plan)
ARMS = [
    ("pace", "pace", ""),
    ("nscc", "nscc", ""),
    ("rccc", "rccc", "fabric.ecn.host_links = false"),
    ("swift", "swift", ""),
    ("mnscc", "mnscc", ""),
    ("nscc-recycle", "nscc", 'transport.path_policy = "recycle"'),
    ("sird", "sird",
     'fabric.ecn = {kind = "step", when = "dequeue", low = "0.8bdp", host_links = false}'),
    ("hpcc", "hpcc", LOSSLESS),
    ("dcqcn", "dcqcn", LOSSLESS),
    ("fixed", "fixed", ""),
]

HEAD = """# {cases} random cases, seed {seed}: bench/plans/battery.py
name = "battery-{seed}{fabric}-{hosts}"
seeds = 1
hosts.model = "{hosts}"
baseline = "nscc"
metrics = ["finish_us", "fct_mean_us", "queue_max_bytes", "trims", "drops", "retransmissions"]
[fabric]
overhead = 20
trimmed = 64
ecn = {{kind = "red", when = "dequeue", low = "0.2bdp", high = "0.8bdp", max_probability = 1.0}}
[transport]
mtu = 4086
paths = 64
window_packets = 1024
[run]
time_limit = "100ms"
sample_interval = "0us"
{arms}
[[factor]]
name = "case"
"""

FABRICS = {
    "trimming": ["fabric.trimming = true", 'fabric.queue = "1bdp"'],
    "dropping": ["fabric.trimming = false", 'fabric.queue = "{queue}bdp"'],
    "pfc": ["fabric.trimming = false", "fabric.pfc = {{alpha = 0.125}}", 'fabric.buffer = "64MB"',
            "fabric.queue = 0"],
}

WORKLOADS = {"incast": 22, "all_to_all": 26, "permutation": 16, "ring_all_reduce": 12,
             "tree_all_reduce": 8, "hierarchical_all_reduce": 6, "pipeline": 4, "random_flows": 6}

MOST_BYTES = 100_000_000  # of payload in a case, so that it takes a second or two


def size_text(count):
    return f"{count // 1000}KB" if count < 1_000_000 else f"{count / 1e6:.3g}MB"


class Case:
    """Case `number` of `seed`: `lines` of a plan, and a `name` that describes them."""

    def __init__(self, seed, number, fabric, hosts):
        self.hosts_are_ideal = hosts == "ideal"  # others have bursts and acknowledgements of theirs
        self.draw = random.Random(f"{seed} {number}")
        self.words = []
        self.lines = []
        self.hosts = 0
        self.topology()
        jobs = [self.job() for _ in range(self.draw.choices((1, 2, 3), (80, 15, 5))[0])]
        self.words.insert(0, " + ".join(words for words, _ in jobs))
        tables = ", ".join(f"{{{line}}}" for _, line in jobs)
        self.lines.append(f"workload.job = [{tables}]")
        kind = fabric or self.draw.choice(list(FABRICS))
        self.transport(kind)
        queue = self.draw.choice((1, 2, 5))
        self.lines += [line.format(queue=queue) for line in FABRICS[kind]]
        self.words.append(kind)
        self.name = f"{number:03} {' '.join(self.words)}"

    def topology(self):
        rate = self.draw.choice((25, 100, 100, 200, 400, 400, 800))
        delay = self.draw.choice((200, 500, 1000, 1000, 2000, 5000))
        kind = self.draw.choices(("leaf-spine", "fat-tree", "rail", "star"), (60, 15, 15, 10))[0]
        edge = f'rate = "{rate}G", delay = "{delay}ns"'
        self.words.append(f"{kind} {rate}G {delay}ns")
        if kind == "leaf-spine":
            leaf = self.draw.choice((4, 8, 16))
            self.hosts = leaf * self.draw.choice((2, 4, 4, 8))
            over = self.draw.choice((1, 1, 1, 2, 3, 4))
            spines = max(leaf // over, 1)
            shape = f"hosts = {self.hosts}, hosts_per_leaf = {leaf}, spines = {spines}"
            if leaf > spines:
                self.words.append(f"{leaf}:{spines}")
        elif kind == "fat-tree":
            self.hosts = 64
            over = self.draw.choice((1, 1, 2))
            shape = ("pods = 4, leaves_per_pod = 4, hosts_per_leaf = 4, aggregations_per_pod = 4, "
                     f"cores_per_aggregation = {4 // over}")
            if over > 1:
                self.words.append(f"{over}:1")
        elif kind == "rail":
            servers = self.draw.choice((2, 4, 8))
            self.hosts = servers * 8
            shape = f"servers = {servers}, gpus_per_server = 8"
        else:
            self.hosts = self.draw.choice((4, 16, 40))
            shape = f"hosts = {self.hosts}"
        self.lines.append(f'topology = {{kind = "{kind}", {shape}, {edge}}}')

    def bytes(self, least, most, messages):
        most = max(min(most, MOST_BYTES // messages), least)
        exact = least * (most / least) ** self.draw.random()
        return int(exact) // 1000 * 1000

    def job(self):
        ranks = self.draw.randint(min(4, self.hosts), self.hosts)
        kind = self.draw.choices(list(WORKLOADS), WORKLOADS.values())[0]
        hosts = f"hosts = {ranks}, shuffle = true"
        if kind == "incast":
            size = self.bytes(4_000, 4_000_000, ranks - 1)
            return (f"incast {ranks - 1}x{size_text(size)}",
                    f'kind = "incast", senders = {ranks - 1}, bytes = {size}, {hosts}')
        if kind == "all_to_all":
            ranks = min(ranks, 64)
            size = self.bytes(4_000, 1_000_000, ranks * (ranks - 1))
            parallel = self.draw.choice((1, 4, 8, 0))
            several = f"parallel = {parallel}, " if parallel else ""
            return (f"a2a {ranks}x{size_text(size)} p{parallel or 'all'}",
                    f'kind = "all_to_all", {several}bytes = {size}, hosts = {ranks}, '
                    "shuffle = true")
        if kind == "permutation":
            size = self.bytes(16_000, 8_000_000, ranks)
            return (f"perm {ranks}x{size_text(size)}",
                    f'kind = "permutation", bytes = {size}, {hosts}')
        if kind == "hierarchical_all_reduce":
            server = self.draw.choice((2, 4 if self.hosts >= 8 else 2))
            ranks = max(ranks // server, 2) * server
            size = self.bytes(64_000, 8_000_000, 2 * ranks)
            return (f"hier {ranks}/{server}x{size_text(size)}",
                    f'kind = "{kind}", hosts_per_server = {server}, bytes = {size}, '
                    f"hosts = {ranks}")
        if kind == "pipeline":
            ranks = min(ranks, 16)
            size = self.bytes(64_000, 4_000_000, 16 * ranks)
            return (f"pipe {ranks}x{size_text(size)}",
                    f'kind = "pipeline", microbatches = 8, compute = "20us", bytes = {size}, '
                    f"hosts = {ranks}, shuffle = true")
        if kind == "random_flows":
            sizes = self.draw.choice(("WebSearch", "FB_Hadoop"))
            load = self.draw.choice((0.3, 0.5, 0.7))
            return (f"{sizes} {load}",
                    f'kind = "random_flows", sizes = "{sizes}", load = {load}, length = "200us"')
        size = self.bytes(64_000, 16_000_000, 2 * ranks)
        return (f"{kind.partition('_')[0]} {ranks}x{size_text(size)}",
                f'kind = "{kind}", bytes = {size}, {hosts}')

    def transport(self, fabric):
        policy = self.draw.choices(("balanced", "reroute", "round-robin"), (70, 15, 15))[0]
        self.lines.append(f'transport.path_policy = "{policy}"')
        if policy != "balanced":
            self.words.append(policy)
        gathered = self.draw.choices((0, 16_344, 65_376), (45, 45, 10))[0]
        burst = self.draw.choices((1, 4, 16), (60, 20, 20))[0] * 4086
        if self.hosts_are_ideal:
            self.lines += [f"transport.ack_bytes = {gathered}", f"transport.burst = {burst}",
                           f"fabric.host_queue = {burst if burst > 4086 else 0}"]
            if gathered:
                self.words.append(f"acks{gathered // 4086}")
            if burst > 4086:
                self.words.append(f"burst{burst // 1000}")
        loss = self.draw.choices((0, 0.0001, 0.001, 0.01), (82, 6, 8, 4))[0]
        # With PFC a packet may wait for as long as the switch's buffer lasts, 5 ms at 100 Gb/s,
        # before it counts as lost: which arm loses one of its last packets would decide.
        if loss and fabric != "pfc":
            self.lines.append(f'fault = [{{kind = "packet-loss", probability = {loss}}}]')
            self.words.append(f"loss{loss:g}")


def plan(options):
    arms = "".join(f'[[arm]]\nname = "{name}"\ntransport.cc = "{algorithm}"\n{more}\n'
                   for name, algorithm, more in ARMS if name in options.arms)
    print(HEAD.format(cases=options.cases, seed=options.seed, arms=arms, hosts=options.hosts,
                      fabric=f"-{options.fabric}" if options.fabric else ""))
    for number in range(options.cases):
        case = Case(options.seed, number, options.fabric, options.hosts)
        print("[[factor.value]]", f'name = "{case.name}"', *case.lines, "", sep="\n")
    return 0


def read_results(folder):
    """{case: {arm: metrics}}."""
    cases = collections.defaultdict(dict)
    with open(pathlib.Path(folder, "runs.jsonl"), encoding="utf-8") as runs:
        for line in runs:
            run = json.loads(line)
            if "metrics" in run:
                cases[run["factors"]["case"]][run["arm"]] = run["metrics"]
    return cases


def time_of(name, metrics):
    """The time that counts, us: the last finish, of flows at random their mean time."""
    random_flows = "WebSearch" in name or "FB_Hadoop" in name
    time = metrics.get("fct_mean_us" if random_flows else "finish_us")
    return float("inf") if time is None else time  # not done at the time limit


def judge(options):
    rows = []
    for name, arms in sorted(read_results(options.results).items()):
        times = {arm: time_of(name, metrics) for arm, metrics in arms.items()}
        own = times.pop(options.arm)
        best = min(times, key=times.get)
        queue = arms[options.arm]["queue_max_bytes"] / max(arms["nscc"]["queue_max_bytes"], 1)
        rows.append((own / times[best], queue, name, best))
    if not rows:
        return f"{options.results} has no results: run pacecar ab with a plan of this program"
    rows.sort(reverse=True)
    ratios = [row[0] for row in rows]
    within = sum(ratio <= 1.05 for ratio in ratios)
    queues = sum(row[1] <= 1 for row in rows)
    for ratio, queue, name, best in rows[:options.show]:
        print(f"{ratio:6.3f} of {best:6} queue {queue:5.2f} of nscc's   {name}")
    print(f"{len(rows)} cases: {options.arm} takes {statistics.median(ratios):.3f} of the best "
          f"other's time in the median, at most 1.05 in {within} ({within / len(rows):.1%}), "
          f"{ratios[0]:.3f} at most; its queue is at most nscc's in {queues / len(rows):.1%}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("plan", help="prints a plan for pacecar ab")
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--cases", type=int, default=500)
    command.add_argument("--hosts", default="ideal", help="model of [hosts]; default ideal")
    command.add_argument("--arms", nargs="*", choices=[name for name, *_ in ARMS],
                         help="default: all but fixed", default=[name for name, *_ in ARMS[:-1]])
    command.add_argument("--fabric", choices=FABRICS, help="of all cases; default: drawn")
    command.set_defaults(run=plan)
    command = commands.add_parser("judge", help="compares an arm with the best of the others")
    command.add_argument("results", help="folder that pacecar ab wrote")
    command.add_argument("--arm", default="pace")
    command.add_argument("--show", type=int, default=20, help="cases to print, the slowest first")
    command.set_defaults(run=judge)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
