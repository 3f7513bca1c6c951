"""Runs jobs in random order, round by round, so that other load affects all arms alike; and starts,
watches and ends the ranks of one job together."""

import contextlib
import dataclasses
import os
import pathlib
import random
import tempfile
import time

import arms
import bridged
from console import log, progress
from exchange import Failed, Process, uninterrupted

LOOK_EVERY_S = 0.02
LEAVE_LIMIT_S = 5  # for the other ranks to print their errors, after one has failed
LAST_LINES = 4


def interleaved(cells, run, options, failures, done=(), left_out=None):
    """(round, cell, result of `run(cell)`) of each run that succeeded.

    The failure of a cell is logged and added to `failures`, and the cell's name to `left_out`;
    cells in `left_out` do not run. The (round, cell's name) in `done`, of an earlier measurement,
    do not run again: the order depends on the seed and the round alone. `options` has seed, rounds,
    and budget in seconds, 0 for no limit: after the first run, no run starts that may not end
    within the budget.
    """
    left_out = [] if left_out is None else left_out
    cells = list(cells)
    begin, longest = time.monotonic(), 0
    for number in range(1, options.rounds + 1):
        order = list(cells)
        random.Random(f"{options.seed}/{number}").shuffle(order)
        for cell in order:
            if str(cell) in left_out or (number, str(cell)) in done:
                continue
            place = f"round {number} of {options.rounds}, {cell}"
            run_begin = time.monotonic()
            if options.budget and longest and run_begin - begin + longest > options.budget:
                log(f"the {options.budget:g} s end before {place}")
                return
            progress(place)
            try:
                result = run(cell)
            except Failed as reason:
                left_out.append(str(cell))
                failures.append(f"{place}: {reason}")
                log(failures[-1])
            else:
                yield number, cell, result
            longest = max(longest, time.monotonic() - run_begin)
    progress("")


@dataclasses.dataclass(frozen=True)
class Rank:
    argv: list
    environment: dict
    log: pathlib.Path  # written by NCCL
    prefix: tuple = ()  # of the command line, to run it in its network namespace


@dataclasses.dataclass(frozen=True)
class Setting:
    """Parameters that all jobs of a measurement share."""
    plugin: pathlib.Path | None
    client: dict  # environment variables for MPS
    folder: pathlib.Path
    limit_s: float
    hosts: object = bridged.Here()


def run_arm(arm, ranks, argv, setting):
    """Runs `argv(rank, folder)` as each rank and returns their standard outputs.

    Raises Failed when a rank fails or does not end, or NCCL's log shows another network than `arm`.
    """
    with tempfile.TemporaryDirectory(dir=setting.folder) as name:
        place = pathlib.Path(name)
        made = []
        for number in range(ranks):
            log = place / f"nccl.{number}.log"
            environment = {**os.environ, **setting.client,
                           **arms.environment(arm, number, setting.plugin, log,
                                              setting.hosts.interface)}
            made.append(Rank(argv(number, place), environment, log, setting.hosts.prefix(number)))
        outputs = run(made, setting.limit_s)
        for number, rank in enumerate(made):
            if why := arms.complaint(arm, nccl_log(rank)):
                raise Failed(f"rank {number}: {why}")
        return outputs


def nccl_log(rank):
    return rank.log.read_text("utf-8", "replace") if rank.log.is_file() else ""


def run(ranks, limit_s):
    """Each rank's standard output; Failed when one fails or they do not end."""
    with contextlib.ExitStack() as stack:
        with uninterrupted():
            processes = [stack.enter_context(Process(rank.prefix, rank.argv, rank.environment))
                         for rank in ranks]
        late = not wait(processes, limit_s)
        bad = [number for number, process in enumerate(processes)
               if process.ended() and not process.ends_well(0)]
        if bad or late:
            raise Failed(failure_text(ranks, processes, bad, limit_s))
        return [process.output() for process in processes]


def wait(processes, limit_s):
    """True when all have ended, or one has failed; False when they take too long."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        ended = [process for process in processes if process.ended()]
        if len(ended) == len(processes):
            return True
        if not all(process.ends_well(0) for process in ended):
            deadline = min(deadline, time.monotonic() + LEAVE_LIMIT_S)
        time.sleep(LOOK_EVERY_S)
    return any(process.ended() and not process.ends_well(0) for process in processes)


def failure_text(ranks, processes, bad, limit_s):
    """What failed, with the last lines of the ranks' output and of NCCL's logs."""
    if bad:
        head = "; ".join(f"rank {number}: {processes[number].complaint()}" for number in bad)
    else:
        head = f"the job did not end within {limit_s:g} s and was killed"
    lines = [head]
    for number, (rank, process) in enumerate(zip(ranks, processes)):
        lines += [f"  rank {number}: {line}" for line in last_lines(process.output())]
        lines += [f"  rank {number}, NCCL: {line}" for line in last_lines(nccl_log(rank))]
    return "\n".join(lines)


def last_lines(text):
    return text.strip().splitlines()[-LAST_LINES:]
