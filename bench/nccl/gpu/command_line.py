"""Options and exit codes that the programs of bench/nccl share."""

import argparse
import pathlib
import subprocess

import arms
import toolkit
from console import exit_with, log, writable

MET, MISSED, ERROR, SKIPPED = 0, 1, 2, 77


def arm_list(text):
    try:
        found = [arms.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError("an arm is named twice")
    return found


def add_common(add):
    """Options of both programs, for a parser's add_argument."""
    add("--seed", type=int, default=1, help="seed of the order of the runs; default 1")
    add("--plugin", type=pathlib.Path, metavar="FILE", help="default: the one in build/")
    add("--no-mps", action="store_true", help="without MPS: ranks that share a GPU take turns")
    add("-J", "--output_file", "--json", dest="json", type=writable, metavar="FILE",
        help="write every figure to this file")


def recorded(options):
    """The options for the JSON."""
    values = {**vars(options), "arms": ",".join(arm.name for arm in options.arms)}
    return {name: str(value) for name, value in values.items()}


def finish(main):
    """Runs `main` and exits with what it returns."""
    exit_with(lambda: status_of(main))


def status_of(main):
    try:
        return main()
    except toolkit.Skipped as reason:
        log(f"skipped: {reason}")
        return SKIPPED
    except (toolkit.Broken, subprocess.SubprocessError) as reason:
        log(reason)
        return ERROR
