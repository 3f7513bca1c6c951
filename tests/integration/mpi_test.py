"""Open MPI over Pacecar's libfabric provider: mpi_test.py BUILD_FOLDER [unittest flags].

Nothing here asserts a speed.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/measure/mpi"), str(ROOT / "bench/measure/compare")]

import bridged
import job

SIZES = "8:600000:20"
BUILD = ""


class Collectives(unittest.TestCase):
    def check(self, place, ranks, **environment):
        program = [job.COLLECTIVES, "--sizes", SIZES, "--iterations", 2, "--one-sided"]
        output = job.run(place, ranks, "pacecar", f"{BUILD}/net_plugin/libfabric", program,
                         environment)
        document = json.loads(output)
        self.assertEqual(document["ranks"], ranks)
        self.assertEqual(len({one["op"] for one in document["results"]}), 11)
        self.assertEqual([one for one in document["results"] if not one["right"]], [])

    def test_collectives_are_right_with_two_five_and_eight_ranks(self):
        for ranks in (2, 5, 8):
            with self.subTest(ranks=ranks):
                self.check(job.Place("lo"), ranks)

    def test_collectives_are_right_through_loss_and_reordering(self):
        self.check(job.Place("lo"), 4,
                   PACECAR_FAULT="loss=0.04,duplicate=0.04,reorder=0.06",
                   PACECAR_EXPERT_CMA="off")  # so that all messages cross the network

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_collectives_are_right_between_namespaces(self):
        with bridged.hosts(4, 1500) as hosts:
            self.check(job.place_of(hosts), 4)

    def test_a_killed_rank_ends_the_job(self):
        program = [job.COLLECTIVES, "--iterations", 1000000, "--only", "allreduce"]
        with job.started(job.Place("lo"), 3, "pacecar", f"{BUILD}/net_plugin/libfabric",
                         program) as process:
            ranks = self.ranks_of(process)
            time.sleep(1)  # so that the collectives run
            os.kill(ranks[1], signal.SIGKILL)
            self.assertFalse(process.ends_well(LIMIT_S))
            self.assertTrue(process.ended(), "the job hangs")

    def ranks_of(self, process):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            ranks = [pid for pid, name, parent in processes()
                     if parent == process.pid and name == "mpi_collectives"]
            if len(ranks) == 3:
                return ranks
            time.sleep(0.05)
        self.fail("the ranks do not begin")


def processes():
    """(pid, name, parent's pid) of all processes."""
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = file.read_text(encoding="utf-8").rpartition(")")
        except OSError:  # the process has ended
            continue
        pid, _, name = before.partition(" (")
        yield int(pid), name, int(after.split()[1])


class Run(unittest.TestCase):
    def run_tool(self, arm, *flags):
        command = [ROOT / "bench/measure/mpi/run", arm, "--build", BUILD, "--iterations", 2, *flags]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def test_every_size_of_an_operation_is_a_metric(self):
        for arm in "pacecar", "tcp":
            with self.subTest(arm=arm):
                done = self.run_tool(arm, "--path", "loopback", "--ranks", 2, "--sizes",
                                     "8:80000:100", "--only", "allreduce,alltoall")
                self.assertEqual(done.returncode, 0, done.stderr)
                metrics = json.loads(done.stdout)["metrics"]
                self.assertEqual(list(metrics),
                                 [f"{op}_us@{size}" for op in ("allreduce", "alltoall")
                                  for size in (8, 800, 80000)])
                self.assertGreater(min(metrics.values()), 0)

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_the_queue_of_the_switch_is_reported(self):
        done = self.run_tool("pacecar", "--switch", "100M", "--ranks", 3, "--sizes",
                             "65536:65536:2", "--only", "gather")
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = json.loads(done.stdout)["metrics"]
        self.assertLessEqual(metrics["queue_p50_bytes"], metrics["queue_p99_bytes"])

    def test_wrong_flags_are_refused_in_a_sentence(self):
        for flags, sentence in ((("udp",), "choose from 'tcp', 'ofi-tcp', 'pacecar'"),
                                (("tcp", "--switch", "200"), "give a rate such as 200M"),
                                (("tcp", "--build", "/nowhere"), "cmake --build")):
            with self.subTest(flags=flags):
                done = self.run_tool(*flags)
                self.assertEqual(done.returncode, 2)
                self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
