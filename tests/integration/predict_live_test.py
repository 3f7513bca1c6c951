"""Runs bench/predict/live tiny: predict_live_test.py BUILD_FOLDER [unittest flags].

Nothing here asserts a time, or how close a prediction comes.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench/predict/live"
BUILD = ""


def run(*flags):
    command = [sys.executable, PROGRAM, "--build", BUILD, "--rounds", "2", "--iterations", "2",
               *flags]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)


class Live(unittest.TestCase):
    def test_every_second_size_is_predicted_from_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = run("--ranks", "2,3", "--sizes", "4K:256K:4", "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        seen = [(one["ranks"], one["op"], one["size_bytes"], one["calibrates"])
                for one in document["points"]]
        self.assertEqual(seen, [(ranks, op, 4096 << (2 * i), i % 2 == 0) for ranks in (2, 3)
                                for op in ("allreduce", "tree", "alltoall") for i in range(4)])
        for one in document["points"]:
            self.assertEqual(one["seconds"]["n"], 2)
            self.assertGreater(one["predicted_seconds"], 0)
        self.assertEqual(document["errors"]["all"]["n"], len(seen) / 2)
        self.assertIn("load_average_1min", document["machine"])

    def test_one_size_alone_is_refused(self):
        done = run("--ranks", "2", "--sizes", "4K:4K:4")
        self.assertEqual(done.returncode, 2)
        self.assertIn("none is left: name more", done.stderr)

    def test_other_nics_are_measured(self):
        for flags in (["--nic", "soft:udp:lo"], ["--path", "memif"]):
            if "memif" in flags and not list(pathlib.Path(BUILD, "modules").glob("*dpdk*")):
                self.skipTest("built without DPDK")
            done = run(*flags, "--ranks", "2", "--ops", "allreduce", "--sizes", "4K:16K:4")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("1 sizes", done.stdout)

    def test_impossible_combinations_of_flags_are_refused(self):
        self.assertIn("add --ranks 2", run("--path", "memif").stderr)
        self.assertIn("--path loopback only", run("--path", "veth", "--nic", "rxe0").stderr)

    def test_a_folder_without_programs_says_how_to_build(self):
        done = run("--build", "/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("build first", done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
