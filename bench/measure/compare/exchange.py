"""One measurement: a server and its client, each in its place on a link."""

import contextlib
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
    """A measurement came to nothing; the text says which program and what it said."""


def free_port(kind=socket.SOCK_STREAM):
    """A port that nobody has at the moment, for a server that must be told one."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def exchange(link, server, client, seconds, tcp_port=None):
    """Starts `server`, then runs `client` to its end: what that wrote to its standard output.

    With `tcp_port` the client waits until the server listens there; a server without one answers
    to a client that asks again.
    """
    environment = {**os.environ, "PACECAR_NICS": link.nic}
    with contextlib.ExitStack() as stack:
        serving = started(stack, link.server_prefix, server, environment)
        if tcp_port is not None:
            serving.wait_for_port(tcp_port)
        asking = started(stack, link.client_prefix, client, environment)
        if not asking.ends_well(seconds + SET_UP_LIMIT_S):
            raise Failed(f"{asking.complaint()}; its server: {serving.complaint()}")
        if not serving.ends_well(END_LIMIT_S):
            raise Failed(f"the server of {serving.complaint()}")
        return asking.output()


@contextlib.contextmanager
def uninterrupted():
    """An interrupt waits until what is started here is known to those who would end it."""
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
    """A program with its output in files: no pipe fills up, and a late reader finds everything."""

    def __init__(self, prefix, argv, environment):
        self.name = pathlib.Path(argv[0]).name
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        # A session of its own: Ctrl-C reaches this program alone, which then ends its children.
        self._process = subprocess.Popen([*prefix, *map(str, argv)], env=environment,
                                         stdin=subprocess.DEVNULL, stdout=self._output,
                                         stderr=self._errors, start_new_session=True)

    @property
    def pid(self):
        return self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if not self.ended():
            # The whole session: a program may have forked the other side.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()
        self._errors.close()

    def ends_well(self, limit_s):
        return ends_within(self._process, limit_s) and self._process.returncode == 0

    def ended(self):
        return ends_within(self._process, 0)

    def stop(self):
        """Asks it to end; what it then says is its output."""
        self._process.terminate()
        if not self.ends_well(END_LIMIT_S):
            raise Failed(self.complaint())

    def wait_for_port(self, port):
        # Looking, not connecting: a server for one client would take a test connection for it.
        deadline = time.monotonic() + START_LIMIT_S
        while not self._listens(port):
            if self.ended() or time.monotonic() > deadline:
                raise Failed(f"the server of {self.complaint()}")
            time.sleep(0.01)

    def _listens(self, port):
        wanted = f":{port:04X}"
        for family in ("tcp", "tcp6"):
            try:
                table = pathlib.Path(f"/proc/{self._process.pid}/net/{family}").read_text("ascii")
            except OSError:  # it has ended, or there is no IPv6
                continue
            for line in table.splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if local.endswith(wanted) and state == LISTENING:
                    return True
        return False

    def output(self):
        return read_all(self._output)

    def complaint(self):
        lines = (read_all(self._errors).strip() or self.output().strip()).splitlines()
        said = [line for line in lines if any(map(str.isalpha, line))]
        end = f"ended with {self._process.returncode}" if self.ended() else "does not end"
        return f"{self.name} {end}" + (f", saying '{said[-1]}'" if said else "")


def read_all(file):
    file.seek(0)
    return file.read()


def write_whole(file, text):
    """Who sees the file can read all of it."""
    unfinished = file.with_name(file.name + ".unfinished")
    unfinished.write_text(text, "ascii")
    unfinished.rename(file)
