"""The scripts of deploy/slurm, submitted to Slurm as users would:
slurm_test.py PACECAR BUILD [unittest flags].

Three nodes, each in a network namespace; see slurm_cluster.py. Nothing here asserts a speed.
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

import slurm_cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy/slurm"
CLUSTER = None


def setUpModule():
    global CLUSTER
    folder = tempfile.TemporaryDirectory(prefix="pacecar-slurm-")
    unittest.addModuleCleanup(folder.cleanup)
    CLUSTER = slurm_cluster.Cluster(folder.name, nodes=3)


class SlurmCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def begin(self, *command, **changes):
        return CLUSTER.submit(*command, folder=self.folder, PACECAR_LOG="warn",
                              **{"PACECAR_NICS": "soft:udp:eth0", **changes})

    def submit(self, *command, expect=0, **changes):
        """Runs a job to its end; returns what all its tasks have printed."""
        status = CLUSTER.wait(self.begin(*command, **changes))
        printed = "\n".join(path.read_text() for path in sorted(self.folder.glob("*.out")))
        self.assertEqual(status, expect, printed)
        return printed


class AllPairs(SlurmCase):
    def test_the_matrix_has_all_pairs(self):
        printed = self.submit("--nodes=3", SCRIPTS / "bw_all_pairs.sbatch", "-s", "64K", "-n", 200)
        lines = [line.split() for line in printed.splitlines()]
        header = lines.index([*"from \\ to".split(), *CLUSTER.nodes])
        for node, row in zip(CLUSTER.nodes, lines[header + 1:]):
            self.assertEqual(row[0], node)
            self.assertEqual(len(row), len(CLUSTER.nodes), printed)  # to each but itself
            self.assertGreater(min(float(cell) for cell in row[1:]), 0)

    def test_a_missed_threshold_fails_the_job(self):
        printed = self.submit("--nodes=2", SCRIPTS / "bw_all_pairs.sbatch", "-s", "64K", "-n", 100,
                              "--min-gbits", "1000000", expect=3)
        self.assertRegex(printed, "! n1 -> n2: messages of .* is (below|above) the .* of --")

    def test_nodes_without_the_nic_are_named(self):
        printed = self.submit("--nodes=2", SCRIPTS / "bw_all_pairs.sbatch", expect=1,
                              PACECAR_NICS="soft:udp:none0")
        self.assertRegex(printed, r"! n1 -> n2 failed: n2: PACECAR_NICS names .soft:udp:none0.")


class Nccl(SlurmCase):
    script = SCRIPTS / "nccl.sbatch"

    command = ("$NCCL_RUN --ranks $WORLD_SIZE --rank $RANK --master $MASTER_ADDR:$MASTER_PORT "
               "--ops allreduce -b 1K -e 64K -f 64")

    def test_all_reduce_is_right_and_leaves_no_state(self):
        printed = self.submit("--nodes=3", "--ntasks-per-node=2", self.script, "bash", "-c",
                              self.command)
        self.assertIn("NET/Pacecar : Pacecar on soft:udp:eth0", printed)
        rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        self.assertEqual(sorted(row["bytes"] for row in rows), 6 * [1024] + 6 * [65536])
        self.assertEqual({row["wrong"] for row in rows}, {0})
        self.assertFalse(re.search("error|warning", printed), printed)
        state = re.search(r"PACECAR_STATE_DIR=(\S+)", printed).group(1)
        self.assertFalse(os.path.exists(state))

    def test_metrics_are_written_while_the_job_runs(self):
        job = self.begin("--nodes=3", "--ntasks-per-node=1", self.script, "bash", "-c",
                         self.command + " --seconds 600", METRICS_SECONDS="1",
                         PACECAR_STATE_DIR=str(self.folder / "state"))
        for node in CLUSTER.nodes:
            page = self.folder / f"metrics-{job}/{node}.prom"
            slurm_cluster.until(lambda path=page: path.exists() and re.search(
                r'pacecar_sent_bytes_total\{.*rank="\d"', path.read_text()), f"{page.name} is full")
        slurm_cluster.run("scancel", job)
        CLUSTER.wait(job)

    def test_the_job_has_the_exit_status_of_its_command(self):
        self.submit("--nodes=1", self.script, "bash", "-c", "exit 5", expect=5)
        self.assertIn("COMMAND is missing", self.submit("--nodes=1", self.script, expect=2))


if __name__ == "__main__":
    slurm_cluster.enter()
    pacecar, build = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    for name in [name for name in os.environ if name.startswith(("PACECAR_", "SLURM_", "NCCL_"))]:
        if name != slurm_cluster.INSIDE:
            del os.environ[name]
    os.environ["PATH"] = f"{os.path.dirname(pacecar)}:{os.environ['PATH']}"
    os.environ["NCCL_RUN"] = f"{ROOT}/bench/nccl/run --cpu --build {build}"
    unittest.main()
