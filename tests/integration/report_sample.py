"""Made-up data of experiments, in the format of bench/ab/report_data.h."""

import math
import random

METRICS = [
    {"name": "finish_us", "label": "finish of the last flow", "unit": "us", "better": "lower"},
    {"name": "goodput_gbps", "label": "goodput", "unit": "Gb/s", "better": "higher"},
    {"name": "events", "label": "events", "unit": "", "better": ""},
]
MATRICES = ["inc32", "perm128"]
FIRST_INDEX = 40  # of a run: a filtered experiment does not begin at 0


def simulation(arms=("nscc", "pace"), seeds=(1, 2, 3), flows=4, samples=400):
    draw = random.Random(7)
    data = frame("simulation", arms, seeds)
    data["factors"] = [{"name": "matrix", "values": MATRICES}]
    for matrix in MATRICES:
        for arm in arms:
            add_cell(data, arm, {"matrix": matrix}, draw)
            data["runs"][-len(seeds)]["detail"] = detail(draw, flows, samples)
            times = sorted(draw.lognormvariate(5, 1) for _ in range(60))
            data["cells"][-1]["fct_cdf_us"] = {
                "x": times, "y": [index / 59 for index in range(60)]}
            data["cells"][-1]["slowdown_by_size"] = [
                {"bytes_min": size, "bytes_max": size, "n": 20, "p50": 1.1,
                 "p99": 1 + draw.random()} for size in (1000, 30000, 1000000)]
        add_comparisons(data, {"matrix": matrix})
    return data


def programs():
    data = frame("programs", ("dcqcn", "pace"), tuple(range(10)))
    for arm in ("dcqcn", "pace"):
        add_cell(data, arm, {}, random.Random(arm))
    add_comparisons(data, {})
    return data


def threshold(text, passed, measured):
    return {"text": text, "expected": "668 within 5%", "reference": 668.0, "measured": measured,
            "deviation": None if measured is None else measured / 668 - 1, "undone": 0,
            "passed": passed}


def frame(kind, arms, seeds):
    return {
        "schema_version": 1, "kind": kind, "name": "made up", "description": "Nothing ran.",
        "provenance": {
            "version": "0.1.0", "commit": "0123abc", "date": "2025-01-01T00:00:00Z",
            "kernel": "Linux 6.1", "host": "node", "cpu": "one of many", "cpus": 2,
            "compiler": "g++ 12.2", "command_line": "pacecar ab made_up.toml",
            "environment": {"PACECAR_LOG": "info"}},
        "baseline": arms[0],
        "arms": [{"name": arm, "settings": f"cc = {arm}"} for arm in arms],
        "factors": [], "seeds": list(seeds), "metrics": METRICS,
        "cells": [], "runs": [], "comparisons": [], "thresholds": [], "undone": "",
        "identical": [],
    }


def add_cell(data, arm, factors, draw):
    level = 600 + 50 * len(data["cells"])
    values = {metric["name"]: [draw.gauss(level, 5) for _ in data["seeds"]] for metric in METRICS}
    begin = FIRST_INDEX + len(data["runs"])
    indices = range(begin, begin + len(data["seeds"]))
    data["runs"] += [
        {"index": index, "cell": len(data["cells"]), "seed": seed, "ok": True, "error": "",
         "metrics": {name: drawn[nth] for name, drawn in values.items()}, "detail": None}
        for nth, (index, seed) in enumerate(zip(indices, data["seeds"]))]
    data["cells"].append({
        "arm": arm, "factors": factors, "runs": list(indices), "fct_cdf_us": None,
        "slowdown_by_size": [],
        "metrics": {name: {"n": len(drawn), "mean": sum(drawn) / len(drawn),
                           "median": sorted(drawn)[len(drawn) // 2], "min": min(drawn),
                           "max": max(drawn)} for name, drawn in values.items()}})


def add_comparisons(data, factors):
    means = {cell["arm"]: cell["metrics"] for cell in data["cells"] if cell["factors"] == factors}
    baseline = data["baseline"]
    for metric in METRICS[:2]:
        for arm in [name for name in means if name != baseline]:
            ours, theirs = (means[name][metric["name"]]["mean"] for name in (arm, baseline))
            worse = (ours < theirs) == (metric["better"] == "higher")
            data["comparisons"].append({
                "factors": factors, "metric": metric["name"], "arm": arm, "baseline": baseline,
                "n": len(data["seeds"]), "arm_mean": ours, "baseline_mean": theirs,
                "difference": ours - theirs, "low": ours - theirs - 10, "high": ours - theirs + 10,
                "interval": "student",
                "ratio": ours / theirs, "cohens_d": 1.5, "p": 0.01,
                "p_holm": 0.02, "verdict": "higher" if ours > theirs else "lower",
                "better": not worse})


def detail(draw, flows, samples):
    return {
        "queue": series(draw, "leaf 0 > host 2", 200e3, samples),
        "rates": [series(draw, f"flow {flow}: host {flow} > host 0", 12.0, samples)
                  for flow in range(flows)],
        "limits": [limit(draw, f"flow {flow}: host {flow} > host 0", samples // 2)
                   for flow in range(min(flows, 4))],
        "fairness": series(draw, "Jain fairness", 0.5, samples),
        "links": [link(draw, *ends) for leaf in range(2) for host in range(4)
                  for ends in both(f"host {leaf * 4 + host}", f"leaf {leaf}")] +
                 [link(draw, *ends) for leaf in range(2) for spine in range(4)
                  for ends in both(f"leaf {leaf}", f"spine {spine}")],
    }


def series(draw, name, middle, samples):
    """A wave around `middle` with a gap in it."""
    shift = draw.random() * 6
    values = [middle * (1 + 0.8 * math.sin(nth / 30 + shift)) for nth in range(samples)]
    return {"name": name, "interval_us": 2.0, "values": values[:-9] + [None] + values[-8:]}


def limit(draw, name, samples):
    """A flow limited by its grant, then by the network, then by the application."""
    grant = [12.5 - draw.random() for _ in range(samples)]
    return {"name": name, "interval_us": 4.0,
            "rate": {"name": name, "interval_us": 8.0, "values": [11.5] * (samples // 2)},
            "allowed": grant, "grant": grant, "core": [25.0] * samples,
            "limited_by": [[0, "grant"], [samples // 2, "network"],
                           [samples * 9 // 10, "application"]]}


def both(one, other):
    return [(one, other), (other, one)]


def link(draw, source, destination):
    return {"from": source, "to": destination, "gbps": 400, "utilisation": draw.random(),
            "queue_max_bytes": draw.randrange(400000), "marked": 5, "trimmed": 0, "dropped": 0,
            "paused_us": 0.0}
