#!/usr/bin/env python3
"""Does pacecar doctor name the right rank and the right kind of fault, within ten seconds?

study.py PACECAR PLUGIN FAULT_RANK [--faults N] [--healthy N] [--seed S] [--kinds A,B] [--tries N]
         [--json FILE]

Each run starts a job of 4 to 8 ranks in network namespaces, makes a random fault (or none), and
runs the doctor until it reports trouble or ten seconds have passed. Prints a line per run, and the
verdicts for each fault. Exit codes: 0 goals met (96% of the faults are named, no healthy run has
trouble), 1 not met, 2 wrong usage, 77 no namespaces can be made here."""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # no __pycache__ in the source tree

import job as jobs
import kinds

LIMIT_S = 10
GOAL = 0.96


def ask(job):
    process = subprocess.run(
        [job.program, "doctor", "--json", "--quiet", "--watch", "2"],
        env=job.environment(0), text=True, capture_output=True, check=False, timeout=LIMIT_S + 20)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"pacecar doctor: {process.stderr}")
    return json.loads(process.stdout)


def diagnose(job, kind):
    """(rule, rank, seconds, why) of the first trouble that the doctor reports; rule None: none."""
    began = time.monotonic()
    time.sleep(kind.wait_s if kind else 0)
    while True:
        verdict = ask(job)["verdict"]
        took = time.monotonic() - began
        if verdict["trouble"]:
            return verdict["rule"], job.name_of(verdict["process"]), took, verdict["why"]
        if took > LIMIT_S - 3:
            return None, None, took, verdict["why"]


def one_run(arguments, name, random_source):
    size = random_source.randint(4, arguments.most_ranks)
    rank = random_source.randrange(size)
    kind = kinds.KINDS.get(name)
    with jobs.Job(arguments.program, arguments.plugin, arguments.rank_program, size,
                  shifted_clock=rank if name == "clock" else None) as job:
        if kind:
            kind.make(job, rank)
        rule, named, took, why = diagnose(job, kind)
    if kind and kind.rule:
        allowed = {(rank + shift) % size for shift in (0, *kind.neighbours)}
        right = rule == kind.rule and named in allowed
    else:
        right = rule is None
    print(f"{'ok   ' if right else 'WRONG'} {name:16} rank {rank} of {size}: "
          f"{rule or 'nothing'} {'' if named is None else named} after {took:.1f} s: {why}",
          flush=True)
    return {"kind": name, "rank": rank, "ranks": size, "rule": rule, "named": named,
            "seconds": took, "right": right, "why": why}


def until_right(arguments, name, random_source):
    for left in reversed(range(arguments.tries)):
        run = one_run(arguments, name, random_source)
        if run["right"] or left == 0:
            return run


def confusion(runs):
    """Prints the verdicts for each fault; (!) marks verdicts with a wrong rank or rule."""
    counts = collections.defaultdict(collections.Counter)
    for run in runs:
        label = run["rule"] or "nothing"
        counts[run["kind"]][label + ("" if run["right"] else "!")] += 1
    for made, called in counts.items():
        print(f"  {made:16} " + ", ".join(f"{name} {n}" for name, n in called.most_common()))


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("plugin")
    parser.add_argument("rank_program")
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-ranks", type=int, default=8)
    parser.add_argument("--kinds", default=",".join(kinds.KINDS))
    parser.add_argument("--tries", type=int, default=1,
                        help="repeat a run that is not right, for machines with other load")
    parser.add_argument("--json", help="write the runs to this file")
    return parser.parse_args()


def main():
    arguments = parse()
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or probe.returncode != 0:
        print("no network namespaces can be made here: run as root", file=sys.stderr)
        return 77
    names = arguments.kinds.split(",")
    source = random.Random(arguments.seed)
    plan = [names[i % len(names)] for i in range(arguments.faults)]
    plan += ["healthy"] * arguments.healthy
    source.shuffle(plan)
    runs = [until_right(arguments, name, source) for name in plan]
    confusion(runs)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=1)
    faults = [run["right"] for run in runs if run["kind"] != "healthy"]
    healthy = [run["right"] for run in runs if run["kind"] == "healthy"]
    print(f"{sum(faults)} of {len(faults)} faults named, "
          f"{len(healthy) - sum(healthy)} of {len(healthy)} healthy runs accused")
    return 0 if sum(faults) >= GOAL * len(faults) and all(healthy) else 1


if __name__ == "__main__":
    sys.exit(main())
