"""Runs bench/measure/compare/collective tiny: collective_test.py BUILD_FOLDER [unittest flags].

No test asserts a speed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench/measure/compare/collective"
BUILD = ""


def run(*flags):
    command = [sys.executable, PROGRAM, "--build", BUILD, "--rounds", "2", "--iterations", "2",
               "--sizes", "60:60K:32", *flags]
    with subprocess.Popen(list(map(str, command)), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        output, errors = process.communicate(timeout=LIMIT_S)
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    done.pid = process.pid
    return done


class Collective(unittest.TestCase):
    def compare(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = run("--against", f"{BUILD}/net_plugin/libnccl-net-pacecar.so", "--json", file,
                       *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual(document["failures"], [])
        self.assertEqual([one["size_bytes"] for one in document["results"]], [60, 1920, 61440])
        for one in document["results"]:
            self.assertEqual(set(one["seconds"]), {"pace", "swift", "against"})
            self.assertEqual(set(one["speedup_of_first"]), {"swift", "against"})
            self.assertTrue(all(ratio["n"] == 2 for ratio in one["speedup_of_first"].values()))
        return done.pid

    def test_every_arm_runs_in_every_round(self):
        self.compare("--path", "loopback", "--ranks", 3)

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_ranks_with_a_namespace_each(self):
        pid = self.compare("--path", "veth", "--ranks", 3)
        left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
        self.assertNotIn(f"pacecar-{pid}-", left.stdout)

    def test_failed_rank_is_reported(self):
        done = run("--path", "loopback", "--ranks", 2, "--arms", "pace,none-such")
        self.assertEqual(done.returncode, 1)
        self.assertIn("none-such: collective_bench", done.stderr)

    def test_a_folder_without_programs_says_how_to_build(self):
        done = run("--build", "/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("build first", done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
