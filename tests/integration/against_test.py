"""Two plugins measured in turns: figures of both, their ratios, and wrong data of one is named."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

COLLECTIVE, BENCH, PLUGIN, FAULTY = sys.argv[1:5]


def run(*command, fault="no-flags"):
    environment = {**os.environ, "REAL_PLUGIN": PLUGIN, "FAULT": fault}
    return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)


class Against(unittest.TestCase):
    def test_collectives(self):
        for operation in ("allreduce", "tree", "alltoall"):
            with self.subTest(operation=operation):
                self.compare(operation)

    def compare(self, operation):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = run(COLLECTIVE, "--op", operation, "--plugin", PLUGIN, "--against", PLUGIN,
                       "--rounds", 3, "-b", 64, "-e", "64K", "-f", 1024, "-n", 3,
                       "--out_json_file", file.name)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.load(file)
        results = document["results"]
        self.assertEqual(document["op"], "allreduce" if operation == "tree" else operation)
        self.assertEqual([one["size_bytes"] for one in results], [64, 65536])
        for one in results:
            ratio = one["speedup"]
            self.assertGreater(one["against_time_ns"], 0)
            self.assertTrue(0 < ratio["least"] <= ratio["median"] <= ratio["most"], ratio)
        self.assertIn("speedup", done.stdout)

    def test_one_plugin_has_no_speedup(self):
        done = run(COLLECTIVE, "--plugin", PLUGIN, "-b", "4K", "-e", "4K", "-n", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("speedup", done.stdout)

    def test_wrong_data_of_the_other_plugin_is_named(self):
        for operation in ("allreduce", "tree", "alltoall"):
            with self.subTest(operation=operation):
                done = run(COLLECTIVE, "--op", operation, "--plugin", PLUGIN, "--against", FAULTY,
                           "-b", "4K", "-e", "4K", "-n", 2, fault="damage")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{FAULTY}: ", done.stderr)
                self.assertIn("elements are wrong", done.stderr)

    def test_all_to_all_with_many_slices_and_uneven_parts(self):
        done = run(COLLECTIVE, "--op", "alltoall", "--ranks", 5, "--plugin", PLUGIN, "-b", 20, "-e",
                   "10M", "-f", 19, "-n", 2)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_all_to_all_of_less_than_an_element_per_rank_is_refused(self):
        done = run(COLLECTIVE, "--op", "alltoall", "--ranks", 5, "--plugin", PLUGIN, "-b", 16)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--minbytes must be from 20", done.stderr)

    def test_pair(self):
        for flags, figure in [(["--size", "4K"], "gbps"),
                              (["--latency", "--ping-size", "1K"], "p50_us")]:
            with self.subTest(flags=flags):
                done = run(BENCH, PLUGIN, "--against", PLUGIN, "--rounds", 1, "--seconds", 0.1,
                           "--json", *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads(done.stdout)
                own, other = result[figure], result["against_" + figure]
                ratio = other / own if figure == "p50_us" else own / other
                self.assertAlmostEqual(result["speedup_median"], ratio)
                self.assertEqual(result["size_bytes"], 1024 if figure == "p50_us" else 4096)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
