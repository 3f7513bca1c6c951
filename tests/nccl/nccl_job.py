"""What tests of NCCL share: where the libraries are, and how ranks are started and asked."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
NCCL = ROOT / "bench/nccl"
sys.path[:0] = [str(NCCL / "gpu"), str(NCCL / "cpu_device"), str(ROOT / "bench/measure/compare"),
                str(ROOT / "tests/integration")]
import arms  # noqa: E402
import bridged  # noqa: E402
import job  # noqa: E402
import linked  # noqa: E402
from exchange import Failed  # noqa: E402
from limits import LIMIT_S  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ON_GPU = os.environ.get("NCCL_ON_GPU")
LIBRARIES = {}  # version: the library's file
OLD, NEW = "2.22.3", "2.29.7"
MIB = 1 << 20
# NCCL gives its buffers on the GPU to the plugin, which stages them by CUDA's copies.
IN_GPU_MEMORY = {"CPU_GPU_TRAP": "1", "PACECAR_GPU": "staged", "NCCL_NET_GDR_LEVEL": "SYS"}


def library_path(nccl_file):
    own = [] if ON_GPU else [str(BUILD / "cpu_device")]
    return ":".join([*own, str(pathlib.Path(nccl_file).parent),
                     *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


def ranks_of(program, version, arm, ranks, arguments, folder, hosts=None, place=bridged.Here(),
             nics=None, **environment):
    """The job.Rank of each of the ranks. `hosts`: the host of each rank; default its own. `place`:
    as bridged has it. `nics`: of each rank, in place of the NICs of the arm."""
    nccl_file = LIBRARIES[version]
    plugin = BUILD / "net_plugin" / arms.PLUGIN_NAME
    made = []
    for rank in range(ranks):
        log = folder / f"nccl.{rank}.log"
        variables = {**os.environ,
                     **arms.environment(arm, rank, plugin, log, place.interface),
                     "LD_LIBRARY_PATH": library_path(nccl_file)}
        if hosts is not None:
            variables.update(NCCL_HOSTID=f"pacecar-host-{hosts[rank]}", NCCL_SHM_DISABLE="0")
        if nics is not None:
            variables["PACECAR_NICS"] = nics[rank]
        variables.update(environment)
        argv = [BUILD / "tests" / program, nccl_file, rank, ranks, 0, *arguments]
        made.append(job.Rank(argv, variables, log, place.prefix(rank)))
    return made


class Job(unittest.TestCase):
    def run_job(self, program, arguments, *, version=NEW, arm="soft:udp:lo", ranks=2, hosts=None,
                nics=None, **environment):
        """The last line of each rank's output, as JSON; fails when a rank does."""
        arm = arms.parse(arm)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            made = ranks_of(program, version, arm, ranks,
                            [one.format(folder=folder) for one in map(str, arguments)], folder,
                            hosts, nics=nics, **environment)
            try:
                outputs = job.run(made, LIMIT_S)
            except Failed as reason:
                self.fail(str(reason))
            # If there are several NICs, NCCL's log has the names one by one.
            if hosts is None and nics is None and "," not in arm.nic:
                for rank in made:
                    self.assertIsNone(arms.complaint(arm, job.nccl_log(rank)))
            return [json.loads(output.strip().splitlines()[-1]) if output.strip() else None
                    for output in outputs]

    def check(self, steps, most_bytes, *further, seed=1, **how):
        """Draws collectives and checks them; prints how many."""
        results = self.run_job("checked_rank", ["{folder}/id", seed, steps, most_bytes, *further],
                               **how)
        checked = sum(result["checked"] for result in results)
        self.assertGreater(checked, 0)
        print(f"{self.id().split('.')[-1]}: {checked} collectives checked, "
              f"{sum(result['wrong'] for result in results)} wrong", flush=True)
        return checked

    def outlive(self, program, arguments, arm, **environment):
        """What the others print, as JSON: in a job of three, whose last ends without a word."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            made = ranks_of(program, NEW, arms.parse(arm), 3,
                            [one.format(folder=folder) for one in arguments], folder, **environment)
            processes, results = [], []
            try:
                for rank in made:
                    processes.append(job.Process(rank.prefix, rank.argv, rank.environment))
                for process in processes[:-1]:
                    self.assertTrue(process.ends_well(LIMIT_S), process.complaint())
                    results.append(json.loads(process.output().splitlines()[-1]))
                    remote_error = 6
                    self.assertEqual(results[-1]["error"], remote_error)
            finally:
                for process in processes:
                    process.__exit__()
            return results

    def live(self, scenario, *number, **how):
        return self.run_job("lives_rank", ["{folder}", scenario, *number], **how)

    def expect_others_notice_a_killed_rank(self, nic):
        # Silence would take an hour: it is the closed connection that shows the end.
        for result in self.outlive("lives_rank", ["{folder}", "killed"],
                                   arm=f"{nic}+PACECAR_TIMEOUT=3600s"):
            print("a killed rank was noticed after", result["noticed_seconds"], "s")


def find_libraries():
    if ON_GPU:
        LIBRARIES.update({OLD: ON_GPU, NEW: ON_GPU})
        return
    for version in (NEW, OLD):
        LIBRARIES[version] = linked.folder_of(version) / linked.LIBRARY
