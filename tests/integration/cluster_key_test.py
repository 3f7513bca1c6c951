"""Servers on hosts with a cluster key: cluster_key_test.py PROGRAM [unittest flags].

They serve only clients with the same key.
"""

import contextlib
import os
import re
import socket
import sys
import tempfile
import unittest

import cli_test
from cli_test import Cli, Server, run


class ClusterKey(Cli):
    CURE = "let PACECAR_KEY_FILE name the same key on both hosts or on neither"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def key(self, text, name="key", mode=0o600):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.chmod(path, mode)
        return path

    @staticmethod
    def client_of(server, test="bw", **changes):
        return run(test, "-p", server.port, "-n", "10", "127.0.0.1", **changes)

    def test_only_clients_with_the_key_are_served(self):
        for test in ("bw", "lat"):
            own, other = self.key("k" * 16), self.key("j" * 16, "other")
            same = self.key("k" * 16, "same")
            with Server(test, PACECAR_KEY_FILE=own) as server:
                without = self.client_of(server, test)
                self.assertEqual(without.returncode, 1)
                self.assert_one_sentence(without, "does not show the cluster key .*" + self.CURE)
                wrong = self.client_of(server, test, PACECAR_KEY_FILE=other)
                self.assertEqual(wrong.returncode, 1)
                self.assert_one_sentence(wrong, "has another cluster key than .*" + self.CURE)
                client = self.client_of(server, test, PACECAR_KEY_FILE=same)
                self.assert_ok(client, server.finish()[0])
            warnings = re.findall("^warning: .*", server.errors, re.MULTILINE)
            self.assertEqual(len(warnings), 2, server.errors)
            for warning, words in zip(warnings, ("does not show", "has another")):
                self.assertRegex(warning, f"the client 127.0.0.1:.*{words}.*{self.CURE}")
            for text in (server.errors, client.stderr, client.stdout):
                self.assertNotIn("kkkk", text)

    def test_server_without_a_key_refuses_clients_with_one(self):
        with Server("bw") as server:
            client = self.client_of(server, PACECAR_KEY_FILE=self.key("k" * 16))
            self.assertEqual(client.returncode, 1)
            self.assert_one_sentence(client, "and the server has none: " + self.CURE)
            self.assert_ok(self.client_of(server), server.finish()[0])
        self.assertRegex(server.errors, "warning: .*and the server has none: " + self.CURE)

    def test_unproven_clients_do_not_block_others(self):
        path = self.key("k" * 16)
        with Server("bw", PACECAR_KEY_FILE=path) as server, contextlib.ExitStack() as strangers:
            for message in (b"", b'{"type":"prove","nonce":"' + b"0" * 32 + b'"}\n'):
                for _ in range(10):
                    stranger = socket.create_connection(("127.0.0.1", int(server.port)))
                    strangers.enter_context(stranger)
                    stranger.sendall(message)
            client = self.client_of(server, PACECAR_KEY_FILE=path)
            self.assert_ok(client, server.finish()[0])

    def test_bad_key_file_prevents_the_start(self):
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo, 0o600)
        for path, why in ((self.key("k" * 16, mode=0o640), "chmod 600 "),
                          (self.key("short", "short"), "less than 16 bytes"),
                          (os.path.join(self.folder, "missing"), "No such file"),
                          (fifo, "is no regular file")):
            for arguments in (["bw"], ["lat"], ["bw", "127.0.0.1"], ["info"]):
                process = run(*arguments, PACECAR_KEY_FILE=path)
                self.assertIn(process.returncode, (1, 2), arguments)
                self.assert_one_sentence(process, f"the key file {path} .*{why}")

    def test_key_is_never_printed(self):
        path = self.key("kept to myself alone")
        for arguments in (["info"], ["info", "--json"], ["info", "-c"], ["info", "-c", "--json"]):
            process = run(*arguments, PACECAR_KEY_FILE=path, PACECAR_LOG="trace")
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertNotIn("kept to", process.stdout + process.stderr)
            if "-c" in arguments:
                self.assertIn(path, process.stdout)


if __name__ == "__main__":
    cli_test.PROGRAM = sys.argv.pop(1)
    unittest.main()
