"""Open MPI over Pacecar's libfabric provider: mpi_test.py BUILD_FOLDER [unittest flags].

Nothing here asserts a speed.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
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
        program = [f"{BUILD}/bench/measure/mpi/mpi_collectives", "--sizes", SIZES,
                   "--iterations", 2, "--one-sided"]
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
                   PACECAR_FAULT="loss=0.02,duplicate=0.02,reorder=0.03,on=both",
                   PACECAR_CMA="off")  # so that all messages cross the network

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_collectives_are_right_between_namespaces(self):
        with bridged.hosts(4, 1500) as hosts:
            self.check(job.place_of(hosts), 4)

    def test_a_killed_rank_ends_the_job(self):
        program = [f"{BUILD}/bench/measure/mpi/mpi_collectives", "--iterations", 1000000, "--only",
                   "allreduce"]
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


class Compare(unittest.TestCase):
    def run_tool(self, *flags):
        command = [ROOT / "bench/measure/mpi/compare", "--build", BUILD, "--rounds", 2,
                   "--iterations", 2, *flags]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def test_every_arm_runs_in_every_round(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = self.run_tool("--path", "loopback", "--ranks", 2, "--sizes", "8:80000:100",
                                 "--only", "allreduce,alltoall", "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual(document["failures"], [])
        self.assertEqual([(one["op"], one["size_bytes"]) for one in document["results"]],
                         [(op, size) for op in ("allreduce", "alltoall")
                          for size in (8, 800, 80000)])
        for one in document["results"]:
            self.assertEqual(set(one["seconds"]), {"pacecar", "tcp"})
            self.assertEqual(one["speedup_of_first"]["tcp"]["n"], 2)

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_the_queue_of_the_switch_is_reported(self):
        done = self.run_tool("--switch", "100M", "--ranks", 3, "--sizes", "65536:65536:2", "--only",
                             "gather", "--arms", "pacecar")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"in front of rank 0, KB, pacecar: p50 .*, p99 .*, max")

    def test_wrong_flags_are_refused_in_a_sentence(self):
        for flags, sentence in ((("--arms", "udp"), "udp is none of tcp, ofi-tcp, pacecar"),
                                (("--switch", "200"), "give a rate such as 200M"),
                                (("--build", "/nowhere"), "install libopenmpi-dev, and build")):
            with self.subTest(flags=flags):
                done = self.run_tool(*flags)
                self.assertEqual(done.returncode, 2)
                self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
