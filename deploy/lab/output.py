"""Writes the guests' output to this program's, with the rank before each line, or to files."""

import sys


def open_output(options, rank, name):
    """A sink with write(bytes) and close() for `name`, one of stdout and stderr."""
    if options.output:
        return open(options.output / f"{rank}.{name[3:]}", "wb", buffering=0)
    target = getattr(sys, name).buffer
    if options.guests == 1:
        return Plain(target)

    def write_line(line):
        target.write(b"[%d] %s\n" % (rank, line))
        target.flush()
    return Lines(write_line)


class Lines:
    """Collects bytes and calls on_line(line) for each complete line, without its newline."""

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
    """Writes bytes at once."""

    def __init__(self, target):
        self._target = target

    def write(self, data):
        self._target.write(data)
        self._target.flush()

    def close(self):
        pass
