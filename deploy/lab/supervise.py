"""Runs guests side by side: starts them, passes on what they print, waits for their ends."""

import os
import selectors
import shutil
import sys
import time

import network
import private
from guest import Guest
from output import Lines, open_output

LOST = 70  # status of a guest that ended without one
TIMED_OUT = 124
BARRIERS = ".barriers"  # where deploy/lab/barrier keeps its files, inside the share
CHUNK = 1 << 16


class Run:
    def __init__(self, options, folder, share):
        self._options = options
        self._share = share
        self._selector = selectors.DefaultSelector()
        self._start = time.monotonic()
        self._guests = [Guest(rank, options, folder, share) for rank in range(options.guests)]
        self._waiting = set(self._guests)  # have not said that they are ready

    def run(self, image, accel):
        """Exit status of the whole."""
        nics = network.join(self._options.guests, self._selector)
        shutil.rmtree(self._share / BARRIERS, ignore_errors=True)  # of a run that was killed
        environment, directory = dict(os.environ), os.getcwd()
        try:
            for guest, nic in zip(self._guests, nics):
                guest.start(image, accel, nic, environment, directory)
                private.write_new(self._pid_file(guest), f"{guest.process.pid}\n")
                self._watch(guest)
            return self._wait()
        finally:
            shutil.rmtree(self._share / BARRIERS, ignore_errors=True)
            for guest in self._guests:
                guest.kill()
                self._pid_file(guest).unlink(missing_ok=True)

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
        def read(_events):
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
                self._say(f"guest {guest.rank} is ready after {self._elapsed():.1f} s")
                self._no_longer_waits(guest)
            case ["exit", status, out, err] if (status + out + err).isdigit():
                guest.set_status(int(status), {"stdout": int(out), "stderr": int(err)})
                self._say(f"guest {guest.rank}: COMMAND ends with {status} after "
                          f"{self._elapsed():.1f} s")
            case ["failed", *sentence]:
                self._lose(guest, " ".join(sentence))

    def _no_longer_waits(self, guest):
        """COMMAND starts everywhere when it can start everywhere: servers are there for clients."""
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
            words = "".join(f"\n  {line}" for line in guest.last_words())
            self._lose(guest, f"ended without an exit status{words}")

    def _lose(self, guest, sentence):
        print(f"lab: guest {guest.rank}: {sentence}", file=sys.stderr)
        guest.set_status(LOST)
        self._no_longer_waits(guest)

    def _wait(self):
        while not all(guest.over() for guest in self._guests):
            left = self._options.timeout - self._elapsed()
            if left <= 0:
                print(f"lab: the time limit of {self._options.timeout} s (--timeout) has passed",
                      file=sys.stderr)
                return TIMED_OUT
            for key, events in self._selector.select(left):
                if key.fileobj.fileno() >= 0:  # not closed by a handler of this very round
                    key.data(events)
            if self._options.fail_fast and any(guest.failed() for guest in self._guests):
                break
        return max(guest.status or 0 for guest in self._guests)

    def _elapsed(self):
        return time.monotonic() - self._start

    def _say(self, text):
        if self._options.verbose:
            print(f"lab: {text}", file=sys.stderr)
