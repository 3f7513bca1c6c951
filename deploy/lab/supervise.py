"""Runs guests side by side: starts them, passes on what they print, waits for their ends."""

import os
import selectors
import sys
import time

import network
from guest import LOST, Guest

TIMED_OUT = 124
CHUNK = 1 << 16


class Run:
    def __init__(self, options, folder, share):
        self._options = options
        self._share = share
        self._selector = selectors.DefaultSelector()
        self._start = time.monotonic()
        self._guests = [Guest(rank, options, folder, share) for rank in range(options.guests)]

    def run(self, image, accel):
        """Exit status of the whole."""
        nics = network.join(self._options.guests, self._selector)
        environment, directory = dict(os.environ), os.getcwd()
        try:
            for guest, nic in zip(self._guests, nics):
                guest.start(image, accel, nic, environment, directory)
                self._pid_file(guest).write_text(f"{guest.process.pid}\n", encoding="ascii")
                for name, sock in guest.streams.items():
                    sock.setblocking(False)
                    self._selector.register(sock, selectors.EVENT_READ,
                                            self._reader(guest, name, sock))
            return self._wait()
        finally:
            for guest in self._guests:
                guest.kill()
                self._pid_file(guest).unlink(missing_ok=True)

    def _pid_file(self, guest):
        return self._share / f"guest.{guest.rank}.pid"

    def _reader(self, guest, name, sock):
        if name == "control":
            sink = Lines(lambda line: self._on_report(guest, line.decode(errors="replace").split()))
        else:
            sink = self._output(guest, name)

        def read(_events):
            try:
                data = sock.recv(CHUNK)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if data:
                sink.write(data)
                return
            sink.close()
            self._selector.unregister(sock)
            sock.close()
            del guest.streams[name]
            if not guest.streams:
                self._on_end(guest)
        return read

    def _output(self, guest, name):
        if self._options.output:
            suffix = "out" if name == "stdout" else "err"
            return open(self._options.output / f"{guest.rank}.{suffix}", "wb", buffering=0)
        target = (sys.stdout if name == "stdout" else sys.stderr).buffer
        if self._options.guests == 1:
            return Plain(target)
        prefix = b"" if self._options.no_prefix else b"[%d] " % guest.rank

        def write_line(line):
            target.write(prefix + line + b"\n")
            target.flush()
        return Lines(write_line)

    def _on_report(self, guest, words):
        if words == ["started"]:
            self._say(f"guest {guest.rank}: COMMAND starts after {self._elapsed():.1f} s")
        elif len(words) == 2 and words[0] == "exit" and words[1].isdigit():
            guest.status = int(words[1])
            self._say(f"guest {guest.rank}: COMMAND ends with {guest.status} after "
                      f"{self._elapsed():.1f} s")

    def _on_end(self, guest):
        guest.kill()
        if guest.status is not None:
            return
        guest.status = 0 if guest.rank in self._options.may_die else LOST
        if guest.status:
            words = "".join(f"\n  {line}" for line in guest.last_words())
            print(f"lab: guest {guest.rank} ended without an exit status{words}", file=sys.stderr)

    def _wait(self):
        while any(guest.streams for guest in self._guests):
            left = self._options.timeout - self._elapsed()
            if left <= 0:
                print(f"lab: the time limit of {self._options.timeout} s (--timeout) has passed",
                      file=sys.stderr)
                return TIMED_OUT
            for key, events in self._selector.select(left):
                if key.fileobj.fileno() >= 0:  # not closed by a handler of this very round
                    key.data(events)
            if self._options.fail_fast and any(guest.status for guest in self._guests):
                break
        return max(guest.status or 0 for guest in self._guests)

    def _elapsed(self):
        return time.monotonic() - self._start

    def _say(self, text):
        if self._options.verbose:
            print(f"lab: {text}", file=sys.stderr)


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


class Plain:
    """Passes bytes on as they come."""

    def __init__(self, target):
        self._target = target

    def write(self, data):
        self._target.write(data)
        self._target.flush()

    def close(self):
        pass
