"""`pacecar switch` between network namespaces, and its command line: switch_test.py BUILD_FOLDER
[unittest flags].

Nothing here asserts a speed. Tests that need namespaces are skipped where none can be made.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

WITH_SWITCH = pathlib.Path(__file__).resolve().parents[1] / "support/with_switch"
SKIPPED = 77
PROGRAM = ""

# Host 1 echoes datagrams until one says "end"; host 2 sends one datagram of each size.
ECHO = """
import os, socket
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
plain.settimeout(20)
if os.environ["SWITCH_HOST"] == "1":
    plain.bind(("192.0.2.1", 9000))
    while True:
        data, peer = plain.recvfrom(9000)
        plain.sendto(data, peer)
        if data == b"end":
            break
elif os.environ["SWITCH_HOST"] == "2":
    plain.connect(("192.0.2.1", 9000))
    plain.settimeout(0.5)
    for size in (1, 100, 1400, 4000):
        for attempt in range(20):  # until host 1 listens
            try:
                plain.send(bytes(size))
                if plain.recv(9000) == bytes(size):
                    break
            except (TimeoutError, ConnectionRefusedError):
                pass
        else:
            raise SystemExit(f"no answer of {size} bytes came back")
    for attempt in range(5):
        try:
            plain.send(b"end")
            plain.recv(9000)
            break
        except (TimeoutError, ConnectionRefusedError):
            pass
"""

# Host 2 sends a burst of ECN-capable datagrams; host 1 counts those that arrive marked.
BURST = """
import os, socket
COUNT, SIZE = 200, 1000
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if os.environ["SWITCH_HOST"] == "1":
    one.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    one.bind(("192.0.2.1", 9000))
    one.settimeout(20)
    marks = []
    while True:
        data, controls, _, peer = one.recvmsg(9000, 100)
        one.sendto(data[:4], peer)
        if data == b"end":
            break
        marks.append(next(bytes(value)[0] & 3 for _, kind, value in controls
                          if kind == socket.IP_TOS))
    first = marks.index(3) if 3 in marks else -1
    print("marks", len(marks), marks.count(3), first, flush=True)
else:
    one.connect(("192.0.2.1", 9000))
    one.settimeout(0.5)
    for attempt in range(40):  # addresses are learned before the burst
        try:
            one.send(bytes(4))
            one.recv(100)
            break
        except (TimeoutError, ConnectionRefusedError):
            pass
    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 2)
    for number in range(COUNT):
        one.send(bytes(SIZE))
    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
    for attempt in range(5):
        try:
            one.send(b"end")
            while len(one.recv(100)) != 3:
                pass
            break
        except (TimeoutError, ConnectionRefusedError):
            pass
