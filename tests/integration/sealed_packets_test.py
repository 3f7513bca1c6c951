"""PACECAR_SECURITY between two processes: sealed_packets_test.py PROGRAM [unittest flags]."""

import os
import sys
import tempfile
import zlib

import cli_test
from cli_test import Cli, Server, run


class SealedPackets(Cli):
    MODES = ("off", "auth", "encrypt")

    @staticmethod
    def client_of(server, *flags, **changes):
        return run("bw", "-p", server.port, *flags, "127.0.0.1", **changes)

    def test_different_settings_are_refused(self):
        for mine in self.MODES:
            with Server("bw", PACECAR_SECURITY=mine) as server:
                for theirs in self.MODES:
                    if theirs == mine:
                        continue
                    client = self.client_of(server, "-n", "10", PACECAR_SECURITY=theirs)
                    self.assertEqual(client.returncode, 1)
                    self.assert_one_sentence(
                        client, f"PACECAR_SECURITY=({mine}|{theirs}) .*"
                                f"PACECAR_SECURITY=({mine}|{theirs}).*same on all hosts")
                client = self.client_of(server, "-n", "10", PACECAR_SECURITY=mine)
                self.assert_ok(client, server.finish()[0])

    # The payload repeats itself, so it can be compressed unless it is encrypted.
    def test_only_encrypted_payload_cannot_be_compressed(self):
        noise = {}
        for mode in self.MODES:
            with tempfile.TemporaryDirectory() as folder:
                capture = os.path.join(folder, "packets")
                with Server("bw", PACECAR_SECURITY=mode) as server:
                    client = self.client_of(server, "-s", "1M", "-n", "4",
                                            PACECAR_SECURITY=mode, PACECAR_PCAP=capture)
                    self.assert_ok(client, server.finish()[0])
                with open(capture, "rb") as file:
                    packets = file.read()
            self.assertGreater(len(packets), 4 << 20)
            noise[mode] = len(zlib.compress(packets)) / len(packets)
        self.assertLess(noise["off"], 0.5)
        self.assertLess(noise["auth"], 0.5)
        self.assertGreater(noise["encrypt"], 0.95)

    def test_faults_of_the_network_are_repaired(self):
        for mode in ("auth", "encrypt"):
            faults = "loss=0.02,duplicate=0.02,reorder=0.02,corrupt=0.01,seed=3"
            with Server("bw", "--data_validation", PACECAR_SECURITY=mode) as server:
                client = self.client_of(server, "-n", "100", "--data_validation",
                                        PACECAR_SECURITY=mode, PACECAR_FAULT=faults)
                self.assert_ok(client, server.finish()[0])

    def test_encrypt_is_refused_where_it_is_impossible(self):
        for changes in ({"PACECAR_WIRE": "roce"}, {"PACECAR_NICS": "ofi:tcp"}):
            server = run("bw", "-p", "0", PACECAR_SECURITY="encrypt", **changes)
            self.assertEqual(server.returncode, 2)
            self.assert_one_sentence(server, "PACECAR_SECURITY=encrypt does not allow: choose")

    def test_auth_without_tags_is_a_warning(self):
        asked = {"PACECAR_SECURITY": "auth"}
        for changes, warned in ((asked, True), ({}, False)):
            with Server("bw", PACECAR_WIRE="roce", **changes) as server:
                self.assertEqual("carry no tags" in server.errors, warned, server.errors)


if __name__ == "__main__":
    cli_test.PROGRAM = sys.argv.pop(1)
    cli_test.unittest.main()
