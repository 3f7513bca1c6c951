"""Runs in random order, round by round, so that other load affects all arms alike."""

import random
import time

from console import progress, log
from exchange import Failed


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
