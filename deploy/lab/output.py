"""Where a guest's output goes: this program's own, by lines with the rank before, or files."""

import sys


def open_output(options, rank, name):
    """A sink with write(bytes) and close() for `name`, one of stdout and stderr."""
    if options.output:
        return open(options.output / f"{rank}.{name[3:]}", "wb", buffering=0)
    target = getattr(sys, name).buffer
    if options.guests == 1:
        return Plain(target)
    prefix = b"" if options.no_prefix else b"[%d] " % rank

    def write_line(line):
        target.write(prefix + line + b"\n")
        target.flush()
    return Lines(write_line)


class Lines:
    """Collects bytes and hands on whole lines, without their ends."""

    def __init__(self, on_line):
        self._on_line = on_line
        self._partial = b""

    def write(self, data):
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._on_line(line)

    def close(self):
        if self._partial:
            self._on_line(self._partial)
            self._partial = b""


class Plain:
    """Passes bytes on as they come."""

    def __init__(self, target):
        self._target = target

    def write(self, data):
        self._target.write(data)
        self._target.flush()

    def close(self):
        pass
