"""Measures NCCL over its own sockets and over Pacecar on a host that has neither compiler nor
network: checks the host, runs one part after the other within a budget, and writes one report."""

import argparse
import ctypes
import json
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # the bundle may be read-only

import bundle_folder as bundle
import host as hosts
import report_text
from console import between, exit_with, log, new_parser, usage
from exchange import ends_within, write_whole
from parts import PARTS

OK, FAILED, UNFINISHED, SKIPPED = 0, 1, 3, 77
RESERVE_S = 10      # end of the budget, for the report
LEAST_PART_S = 30   # no part is started with less time left
GRACE_S = 20        # between SIGTERM and SIGKILL
REPORT_EVERY_S = 5
PR_SET_PDEATHSIG = 1
EPILOG = """\
Every part writes its figures to OUTPUT/parts. After a run that has ended, by its budget or
otherwise, the same command continues. To measure a part anew, delete its file there.
OUTPUT/report.md and results.json are rewritten every few seconds.

Examples:
  ./run --check                 what this host lacks, with advice; measures nothing
  ./run                         everything, for hours
  ./run --budget 540            nine minutes of it; repeat until all is done
  ./run --part first-look       one part; see --list
Exit codes: 0 all that this host can do is done, 1 a part failed, 2 wrong usage, 3 the same command
continues, 77 nothing can be measured here."""


def main():
    options = parse()
    if options.list:
        print("\n".join(f"{part.name:18}{part.what}" for part in PARTS))
        return OK
    try:
        (options.output / "parts").mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        return usage(f"{options.output} cannot be made ({reason}): name another folder with "
                     "--output")
    host = hosts.examine(options.output, options.nccl, options.torch)
    print("\n".join(map(str, host.findings)), flush=True)
    if not host.ready:
        report(host, {})
        log("nothing can be measured here: see what is MISSING above")
        return SKIPPED
    if options.check:
        log("this host can be measured")
        return OK
    states = {}
    try:
        return measure(host, options, states)
    finally:
        report(host, states)


def parse():
    parser = new_parser("./run", __doc__, EPILOG)
    add = parser.add_argument
    add("--check", action="store_true", help="look at the host, and measure nothing")
    add("--list", action="store_true", help="print the parts, and measure nothing")
    add("--part", type=part_list, default=list(PARTS), metavar="LIST", help="default: all")
    add("--budget", type=between(float, 0, 1e6), default=0, metavar="S",
        help="end within S seconds; default 0: end when all is done")
    add("--timeout", type=between(float, 1, 86_400), default=480, metavar="S",
        help="kill a job of ranks that takes longer, and skip its arm; default 480")
    add("--output", type=pathlib.Path, default=pathlib.Path("results"), metavar="DIR",
        help="default results, in the current folder")
    add("--nccl", default="", metavar="PATH", help="libnccl.so.2, or its folder; default: found")
    add("--torch", default="", metavar="PYTHON", help="a Python with PyTorch; default: found")
    options = parser.parse_args()
    options.output = options.output.resolve()
    return options


def part_list(text):
    named = {part.name: part for part in PARTS}
    for name in text.split(","):
        if name not in named:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(named)}")
    return [named[name] for name in text.split(",")]


def measure(host, options, states):
    """One round of every part, then the other rounds: an interrupted run has some of each part."""
    deadline = time.monotonic() + options.budget if options.budget else None
    for part in options.part:
        if missing := [need for need in part.needs if need not in host.has]:
            states[part.name] = f"left out: this host has no {', '.join(missing)}"
    report(host, states)
    for rounds in sorted({1, max(part.rounds for part in PARTS)}):
        for part in options.part:
            if part.name in states or part.finished(host.output, rounds):
                continue
            left = deadline - time.monotonic() - RESERVE_S if deadline else None
            if left is not None and left < LEAST_PART_S:
                log(f"the {options.budget:g} s are over: the same command continues; see "
                    f"{host.output / 'report.md'}")
                return UNFINISHED
            log(f"{part.name}: {part.what}")
            if why := run_part(part, host, rounds, left, options.timeout, states):
                states[part.name] = f"failed: {why}"
                log(f"{part.name} failed: {why}")
    undone = [part.name for part in options.part
              if part.name not in states and not part.finished(host.output, part.rounds)]
    log(f"done, but for {', '.join(undone)}" if undone else "done")
    log(f"see {host.output / 'report.md'}")
    if any(state.startswith("failed") for state in states.values()):
        return FAILED
    return (UNFINISHED if deadline else FAILED) if undone else OK


def run_part(part, host, rounds, left, timeout, states):
    """Why the part failed; None when it succeeded, or was interrupted by the budget."""
    limits = ["--budget", left or 0, "--timeout", timeout]
    command = list(map(str, part.command(host, rounds, limits)))
    log_file = host.output / "parts" / f"{part.name}.log"
    with open(log_file, "w+", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=end_with_parent)
        try:
            late = watched(process, part, host, left, states)
        finally:
            end(process)
        file.seek(0)
        output = file.read().strip().splitlines()
    if late:  # the interrupted run is repeated next time
        return None
    # 1: a goal was missed or a test failed; 2: an arm failed. The other results count.
    document = part.read(host.output)
    if process.returncode in (0, 1, 2) and part.measured(document):
        return None
    why = (part.failures(document) or output or ["no output"])[-1].splitlines()[0]
    return f"exit code {process.returncode}: {why}; {log_file} has the rest"


def watched(process, part, host, left, states):
    """Waits for the process and keeps the report up to date; True when the budget is over."""
    deadline, seen = None if left is None else time.monotonic() + left + RESERVE_S / 2, None
    while deadline is None or time.monotonic() < deadline:
        if ends_within(process, REPORT_EVERY_S):
            return False
        file = part.file(host.output)
        changed = file.stat().st_mtime_ns if file.is_file() else None
        if changed != seen:
            seen = changed
            report(host, states)
    return True


def end(process):
    """SIGTERM first: the process then ends its ranks, deletes its namespaces and ends MPS."""
    if not ends_within(process, 0):
        process.terminate()
        if not ends_within(process, GRACE_S):
            process.kill()
            process.wait()


def end_with_parent():
    """Runs in the child, so that no ranks stay when this program is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def report(host, states):
    """Rewrites both files."""
    documents = {part.name: part.read(host.output) for part in PARTS}
    whole = {"schema_version": 1, "bundle": bundle.manifest(), "states": states,
             "host": [vars(finding) for finding in host.findings], "parts": documents}
    write_whole(host.output / "report.md",
                "\n".join(report_text.write(host, PARTS, states)) + "\n")
    write_whole(host.output / "results.json", json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    sys.argv[0] = "run"  # the name under which the user started it
    exit_with(main)
