"""What deploy/slurm and `pacecar ab --emit slurm` give to Slurm, submitted as users would:
slurm_test.py PACECAR COLLECTIVE_BENCH PLUGIN [unittest flags].

Three nodes, each in a network namespace; see slurm_cluster.py. Nothing here asserts a speed.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import slurm_cluster

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "deploy/slurm"
LIMIT_S = 60
CLUSTER = None

PLAN = """
seeds = 4
metrics = ["finish_us"]
topology = {kind = "star", hosts = 4}
workload = {kind = "incast", senders = 3, bytes = "20KB"}
[[arm]]
name = "fixed"
transport.cc = "fixed"
"""

# Stands in for Slurm: N nodes; it notes who is to send to whom, and everybody gets 1 Gb/s.
FAKE_SCONTROL = "#!/bin/sh\nseq -f node%g $NODES\n"
FAKE_SRUN = """#!/bin/sh
case "$*" in
  *run_infinitely*) yes 'waiting for a client' | head -n "$NODES"; exec sleep 60 ;;
esac
echo "$PAIRS" >>"$NOTES"
for pair in $PAIRS; do echo "${pair%=*} ${pair#*=} 1"; done
"""


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
        """Returns what all of the job has printed."""
        status = CLUSTER.wait(self.begin(*command, **changes))
        printed = "\n".join(path.read_text() for path in sorted(self.folder.glob("*.out")))
        self.assertEqual(status, expect, printed)
        return printed


class AllPairs(SlurmCase):
    def cells(self, printed):
        lines = printed.splitlines()
        header = next(i for i, line in enumerate(lines) if line.startswith("Gb/s from"))
        columns = lines[header + 1].split()
        self.assertEqual(columns, CLUSTER.nodes)
        rows = [line.split() for line in lines[header + 2:header + 2 + len(columns)]]
        return {(row[0], column): cell for row in rows for column, cell in zip(columns, row[1:])}

    def test_matrix(self):
        printed = self.submit("--nodes=3", SCRIPTS / "bw_all_pairs.sbatch", "-s", "64K", "-n", 200)
        for (one, other), cell in self.cells(printed).items():
            if one == other:
                self.assertEqual(cell, "-")
            else:
                self.assertGreater(float(cell), 0)
        self.assertEqual(len(re.findall(r"^slowest: [\d.]+ n\d to n\d$", printed, re.M)), 3)

    def test_missed_threshold(self):
        printed = self.submit("--nodes=2", SCRIPTS / "bw_all_pairs.sbatch", "-s", "64K", "-n", 100,
                              "--min-gbits", "1000000", expect=1)
        self.assertRegex(printed, r"n1 +- +[\d.]+!")
        self.assertIn("missed a threshold", printed)

    def test_servers_that_do_not_start(self):
        printed = self.submit("--nodes=2", SCRIPTS / "bw_all_pairs.sbatch", expect=1,
                              PACECAR_NICS="soft:udp:none0")
        self.assertIn("bw_all_pairs: a server ended: ", printed)
        self.assertIn("none0", printed)

    def test_a_pair_that_fails(self):
        printed = self.submit("--nodes=2", SCRIPTS / "bw_all_pairs.sbatch", "-d", "soft:udp:none0",
                              expect=1)
        self.assertRegex(printed, r"n1 +- +failed")


class Rounds(SlurmCase):
    def test_every_pair_once_and_every_node_in_one_pair_of_a_round(self):
        for name, text in (("scontrol", FAKE_SCONTROL), ("srun", FAKE_SRUN)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        notes = self.folder / "notes"
        for nodes in (2, 3, 4, 5, 8, 11):
            notes.write_text("")
            subprocess.run([SCRIPTS / "bw_all_pairs.sbatch"], check=True, timeout=LIMIT_S,
                           stdout=subprocess.DEVNULL,
                           env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                                "NODES": str(nodes), "NOTES": str(notes), "SLURM_JOB_ID": "1",
                                "SLURM_JOB_NODELIST": "all"})
            rounds = [[tuple(pair.split("=")) for pair in line.split()]
                      for line in notes.read_text().splitlines()]
            for pairs in rounds:
                busy = [node for pair in pairs for node in pair]
                self.assertEqual(len(busy), len(set(busy)), pairs)
                self.assertEqual(len(pairs), nodes // 2)
            every = sorted(pair for pairs in rounds for pair in pairs)
            names = [f"node{number}" for number in range(1, nodes + 1)]
            self.assertEqual(every, sorted((a, b) for a in names for b in names if a != b))


class Nccl(SlurmCase):
    script = SCRIPTS / "nccl.sbatch"

    command = ("collective_bench --plugin libnccl-net-pacecar.so --ranks $WORLD_SIZE --rank $RANK "
               "--root $MASTER_ADDR --port $MASTER_PORT -b 1K -e 64K -f 64")

    def test_all_reduce(self):
        printed = self.submit("--nodes=3", "--ntasks-per-node=2", self.script, "bash", "-c",
                              self.command)
        self.assertIn("NET/Pacecar : Pacecar on soft:udp:eth0", printed)
        self.assertIn("# ring all-reduce, 6 ranks", printed)
        wrong = [line.split()[-1] for line in printed.splitlines()
                 if re.match(r" +(1024|65536) ", line)]
        self.assertEqual(wrong, ["0", "0"])
        self.assertFalse(re.search("error|warning", printed), printed)
        state = re.search(r"PACECAR_STATE_DIR=(\S+)", printed).group(1)
        self.assertFalse(os.path.exists(state))

    def test_metrics_while_it_runs(self):
        job = self.begin("--nodes=3", "--ntasks-per-node=1", self.script, "bash", "-c",
                         self.command + " --seconds 600", METRICS_SECONDS="1",
                         PACECAR_STATE_DIR=str(self.folder / "state"))
        for node in CLUSTER.nodes:
            page = self.folder / f"metrics-{job}/{node}.prom"
            slurm_cluster.until(lambda path=page: path.exists() and re.search(
                r'pacecar_sent_bytes_total\{.*rank="\d"', path.read_text()), f"{page.name} is full")
        slurm_cluster.run("scancel", job)
        CLUSTER.wait(job)

    def test_the_job_ends_as_its_command(self):
        self.submit("--nodes=1", self.script, "bash", "-c", "exit 5", expect=5)
        self.assertIn("say what to run", self.submit("--nodes=1", self.script, expect=2))


class Ab(SlurmCase):
    def ab(self, *arguments):
        return slurm_cluster.run("pacecar", "ab", *map(str, arguments))

    def submit_told(self, told):
        for line in told.splitlines():
            if line.startswith("sbatch "):
                self.submit(*shlex.split(line)[1:])

    def test_job_array(self):
        plan = self.folder / "plan.toml"
        plan.write_text(PLAN)
        self.ab(plan, "--quiet", "--out", self.folder / "direct")
        told = self.ab(plan, "--emit", "slurm", "--out", self.folder / "cluster")
        self.submit_told(told)
        subprocess.run(told.splitlines()[-1], shell=True, check=True, timeout=LIMIT_S,
                       stdout=subprocess.DEVNULL)
        for file in ("summary.json", "summary.csv"):
            self.assertEqual((self.folder / "direct" / file).read_bytes(),
                             (self.folder / "cluster/merged" / file).read_bytes())

    def test_more_runs_than_an_array_may_have(self):
        plan = self.folder / "plan.toml"
        plan.write_text(PLAN.replace("seeds = 4", "seeds = [" + ",".join(
            str(seed) for seed in range(1, 2951)) + "]"))
        self.submit_told(self.ab(plan, "--emit", "slurm", "--filter", "seed=2950", "--out",
                                 self.folder / "cluster"))
        self.assertTrue((self.folder / "cluster/jobs/2949/runs.jsonl").read_text())


if __name__ == "__main__":
    slurm_cluster.enter()
    pacecar, collective_bench, plugin = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
    for name in [name for name in os.environ if name.startswith(("PACECAR_", "SLURM_", "NCCL_"))]:
        if name != slurm_cluster.INSIDE:
            del os.environ[name]
    os.environ["PATH"] = ":".join((os.path.dirname(pacecar), os.path.dirname(collective_bench),
                                   os.environ["PATH"]))
    os.environ["LD_LIBRARY_PATH"] = os.path.dirname(plugin)
    unittest.main()
