"""Runs in random order, round by round: what disturbs the machine disturbs all arms alike."""

import random
import time

from console import progress, say
from exchange import Failed


def interleaved(cells, run, options, failures):
    """(round, cell, what `run(cell)` gives) of each run that went well.

    A cell that fails is told, added to `failures` and left out from there on. `options` has seed,
    rounds, and budget: seconds within which no round begins that would not end; 0 for no limit.
    """
    order, cells = random.Random(options.seed), list(cells)
    begin, longest = time.monotonic(), 0
    for number in range(1, options.rounds + 1):
        round_begin = time.monotonic()
        if options.budget and round_begin - begin + longest > options.budget:
            say(f"{number - 1} of {options.rounds} rounds fit into {options.budget:g} s")
            break
        order.shuffle(cells)
        for cell in list(cells):
            place = f"round {number} of {options.rounds}, {cell}"
            progress(place)
            try:
                result = run(cell)
            except Failed as reason:
                cells.remove(cell)
                failures.append(f"{place}: {reason}")
                say(failures[-1])
                continue
            yield number, cell, result
        longest = max(longest, time.monotonic() - round_begin)
    progress("")
