"""The one limit of time for what tests start and wait for. It only ends a hang, so it is far more
than anything takes on a busy machine; ctest's own (PACECAR_HANGS_AFTER) is longer still."""

LIMIT_S = 500
