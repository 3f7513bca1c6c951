"""Runs the programs of a measurement: a server and its client, each at its end of a link."""

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import time

START_LIMIT_S = 10
END_LIMIT_S = 10
SET_UP_LIMIT_S = 60  # on top of the measurement itself
LISTENING = "0A"  # the state's name in /proc/net/tcp


class Failed(Exception):
    """A measurement failed; the text names the program and its last message."""


def free_port():
    """A port that is free at the moment, for a server that needs a port number."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def exchange(link, server, client, seconds, tcp_port):
    """Starts `server`, runs `client` when the server listens on `tcp_port`, and returns the
    standard output of the client.
    """
    environment = {**os.environ, "PACECAR_NICS": link.nic}
    with contextlib.ExitStack() as stack:
        serving = started(stack, link.server_prefix, server, environment)
        serving.wait_for_port(tcp_port)
        asking = started(stack, link.client_prefix, client, environment)
        if not asking.ends_well(seconds + SET_UP_LIMIT_S):
            raise Failed(f"{asking.complaint()}; its server: {serving.complaint()}")
        if not serving.ends_well(END_LIMIT_S):
            raise Failed(f"the server of {serving.complaint()}")
        return asking.output()


@contextlib.contextmanager
def uninterrupted():
    """Delays SIGINT and SIGTERM until the end of the body, which starts something or ends it."""
    came = []
    before = {number: signal.signal(number, lambda number, _: came.append(number))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def started(stack, *arguments):
    """A Process that ends with the stack, also if an interrupt comes while it is started."""
    with uninterrupted():
        return stack.enter_context(Process(*arguments))


def wait_until(done, limit_s, pause_s=0.01):
    """Whether done() becomes true within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def ends_within(process, limit_s):
    """Whether this Popen's process has ended, or does so within `limit_s` seconds.

    Popen.poll() and Popen.wait(limit) may be left by an interrupt with their lock taken; the
    wait() of the clean-up would then never return.
    """
    if process.returncode is not None:
        return True
    end = os.pidfd_open(process.pid)
    try:
        watch = select.poll()
        watch.register(end, select.POLLIN)
        if not watch.poll(limit_s * 1000):
            return False
    finally:
        os.close(end)
    process.wait()
    return True


class Process:
    """A program whose output goes to files: no pipe can fill up."""

    def __init__(self, prefix, argv, environment):
        self.name = pathlib.Path(argv[0]).name
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        # A process group of its own: Ctrl-C reaches only this program, which then ends its
        # children. But no session: Linux schedules sessions as groups (autogroup), and 6.18 can
        # let one that polls starve the others for seconds.
        self._process = subprocess.Popen([*prefix, *map(str, argv)], env=environment,
                                         stdin=subprocess.DEVNULL, stdout=self._output,
                                         stderr=self._errors, preexec_fn=os.setpgrp)

    @property
    def pid(self):
        return self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if not self.ended():
            # The whole process group: a program may have forked the other end.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()
        self._errors.close()

    def ends_well(self, limit_s):
        return ends_within(self._process, limit_s) and self._process.returncode == 0

    def ended(self):
        return ends_within(self._process, 0)

    def stop(self):
        """Ends it by SIGTERM; fails unless its exit code is 0."""
        self._process.terminate()
        if not self.ends_well(END_LIMIT_S):
            raise Failed(self.complaint())

    def wait_for_port(self, port):
        # Reads /proc: a server of one client would take a test connection for its client.
        self.wait_for(lambda: self._listens(port), "the server of ")

    def wait_for(self, ready, role="", others=()):
        """Fails when this process or another ends before ready(), or after START_LIMIT_S."""
        every = [self, *others]
        wait_until(lambda: ready() or any(one.ended() for one in every), START_LIMIT_S)
        if not ready():
            ended = [one for one in every if one.ended()]
            raise Failed(role + (ended or every)[0].complaint())

    def _listens(self, port):
        wanted = f":{port:04X}"
        for family in ("tcp", "tcp6"):
            try:
                table = pathlib.Path(f"/proc/{self._process.pid}/net/{family}").read_text("ascii")
            except OSError:  # it has ended, or the host lacks IPv6
                continue
            for line in table.splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if local.endswith(wanted) and state == LISTENING:
                    return True
        return False

    def output(self):
        return read_all(self._output)

    def errors(self):
        return read_all(self._errors)

    def complaint(self):
        lines = (self.errors().strip() or self.output().strip()).splitlines()
        messages = [line for line in lines if any(map(str.isalpha, line))]
        end = f"ended with {self._process.returncode}" if self.ended() else "does not end"
        return f"{self.name} {end}" + (f", saying '{messages[-1]}'" if messages else "")


def parse_iperf3(output):
    """Its JSON; with an error its exit code is 0."""
    result = json.loads(output)
    if "error" in result:
        raise Failed(f"iperf3 reports '{result['error']}'")
    return result


def read_all(file):
    file.seek(0)
    return file.read()


def write_whole(file, text):
    """Writes the file under another name first, so that nobody reads an unfinished file."""
    unfinished = file.with_name(file.name + ".unfinished")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(file)


def write_json(file, document):
    write_whole(file, json.dumps(document, indent=1) + "\n")
