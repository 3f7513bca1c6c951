"""Strangers at the servers of the command line: stranger_test.py PROGRAM.

Whatever strangers send or leave out, the server serves the next client.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import unittest

from limits import LIMIT_S

PROGRAM = ""

DEEP = b"[" * 80000 + b"]" * 80000
GARBAGE = (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\0", b"null\n", b"{}\n", b'{"type":7}\n',
           b'{"type":"error","message":7}\n', b'{"type":' + DEEP + b"}\n",
           b'{"x":"' + b"x" * 3000000)


def environment():
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return {**clean, "PACECAR_NICS": "soft:udp:lo", "PACECAR_STATE_DIR": "none"}


def run(*command):
    return subprocess.run(command, env=environment(), text=True, capture_output=True,
                          timeout=LIMIT_S, check=False)


def line(**message):
    return json.dumps(message).encode() + b"\n"


class Strangers(unittest.TestCase):
    def setUp(self):
        self.strangers = contextlib.ExitStack()
        self.addCleanup(self.strangers.close)
        self.port = 0

    def start(self, *command):
        process = subprocess.Popen(command, env=environment(), text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def connect(self, data=b""):
        """A stranger that stays connected unless the server hangs up."""
        stranger = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        self.strangers.enter_context(stranger)
        with contextlib.suppress(OSError):  # the server may hang up first
            stranger.sendall(data)
        return stranger

    def answers(self, stranger):
        """All that the server sends before it hangs up."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := stranger.recv(65536):
                received += part
        return [json.loads(message) for message in received.splitlines()]

    def answer(self, stranger):
        return self.answers(stranger)[-1]

    def connect_with_nonsense(self):
        for data in GARBAGE:
            self.connect(data)
            self.connect(data).close()
        for data in (b"", b'{"type":"hel'):  # and silence
            self.connect(data)
            self.connect(data).close()


class Servers(Strangers):
    def serve(self, test="bw", *flags):
        server = self.start(PROGRAM, test, "-p", "0", *flags)
        printed = ""
        while not (found := re.search(r"on port (\d+)$", printed, re.MULTILINE)):
            printed += (more := server.stderr.readline())
            self.assertTrue(more, printed)
        self.port = int(found.group(1))
        return server

    def hello(self, test="bw", **changes):
        parameters = {"iterations": 1, "duration_s": 0, "connections": 1, "tx_depth": 1,
                      "rx_depth": 2, "bidirectional": False, "validate": False, "gigabits": False,
                      "cpu_util": False, "congestion_control": "", "mtu_bytes": 0, "tos": 0,
                      "rate_bps": 0, "reversed": False, "report_both": False, "post_list": 1,
                      "sl": 0, "timeout_ms": 0, **changes}
        return line(type="hello", protocol=3, release="x", test=test, parameters=parameters)

    def assert_serves(self, server, test="bw"):
        client = run(PROGRAM, test, "-n", "10", "-p", str(self.port), "127.0.0.1")
        self.assertEqual(client.returncode, 0, client.stderr)
        output, errors = server.communicate(timeout=LIMIT_S)
        self.assertEqual((server.returncode, output), (0, client.stdout), errors)

    def test_nonsense_and_silence_do_not_end_the_server(self):
        for test in ("bw", "lat"):
            server = self.serve(test)
            self.connect_with_nonsense()
            self.assert_serves(server, test)

    def test_wrong_messages_after_the_hello_do_not_end_the_server(self):
        server = self.serve()
        for data in (self.hello(test="lat"), self.hello(connections=0), self.hello(tos="x"),
                     self.hello(mtu_bytes=257.5), self.hello(congestion_control="nope"),
                     line(type="hello", protocol="x"), line(type="hello", parameters={})):
            self.assertEqual(self.answer(self.connect(data))["type"], "error", data)
        for data in (line(type="end", status=0), line(type="test", size="x"),
                     line(type="test", size=-1), line(type="test", size=1 << 63),
                     line(type="test", size=8) + line(type="handle", handle="x"),
                     line(type="test", size=8) + line(type="handle", handle="00" * 128) +
                     line(type="error", message="!")):
            self.assertEqual(self.answer(self.connect(self.hello() + data))["type"], "error", data)
        self.connect(self.hello()).close()
        self.assertEqual(self.answer(self.connect(self.hello()))["type"], "error", "silence")
        self.assert_serves(server)

    def test_the_server_welcomes_before_it_opens_its_nic(self):
        """A NIC may take seconds to open, which is longer than a client waits for the welcome."""
        self.serve()
        messages = self.answers(self.connect(self.hello(congestion_control="nope")))
        self.assertEqual([message["type"] for message in messages], ["welcome", "error"])

    def test_the_buffers_of_a_client_are_bounded(self):
        server = self.serve("bw", "--max-buffers", "100M")
        data = self.hello(connections=10, tx_depth=5, rx_depth=5) + line(type="test", size=2 << 20)
        reply = self.answer(self.connect(data))
        self.assertEqual(reply["type"], "error")
        self.assertIn("200 MiB of buffers, and the server allows 100", reply["message"])
        self.assert_serves(server)
        server = self.serve("bw")
        data = self.hello(connections=256, tx_depth=7, rx_depth=9) + line(type="test", size=2 << 20)
        self.assertIn("allows 1024", self.answer(self.connect(data)).get("message", ""))
        self.assert_serves(server)

    def test_the_server_listens_at_its_own_address_alone(self):
        server = self.serve()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", self.port)).close()
        self.assert_serves(server)
        server = self.serve("bw", "--bind", "*")
        socket.create_connection(("127.0.0.2", self.port)).close()
        self.assert_serves(server)
        other = run(PROGRAM, "bw", "--bind", "192.0.2.1")
        self.assertEqual(other.returncode, 1)
        self.assertRegex(other.stderr, "error: .*192.0.2.1.* of this host")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
