"""How much the tests of whole programs do, and how long they may take."""

import os

# The one limit of time for what they start and wait for. It only ends a hang, so it is far more
# than a busy machine needs; ctest's own (PACECAR_HANGS_AFTER) is longer still.
LIMIT_S = 500
ALL = os.environ.get("TESTS_ALL") == "1"


def further(*variants):
    """Variants that only a full run tries."""
    return variants if ALL else ()


def draws(everything):
    """So many of `everything` rounds or seeds (as tests/support/draws.h)."""
    return everything if ALL else (everything + 3) // 4
