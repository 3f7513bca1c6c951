"""Measures NCCL over its own sockets and over Pacecar on a host that has neither compiler nor
network: checks the host, runs part after part within a time, and writes one report."""

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
RESERVE_S = 10      # of a budget, for the report
LEAST_PART_S = 30   # less is not worth a start
GRACE_S = 20
REPORT_EVERY_S = 5
PR_SET_PDEATHSIG = 1
EPILOG = """\
Every part keeps what it has measured in OUTPUT/parts; a run that ended, by its budget or otherwise,
is gone on with by the same command. To measure a part anew, delete its file there. OUTPUT/report.md
and results.json are up to date all along.

Examples:
  ./run --check                 what this host lacks, with cures; measures nothing
  ./run                         everything, for hours
  ./run --budget 540            ten minutes' worth; again, until it says that all is done
  ./run --part first-look       one part; see --list
Exit codes: 0 all that this host can do is done, 1 a part failed, 2 wrong usage, 3 goes on with the
same command, 77 nothing can be measured here."""


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
        log("nothing can be measured here: cure what is MISSING above")
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
    add("--list", action="store_true", help="the parts; runs nothing")
    add("--part", type=part_list, default=list(PARTS), metavar="LIST", help="default: all")
    add("--budget", type=between(float, 0, 1e6), default=0, metavar="S",
        help="end within so many seconds; default 0: when all is done")
    add("--timeout", type=between(float, 1, 86_400), default=480, metavar="S",
        help="a job of ranks that takes longer is killed, and its arm left out; default 480")
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
    """Every part once, then to their ends: what is cut short has something of everything."""
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
                log(f"the {options.budget:g} s are over: the same command goes on; see "
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
    """Why it failed; None when it went well, or was cut short by the budget."""
    command = list(map(str, part.command(host, rounds, left or 0, timeout)))
    log = host.output / "parts" / f"{part.name}.log"
    with open(log, "w+", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=end_with_parent)
        try:
            late = watched(process, part, host, left, states)
        finally:
            end(process)
        file.seek(0)
        said = file.read().strip().splitlines()
    if late:  # what it was at is measured next time
        return None
    # 1 is a missed goal or a test that failed, 2 an arm that failed: beside the others' results.
    document = part.read(host.output)
    if process.returncode in (0, 1, 2) and part.measured(document):
        return None
    why = (part.failures(document) or said or ["it said nothing"])[-1].splitlines()[0]
    return f"exit code {process.returncode}: {why}; {log} has the rest"


def watched(process, part, host, left, states):
    """Whether it takes too long; the report follows what it measures."""
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
    """Asks it first: it then ends its ranks, takes away its namespaces and ends MPS."""
    if not ends_within(process, 0):
        process.terminate()
        if not ends_within(process, GRACE_S):
            process.kill()
            process.wait()


def end_with_parent():
    """In a child: whoever kills this program does not leave ranks that go on."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def report(host, states):
    """Writes both files again."""
    documents = {part.name: part.read(host.output) for part in PARTS}
    whole = {"schema_version": 1, "bundle": bundle.manifest(), "states": states,
             "host": [vars(finding) for finding in host.findings], "parts": documents}
    texts = {"report.md": "\n".join(report_text.write(host, PARTS, states)) + "\n",
             "results.json": json.dumps(whole, indent=1) + "\n"}
    for name, text in texts.items():
        write_whole(host.output / name, text)


if __name__ == "__main__":
    sys.argv[0] = "run"  # as whoever started it knows it
    exit_with(main)