"""


def switched(hosts, flags, program, **environment):
    """The finished run of a Python program in each host."""
    done = subprocess.run([WITH_SWITCH, str(hosts), flags, sys.executable, "-c", program],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          env={**os.environ, **environment, "PACECAR": PROGRAM})
    if done.returncode == SKIPPED:
        raise unittest.SkipTest(done.stderr.strip())
    return done


def figures(folder):
    return json.loads(pathlib.Path(folder, "figures.json").read_text(encoding="utf-8"))


class Namespaces(unittest.TestCase):
    def test_datagrams_of_all_sizes_are_forwarded_both_ways(self):
        with tempfile.TemporaryDirectory() as folder:
            done = switched(3, f"--rate 100M --interval 0.2 --json {folder}/figures.json", ECHO)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = figures(folder)
        ports = {port["name"]: port for port in document["ports"]}
        self.assertEqual(set(ports), {"port1", "port2", "port3"})
        for name in ("port1", "port2"):
            self.assertGreaterEqual(ports[name]["sent_frames"], 5)
            self.assertGreater(ports[name]["sent_bytes"], 5500)
            self.assertEqual(ports[name]["dropped"], 0)
        # Only a few broadcast frames reach a host without traffic of its own.
        self.assertLess(ports["port3"]["sent_bytes"], 2000)
        self.assertGreaterEqual(document["left_late"]["frames"], 10)
        self.assertIn("port1", done.stdout)

    def test_a_queue_marks_no_frame_below_its_threshold(self):
        with tempfile.TemporaryDirectory() as folder:
            log = f"{folder}/queue.csv"
            done = switched(2, "--rate 1G --ecn 20K --sample 10us --queue-log "
                               f"{log} --json {folder}/figures.json", BURST)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = figures(folder)
            samples = pathlib.Path(log).read_text(encoding="ascii").splitlines()[1:]
        port = next(port for port in document["ports"] if port["name"] == "port1")
        counted = next(line for line in done.stdout.splitlines() if line.startswith("marks "))
        # The same rate in and out: no queue, no mark.
        self.assertLess(port["queue"]["max_bytes"], 20 * 1024)
        self.assertEqual((port["marked"], int(counted.split()[2])), (0, 0))
        self.assertGreater(len(samples), 0)

    def test_a_log_that_cannot_be_written_is_an_error(self):
        done = switched(2, "--rate 1G --sample 10us --queue-log /dev/full", BURST)
        self.assertIn("cannot write all of '/dev/full'", done.stderr)

    def test_a_bottleneck_marks_from_its_threshold_on(self):
        with tempfile.TemporaryDirectory() as folder:
            # The sender's cable is the faster one: the burst waits in front of the receiver's.
            done = switched(2, f"--ecn 20K --json {folder}/figures.json", BURST,
                            SWITCH_RATES="10M 1G")
            self.assertEqual(done.returncode, 0, done.stderr)
            document = figures(folder)
        port = next(port for port in document["ports"] if port["name"] == "port1")
        counted = next(line for line in done.stdout.splitlines() if line.startswith("marks "))
        _, marked, first = map(int, counted.split()[1:])
        self.assertLessEqual(marked, port["marked"])  # a busy receiver may lose some
        self.assertGreater(marked, 0)
        # 20 KiB are 20 frames of 1,066 bytes: none before the 20th can have been marked.
        self.assertGreaterEqual(first, 19)
        self.assertGreater(port["queue"]["max_bytes"], 20 * 1024)


class Usage(unittest.TestCase):
    def run_switch(self, *flags):
        return subprocess.run([PROGRAM, "switch", *flags], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def test_help_names_every_flag(self):
        done = self.run_switch("--help-all")
        self.assertEqual(done.returncode, 0)
        for flag in ("--port", "--rate", "--buffer", "--ecn", "--pfc", "--trim", "--delay",
                     "--loss", "--spin", "--json", "--queue-log"):
            self.assertIn(flag, done.stdout)

    def test_wrong_flags_are_refused_in_a_sentence(self):
        ports = ("--port", "lo", "--port", "nowhere")
        for flags, words in (
                ((), "two or more with --port"),
                (("--port", "lo"), "two or more with --port"),
                (("--port", "lo", "--port", "lo"), "named twice"),
                ((*ports, "--rate", "fast"), "--rate: 'fast'"),
                ((*ports, "--rate", "0"), "--rate: '0'"),
                ((*ports, "--rate", "100"), "--rate: '100'"),  # Mb/s or Gb/s was meant
                ((*ports, "--ecn", "1K,2K,3,4"), "--ecn"),
                ((*ports, "--ecn", "1K,2K,x"), "probability"),
                (("--port", "lo", "--port", "lo", "--ecn", ""), "named twice"),  # not --ecn
                ((*ports, "--delay", "10"), "--delay"),
                ((*ports, "--loss", "2"), "--loss"),
                ((*ports, "--nic-queue", "1K"), "--nic-queue"),
                ((*ports, "--sample", "500ns"), "--sample"),
                ((*ports, "--sample", "9999999999s"), "--sample"),  # more than 2^63 ns
                (("--port", "lo,1G,2G", "--port", "b"), "INTERFACE,RATE"),
                (("--port", "lo,fast", "--port", "b"), "'fast'")):
            with self.subTest(flags=flags):
                done = self.run_switch(*flags)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)

    def test_a_nonexistent_interface_is_named(self):
        done = self.run_switch("--port", "lo", "--port", "nowhere0")
        self.assertEqual(done.returncode, 1)
        # Without the right to open a port, the error is about that right.
        self.assertRegex(done.stderr, "nowhere0|CAP_NET_RAW")


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1), "bench/pacecar").resolve())
    unittest.main()
