"""Runs the real `pacecar sim`: sim_test.py PROGRAM [unittest flags]."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

PROGRAM = ""
SMOKE = pathlib.Path(__file__).resolve().parents[2] / "bench/plans/smoke.toml"
SMALL = ["--topology", "leaf-spine:hosts=16,rate=100G",
         "--workload", "incast:senders=4,bytes=100KB"]

FILE = """
[topology]
file = "net.topo"
[workload]
file = "flows.cm"
[transport]
cc = "fixed"
"""

TOPO = """
Nodes 8
Tiers 2
Podsize 8
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Downlink_Latency_ns 1000
"""

MATRIX = """Nodes 8
Connections 2
Triggers 1
0->5 id 1 start 0 size 100000 send_done_trigger 1
5->0 id 2 trigger 1 size 50000
trigger id 1 oneshot
"""


def run(*arguments, cwd=None):
    return subprocess.run([PROGRAM, "sim", *arguments], text=True, capture_output=True,
                          timeout=LIMIT_S, check=False, cwd=cwd)


class Sim(unittest.TestCase):
    def fails(self, *arguments, parts):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_the_summary_is_complete(self):
        done = run(*SMALL, "--cc", "swift")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        for part in ("4 of 4 done", "FCT p50 / p99 / max", "queue max / p99", "events"):
            self.assertIn(part, done.stdout)

    def test_equal_seeds_give_equal_json(self):
        results = []
        for _ in range(2):
            done = run(*SMALL, "--json", "--seed", "3")
            self.assertEqual(done.returncode, 0, done.stderr)
            results.append(json.loads(done.stdout))
            self.assertGreater(results[-1].pop("wall_s"), 0)
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0]["seed"], 3)
        self.assertTrue(results[0]["complete"])

    def test_a_file_names_its_topology_and_matrix(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a.toml").write_text(FILE)
            (root / "net.topo").write_text(TOPO)
            (root / "flows.cm").write_text(MATRIX)
            done = run(str(root / "a.toml"), "--json", str(root / "out.json"), "--quiet",
                       "--trace", str(root / "trace"), "--pcap", str(root / "link.pcap"),
                       "--pcap-link", "host 0 > leaf 0")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            result = json.loads((root / "out.json").read_text())
            first, second = result["flows"]
            self.assertEqual(second["start_ns"], first["finish_ns"])
            events = [json.loads(line) for line in (root / "trace").read_text().splitlines()]
            self.assertEqual([event["event"] for event in events if event["event"] != "rate"],
                             ["start", "received", "finish", "trigger", "start", "received",
                              "finish"])
            self.assertGreater((root / "link.pcap").stat().st_size, 100_000)
            # Paths in flags are relative to the working directory, not to the experiment's folder.
            done = run("--topology", "net.topo", "--workload", "flows.cm", cwd=folder)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_flags_override_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.toml")
            pathlib.Path(path).write_text("[workload]\nkind = \"incast\"\nsenders = 9\nbytes = 9\n")
            done = run(*SMALL[:2], "--set", "transport.cc=fixed", "--set", "workload.senders=3",
                       path, "--json")
            result = json.loads(done.stdout)
            self.assertEqual(len(result["flows"]), 3)
            self.assertEqual(result["congestion_control"], "fixed")

    def test_unfinished_flows_are_reported(self):
        done = run(*SMALL, "--set", "run.time_limit=5us")
        self.assertEqual(done.returncode, 3)
        self.assertIn("4 of 4 flows were not done after 5.000 us", done.stderr)

    def test_a_fabric_beyond_the_memory_is_refused_before_it_is_built(self):
        self.fails("--topology", "leaf-spine:hosts=1000000", "--set", "topology.processes=1000",
                   "--workload", "incast:senders=4,bytes=1KB",
                   parts=("1000000 hosts", "GiB of memory", "use fewer hosts"))

    def test_list_names_what_there_is(self):
        done = run("--list")
        self.assertEqual(done.returncode, 0)
        for part in ("leaf-spine", "permutation", "swift", "fct_p99_us", "credit"):
            self.assertIn(part, done.stdout)

    def test_mistakes_are_refused_in_a_sentence(self):
        self.fails("/nowhere.toml", parts=["/nowhere.toml"])
        self.fails(*SMALL, "--cc", "swfit", parts=["command line", "did you mean 'swift'?"])
        self.fails("--topology", "star:hosst=4", parts=["hosst", "did you mean 'hosts'?"])
        self.fails(str(SMOKE), parts=["smoke.toml, line", "pacecar ab"])
        self.fails(*SMALL, "--seed", "-3", parts=["--seed", "whole number"])
        self.fails("--workload", "incast:senders", parts=["senders", "KEY=VALUE"])
        self.fails(*SMALL, "--set", "fabric.queue=big", parts=["fabric", "queue", "1bdp"])
        self.fails(*SMALL, "--nonsense", parts=["nonsense", "--help"])
        self.fails(*SMALL, "--trace", "/nowhere/trace", parts=["/nowhere/trace"])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
