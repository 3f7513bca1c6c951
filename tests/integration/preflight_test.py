"""Runs the real `pacecar preflight`: preflight_test.py PROGRAM [unittest flags].

The tests make up copies of a host's files, and assume nothing of this machine but its loopback.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

PROGRAM = ""


def run(*arguments, **changes):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return subprocess.run([PROGRAM, "preflight", *arguments], env=clean | changes, text=True,
                          capture_output=True, timeout=LIMIT_S, check=False)


class Preflight(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "proc").mkdir()

    def examine(self, *arguments, **files):
        """A run on a tree of these files; '__' in a name stands for '/'."""
        for name, text in files.items():
            path = self.root / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return run("--root", str(self.root), *arguments)

    def test_a_host_without_findings_is_ready(self):
        process = self.examine()
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stdout.splitlines()[-1], "Ready.")

    def test_warnings_alone_exit_with_3(self):
        process = self.examine("--quiet", proc__sys__net__core__rmem_max="212992\n")
        self.assertEqual(process.returncode, 3)
        self.assertIn("cure: sysctl -w net.core.rmem_max=8388608", process.stdout)
        self.assertNotIn("  ok ", process.stdout)
        self.assertEqual(process.stdout.splitlines()[-1], "Ready, with 1 warning.")

    def test_json_lists_errors(self):
        port = "sys__class__infiniband__mlx5_0__ports__1__"
        process = self.examine("--json", **{port + "link_layer": "Ethernet\n",
                                            port + "state": "4: ACTIVE\n"})
        self.assertEqual(process.returncode, 1)
        document = json.loads(process.stdout)
        self.assertEqual((document["schema_version"], document["worst"]), (1, "error"))
        found = {finding["id"]: finding for finding in document["findings"]}
        self.assertEqual(found["gid.none"]["subject"], "mlx5_0/1")
        self.assertEqual(found["rdma.uverbs_missing"]["cure"], "modprobe ib_uverbs")
        for finding in document["findings"]:
            self.assertEqual(set(finding), {"id", "severity", "subject", "message", "cure"})

    def test_only_limits_the_checks(self):
        document = json.loads(self.examine("--json", "--only", "rdma,gpu").stdout)
        self.assertEqual({finding["id"] for finding in document["findings"]},
                         {"rdma.none", "gpu.none"})

    def test_an_empty_copy_is_refused(self):
        (self.root / "proc").rmdir()
        process = self.examine()
        self.assertEqual((process.returncode, process.stdout), (2, ""))
        self.assertIn("holds no sys, proc, dev or etc", process.stderr)

    def test_a_host_without_an_interface_is_not_ready(self):
        alone = ["unshare", "--user", "--map-root-user", "--net", PROGRAM]
        if subprocess.run([*alone[:-1], "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no user namespaces here: sysctl -w kernel.unprivileged_userns_clone=1")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}

        def there(*arguments):
            return subprocess.run([*alone, *arguments], env=clean, text=True, capture_output=True,
                                  timeout=LIMIT_S, check=False)
        if json.loads(there("preflight", "--json", "--only", "rdma").stdout)["findings"][0][
                "id"].startswith("rdma.port"):
            self.skipTest("this host has an RDMA device")
        examined = there("preflight", "--quiet")
        self.assertEqual(examined.returncode, 1, examined.stdout)
        self.assertIn("no interface is up with an IP address", examined.stdout)
        measured = there("bw")
        self.assertEqual(measured.returncode, 1)
        self.assertIn("this host has no NIC", measured.stderr)
        self.assertNotIn("PACECAR_NICS", measured.stderr)

    def test_list_names_the_checks(self):
        process = run("--list")
        self.assertEqual(process.returncode, 0)
        self.assertIn("rdma.not_in_container", process.stdout)

    def test_this_machine_can_be_examined(self):
        process = run("--json")
        self.assertIn(process.returncode, (0, 1, 3))
        self.assertTrue(json.loads(process.stdout)["findings"])

    def test_nics_that_a_job_cannot_open_are_an_error(self):
        for nics, code, found in (("mlx5_9", 1, "error .*'mlx5_9', but there is no such NIC"),
                                  ("soft:udp:lo", 0, "ok .*NICs .*soft:udp:lo")):
            process = run("--only", "software", PACECAR_NICS=nics)
            self.assertRegex(process.stdout, found)
            self.assertEqual(process.returncode, code, process.stdout)

    def test_a_host_with_nothing_to_examine_is_not_ready(self):
        process = self.examine("--only", "gid")
        self.assertEqual(process.stdout, "Nothing was examined: this host has no device for it.\n")
        self.assertEqual(process.returncode, 1)

    def test_a_pipe_gets_no_colours(self):
        self.assertNotIn("\x1b", run().stdout)

    def test_wrong_usage_is_one_sentence(self):
        here = str(self.root)
        for arguments in (["--nope"], ["more"], ["--only", "nope"], ["--root", here + "/nope"],
                          ["--root", here, "--peer", "host"], ["--watch", "0"]):
            process = run(*arguments)
            self.assertEqual(process.returncode, 2, arguments)
            self.assertEqual(process.stdout, "")
            self.assertRegex(process.stderr, r"\Aerror: .*\n\Z")

    def test_help_lists_the_exit_codes(self):
        process = run("--help")
        self.assertEqual(process.returncode, 0)
        self.assertIn("Exit codes: 0 no problem", process.stdout)

    @unittest.skipUnless(shutil.which("ping"), "there is no ping: apt-get install iputils-ping")
    def test_a_peer_answers_large_packets(self):
        process = run("--only", "mtu", "--json", "--peer", "127.0.0.1")
        ids = [finding["id"] for finding in json.loads(process.stdout)["findings"]]
        self.assertIn("mtu.peer_both_ways", ids)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
