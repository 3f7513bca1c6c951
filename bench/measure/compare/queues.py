"""Queues of the kernel, read by netlink: starting `tc` takes too long. Samplers of such figures."""

import collections
import contextlib
import ctypes
import os
import random
import socket
import struct
import threading
import time

from exchange import Failed

RTM_GETQDISC, NLM_F_REQUEST, NLM_F_ECHO = 38, 1, 8
TC_H_ROOT = 0xFFFFFFFF
TCA_STATS = 3

# The state of the queue of an interface at `at_s` (CLOCK_MONOTONIC): bytes in it, bytes that have
# left it so far, packets that it has dropped so far.
Sample = collections.namedtuple("Sample", ["at_s", "bytes", "sent_bytes", "drops", "interface"],
                                defaults=[None])


class Qdisc:
    def __init__(self, interface, handle=0, namespace=None):
        """`handle`: 0x100000 is "10:"; 0: the interface's root."""
        self._interface = interface
        with entered(namespace):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            index = socket.if_nametoindex(interface)
        tcmsg = struct.pack("=BxxxiIII", 0, index, handle, 0 if handle else TC_H_ROOT, 0)
        self._question = struct.pack("=IHHII", 16 + len(tcmsg), RTM_GETQDISC,
                                     NLM_F_REQUEST | NLM_F_ECHO, 1, 0) + tcmsg
        self.sample()  # fails here, not in a thread

    def sample(self):
        self._socket.send(self._question)
        attributes = self._socket.recv(1 << 16)[16 + 20:]
        while attributes:
            length, kind = struct.unpack_from("=HH", attributes)
            if kind == TCA_STATS:  # struct tc_stats
                sent, _, drops, _, _, _, _, queued = struct.unpack_from("=Q7I", attributes, 4)
                return Sample(time.monotonic(), queued, sent, drops, self._interface)
            attributes = attributes[(length + 3) & ~3:]
        raise Failed("the kernel has no statistics of the queue")


@contextlib.contextmanager
def entered(namespace):
    """This thread in the network namespace; None: where it is."""
    if namespace is None:
        yield
        return
    with (open("/proc/thread-self/ns/net", "rb") as here,
          open(f"/run/netns/{namespace}", "rb") as there):
        enter(there)
        try:
            yield
        finally:
            enter(here)


def enter(file):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {file.name}")


class Background:
    """A context that calls run() in a thread. run() returns soon when `stop` is set."""

    def __init__(self):
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self.run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self.stop.set()
        self._thread.join()


class Sampler(Background):
    """Calls sample() at random times, so that periodic traffic is seen at all of its phases."""

    def __init__(self, mean_s, sample):
        super().__init__()
        self._mean_s, self._sample = mean_s, sample
        self.samples = []

    def run(self):
        # At a lower priority it would look only while a processor is idle.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while not self.stop.wait(random.uniform(0.5, 1.5) * self._mean_s):
            self.samples.append(self._sample())
