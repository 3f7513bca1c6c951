"""Runs guests at the same time: starts them, prints their output, waits until all have ended."""

import os
import selectors
import shutil
import sys
import time

import clock
import network
import private
from guest import Guest

LOST = 70  # status of a guest that ended without one
TIMED_OUT = 124
BARRIERS = ".barriers"  # folder of deploy/lab/barrier inside the share
CLOCK = ".clock"        # file in the share: seconds of the laboratory's clock, and slowness in %
TICK_S = 0.5
BOOT_S = 180  # of the laboratory's clock
CHUNK = 1 << 16


class NotBooted(Exception):
    """A guest is not ready after BOOT_S: its kernel hangs. COMMAND has started in none."""


class Run:
    def __init__(self, options, folder, share):
        self._options = options
        self._share = share
        self._selector = selectors.DefaultSelector()
        self._clock = clock.Clock()
        self._guests = [Guest(rank, options, folder, share) for rank in range(options.guests)]
        self._waiting = set(self._guests)  # for their report "ready"

    def run(self, image, accel):
        """Returns the exit status of the whole run."""
        nics = network.join(self._options.guests)
        shutil.rmtree(self._share / BARRIERS, ignore_errors=True)  # of a run that was killed
        environment, directory = dict(os.environ), os.getcwd()
        self._tell_time()
        try:
            for guest, sockets in zip(self._guests, nics):
                guest.start(image, accel, sockets, environment, directory)
                self._clock.watch(guest.process.pid)
                private.write_new(self._pid_file(guest), f"{guest.process.pid}\n")
                self._watch(guest)
            return self._wait()
        finally:
            shutil.rmtree(self._share / BARRIERS, ignore_errors=True)
            for guest in self._guests:
                guest.kill()
                self._pid_file(guest).unlink(missing_ok=True)
            (self._share / CLOCK).unlink(missing_ok=True)

    def _tell_time(self):
        """For deploy/lab/limit and others in the guests. They see the old file or the new one."""
        new = self._share / f"{CLOCK}.new"
        private.write_new(new, f"{self._clock.seconds:.0f} {100 * self._clock.slowness():.0f}\n")
        new.replace(self._share / CLOCK)

    def _pid_file(self, guest):
        return self._share / f"guest.{guest.rank}.pid"

    def _watch(self, guest):
        sinks = {name: open_output(self._options, guest.rank, name)
                 for name in ["stdout", "stderr"]}
        sinks["control"] = Lines(lambda line: self._on_report(guest, line.decode().split(" ")))
        for name, sock in guest.streams.items():
            sock.setblocking(False)
            handler = self._reader(guest, name, sock, sinks[name])
            self._selector.register(sock, selectors.EVENT_READ, handler)

    def _reader(self, guest, name, sock, sink):
        def read():
            try:
                data = sock.recv(CHUNK)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if data:
                sink.write(data)
                guest.received[name] += len(data)
                return
            sink.close()
            self._selector.unregister(sock)
            sock.close()
            del guest.streams[name]
            if not guest.streams:
                self._on_end(guest)
        return read

    def _on_report(self, guest, words):
        match words:
            case ["ready"]:
                self._no_longer_waits(guest)
            case ["exit", status, out, err] if (status + out + err).isdigit():
                guest.set_status(int(status), {"stdout": int(out), "stderr": int(err)})
            case ["failed", *sentence]:
                self._lose(guest, " ".join(sentence))

    def _no_longer_waits(self, guest):
        """COMMAND starts when all guests are ready, so that clients find their servers."""
        if guest not in self._waiting:
            return
        self._waiting.remove(guest)
        if not self._waiting:
            for other in self._guests:
                other.answer(b"go\n")

    def _on_end(self, guest):
        guest.kill()
        if guest.status is not None:
            return
        if guest.rank in self._options.may_die:
            guest.set_status(0)
        else:
            self._lose(guest, "ended without an exit status", *guest.last_lines())

    def _lose(self, guest, *lines):
        print(f"lab: guest {guest.rank}: " + "\n  ".join(lines), file=sys.stderr)
        guest.set_status(LOST)
        self._no_longer_waits(guest)

    def _wait(self):
        tick = time.monotonic()
        while not all(guest.over() for guest in self._guests):
            if time.monotonic() >= tick:
                tick = time.monotonic() + TICK_S
                if self._clock.advance() >= self._options.timeout:
                    print(f"lab: the time limit of {self._options.timeout} s (--timeout) has "
                          "passed", file=sys.stderr)
                    for guest in self._guests:
                        if guest.status is None:
                            state = "is not ready" if guest in self._waiting else "has not ended"
                            self._lose(guest, state, *guest.last_lines())
                    return TIMED_OUT
                self._tell_time()
                if self._waiting and self._clock.seconds >= BOOT_S:
                    raise NotBooted
            for key, _ in self._selector.select(max(0, tick - time.monotonic())):
                key.data()
        return max(guest.status for guest in self._guests)


def open_output(options, rank, name):
    """A sink with write(bytes) and close() for `name`, which is stdout or stderr: a file, or this
    program's own stream, with the rank before each line if there are several guests."""
    if options.output:
        return open(options.output / f"{rank}.{name[3:]}", "wb", buffering=0)
    target = getattr(sys, name).buffer
    if options.guests == 1:
        return Plain(target)

    def write_line(line):
        target.write(b"[%d] %s\n" % (rank, line))
        target.flush()
    return Lines(write_line)


class Plain:
    """Writes all bytes at once, or throws."""

    def __init__(self, target):
        self._target = target

    def write(self, data):
        self._target.write(data)
        self._target.flush()

    def close(self):
        pass


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
