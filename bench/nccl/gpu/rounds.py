"""Runs in random order, round by round: what disturbs the machine disturbs all arms alike."""

import random
import time

from console import progress, log
from exchange import Failed


def interleaved(cells, run, options, failures, done=(), left_out=None):
    """(round, cell, what `run(cell)` gives) of each run that went well.

    A cell that fails is told, added to `failures`, and its name to the list `left_out`, whose cells
    do not run. Nor do the (round, name of a cell) in `done`, which an earlier measurement has: the
    order depends on the seed and the round alone. `options` has seed, rounds, and budget: seconds
    within which no run begins, but the first, that may not end; 0 for no limit.
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
