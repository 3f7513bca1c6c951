#!/usr/bin/env python3
"""Measures the time of a training step with PyTorch's DistributedDataParallel, over NCCL's own
sockets and over Pacecar."""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True  # no __pycache__ among the sources
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "gpu"), str(HERE.parent / "measure/compare")]

import arms
import job
import machine
import mps
import toolkit
from command_line import ERROR, MET, add_common, arm_list, finish, recorded
from console import between, log, new_parser
from exchange import Failed, write_json
from report import aligned, spread, text_of

RANK = HERE / "gpu/ddp_rank.py"
MOST_LOSS_APART = 0.01  # fraction of the loss: arms add in different orders
EPILOG = """\
Each round trains every arm once, in random order, from the same parameters. A step is forward,
backward with the gradients' all-reduce, and SGD, until the GPU is idle. All ranks must end with the
same parameters, bit by bit, and all arms with nearly the same loss.

Examples:
  bench/nccl/torch_ddp.py
  bench/nccl/torch_ddp.py --layers 8 --width 2048 --arms socket,soft:udp:lo,mlx5_0
Exit codes: 0 all ran, 2 something failed or wrong usage, 77 skipped: no PyTorch or no GPU."""


def main():
    options = parse()
    probe = [sys.executable, "-B", RANK, "probe"]
    seen = toolkit.probe(probe)
    require_torch(seen)
    toolkit.require_gpu(seen)
    plugin = arms.find_plugin(options)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pacecar-")))
        shared = options.ranks > seen["gpus"]
        client = stack.enter_context(mps.serving(probe)) if shared else {}
        setting = job.Setting(plugin, client, folder, options.timeout)
        document = {"schema_version": 1, "machine": machine.describe(),
                    "versions": {name: seen[name] for name in ("torch", "nccl")},
                    "gpus": toolkit.gpu_names(), "plugin": arms.describe_plugin(plugin),
                    "mps": bool(client), "options": recorded(options), "runs": [],
                    "failures": []}
        run = lambda arm: train(arm, seen["gpus"], setting, options)
        for number, arm, result in job.interleaved(options.arms, run, options,
                                                   document["failures"]):
            document["runs"].append({"round": number, "arm": arm.name, **result})
    return report(options, document)


def parse():
    parser = new_parser("bench/nccl/torch_ddp.py", __doc__, EPILOG)
    add = parser.add_argument
    add("--ranks", type=between(int, 2, 16), default=2, metavar="N", help="default 2")
    add("--arms", type=arm_list, default="socket,soft:udp:lo", metavar="LIST",
        help="as of bench/nccl/run; default socket,soft:udp:lo")
    add("--layers", type=between(int, 1, 1000), default=4, metavar="N", help="default 4")
    add("--width", type=heads, default=1024, metavar="N",
        help="width of the model, a multiple of 64; a layer has about 12 N * N parameters; "
             "default 1024")
    add("--batch", type=between(int, 1, 10_000), default=8, metavar="N", help="default 8")
    add("--tokens", type=between(int, 1, 100_000), default=128, metavar="N", help="default 128")
    add("--steps", type=between(int, 1, 100_000), default=20, metavar="N",
        help="timed steps in a round; default 20")
    add("--warm-up", type=between(int, 1, 100_000), default=5, metavar="N", help="default 5")
    add("--rounds", type=between(int, 1, 1000), default=3, metavar="N", help="default 3")
    add("--timeout", type=between(float, 1, 86_400), default=180, metavar="S",
        help="kill a run that takes longer; default 180")
    add("--budget", type=between(float, 0, 1e6), default=0, metavar="S",
        help="start no run that may not end within S seconds; default 0: no limit")
    add_common(add)
    return parser.parse_args()


def heads(text):
    width = int(text)
    if width < 64 or width % 64:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of 64")
    return width


def require_torch(seen):
    if seen["torch"] is None:
        raise toolkit.Skipped(f"this Python has no PyTorch ({seen['reason']}): run it with one "
                              "that has PyTorch, as in PYTHON bench/nccl/torch_ddp.py")


def train(arm, gpus, setting, options):
    """One run: {step_s, loss, parameters}."""
    def argv(rank, place):
        return [sys.executable, "-B", RANK, rank, options.ranks, rank % gpus, place / "meeting",
                options.layers, options.width, options.batch, options.tokens, options.warm_up,
                options.steps]

    return merge(job.run_arm(arm, options.ranks, argv, setting))


def merge(outputs):
    """The time of a step is that of its slowest rank; the loss is the ranks' mean."""
    # The last line: libraries may print other lines before it.
    ranks = [json.loads(output.strip().splitlines()[-1]) for output in outputs]
    differing = max(rank["apart"] for rank in ranks)
    if differing:
        raise Failed(f"{differing} of {ranks[0]['parameters']} parameters differ between ranks")
    return {"step_s": [max(times) for times in zip(*(rank["step_s"] for rank in ranks))],
            "loss": statistics.mean(rank["loss"] for rank in ranks),
            "parameters": ranks[0]["parameters"]}


def report(options, document):
    """Prints the table, writes the file: the exit code."""
    runs = document["runs"]
    for failure in disagreements(runs):
        document["failures"].append(failure)
        log(failure)
    if runs:
        print(f"{runs[0]['parameters'] / 1e6:.1f} million parameters, {options.ranks} ranks, "
              f"{options.steps} steps a round; median (min..max) over rounds\n")
        print("\n".join(table(runs)), flush=True)
    if options.json:
        write_json(options.json, document)
    return ERROR if document["failures"] else MET


def by_arm(runs):
    """{arm: {round: median seconds of a step}}."""
    result = {}
    for run in runs:
        result.setdefault(run["arm"], {})[run["round"]] = statistics.median(run["step_s"])
    return result


def table(runs):
    steps = by_arm(runs)
    base = steps.get(arms.BASELINE, {})
    rows = [["", "step ms", f"x {arms.BASELINE}", "loss", "rounds"]]
    for arm, times in steps.items():
        ratios = [base[one] / time for one, time in times.items() if one in base]
        losses = [run["loss"] for run in runs if run["arm"] == arm]
        rows.append([arm, text_of(spread([time * 1e3 for time in times.values()]), 2),
                     text_of(spread(ratios), 2) if ratios else "-",
                     f"{statistics.median(losses):.4f}", str(len(times))])
    return aligned(rows)


def disagreements(runs):
    """A sentence for each run whose loss is not that of the first."""
    return [f"round {run['round']}, {run['arm']}: the loss is {run['loss']:.6f}, but "
            f"{runs[0]['loss']:.6f} with {runs[0]['arm']}" for run in runs
            if abs(run["loss"] - runs[0]["loss"]) > MOST_LOSS_APART * abs(runs[0]["loss"])]


if __name__ == "__main__":
    finish(main)
