"""Rounds in which every arm runs once; the others' times are related to the first arm's.

Figures of a run are {case: seconds}; an arm whose run failed is not in its round.
"""

from console import progress, log
from exchange import Failed
from report import spread, text_of


def one_round(options, number, run, failures):
    """Runs every arm once, in each round another one first: {arm: what `run(arm)` returns}."""
    first = number % len(options.arms)
    result = {}
    for arm in options.arms[first:] + options.arms[:first]:
        progress(f"round {number + 1} of {options.rounds}: {arm}")
        try:
            result[arm] = run(arm)
        except Failed as reason:
            failures.append(f"round {number + 1}, {arm}: {reason}")
            log(failures[-1])
    progress("")
    return result


def summary(arms, rounds, case):
    """The spread of each arm's time for a case, and of the others' over the first arm's."""
    times = {arm: [one[arm][case] for one in rounds if arm in one] for arm in arms}
    ratios = {arm: [one[arm][case] / one[arms[0]][case] for one in rounds
                    if arm in one and arms[0] in one] for arm in arms[1:]}
    return {"seconds": {arm: spread(some) for arm, some in times.items() if some},
            "speedup_of_first": {arm: spread(some) for arm, some in ratios.items() if some}}


def headings(arms):
    return [*(f"{arm}, us" for arm in arms), *(f"{arms[0]}'s speed of {arm}'s" for arm in arms[1:])]


def cells(arms, one, decimals):
    """The cells of a summary, for a row under `headings(arms)`."""
    times, ratios = one["seconds"], one["speedup_of_first"]
    return [*(f"{times[arm]['median'] * 1e6:.{decimals}f}" if arm in times else "-"
              for arm in arms),
            *(text_of(ratios[arm], 2) if arm in ratios else "-" for arm in arms[1:])]
