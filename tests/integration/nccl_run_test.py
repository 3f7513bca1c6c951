"""Runs bench/nccl/run with NCCL on the CPU device: nccl_run_test.py BUILD [unittest flags].

Tests that need NCCL are skipped where Debian's cannot be had. Nothing here asserts a speed.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "bench/nccl/run"
BUILD = pathlib.Path()
COLLECTIVES = "bench/nccl/programs/collectives"
SMALL = ("--ops", "reduce", "--sizes", "8,1K", "--rounds", "1", "--iterations", "3")

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("nccl_run", str(RUN))
SPEC = importlib.util.spec_from_loader("nccl_run", LOADER)
nccl_run = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(nccl_run)
import arms  # noqa: E402  (nccl_run has made its folders known)
import exchange  # noqa: E402
import figures  # noqa: E402
import job  # noqa: E402
import linked  # noqa: E402
import mps  # noqa: E402
import toolkit  # noqa: E402


def nccl():
    """The folder of NCCL for the CPU device."""
    try:
        return linked.folder_of(linked.NEWEST)
    except linked.Unavailable as why:
        raise unittest.SkipTest(str(why)) from None


def command(*flags):
    nccl()
    return list(map(str, [sys.executable, RUN, "--cpu", "--build", BUILD, *flags]))


def run(*flags, **environment):
    return subprocess.run(command(*flags), capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, env={**os.environ, **environment})


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = self.folder / "f.json"

    def read(self):
        return json.loads(self.file.read_text("utf-8"))


class WholeRun(Case):
    def test_every_operation_size_and_arm_is_measured_and_right(self):
        done = run("--sizes", "8,1K,64K", "--rounds", "2", "--repetitions", "2", "--iterations",
                   "3", "--ranks", "2,4", "--arms", "socket,soft:udp:lo",
                   "--json", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = self.read()
        self.assertEqual(len(document["runs"]), 2 * 2 * 2)
        for one in document["runs"]:
            measured = {figures.key(row) for row in one["rows"]}
            wanted = {(op, size) for op in figures.OPERATIONS for size in (8, 1024, 65536)}
            # Eight bytes are not a float for each of four ranks.
            short = {(op, 8) for op in ("allgather", "reducescatter", "alltoall")}
            self.assertEqual(measured, wanted - short if one["ranks"] == 4 else wanted)
            for row in one["rows"]:
                self.assertEqual(row["wrong"], 0)
                self.assertEqual(len(row["times_s"]), 2)
        self.assertEqual(len(document["ratios"]["2"]), 3 * len(figures.OPERATIONS))
        self.assertEqual(document["versions"]["nccl"], linked.NEWEST)
        self.assertIn("#       size        count     type  redop  root       time    algbw    "
                      "busbw  #wrong", done.stdout)
        self.assertIn("wrong elements: 0; failed runs: 0", done.stdout)

    def test_a_wrong_element_of_any_operation_is_an_error(self):
        broken = f"{BUILD}/tests/nccl/libbroken_plugin.so+BROKEN=byte is changed+NCCL_PROTO=Simple"
        done = run("--sizes", "16M", "--rounds", "1", "--repetitions", "1", "--iterations", "1",
                   "--arms", broken, "--json", self.file, PACECAR_NICS="soft:udp:lo",
                   BROKEN_PLUGIN=str(BUILD / "net_plugin" / arms.PLUGIN_NAME))
        self.assertEqual(done.returncode, 2, done.stderr)
        rows = self.read()["runs"][0]["rows"]
        self.assertEqual([row["op"] for row in rows if row["wrong"]], list(figures.OPERATIONS))

    def test_an_arm_past_its_network_is_an_error_and_does_not_run_again(self):
        flags = (*SMALL, "--rounds", "2", "--resume", "--json", self.file, "--arms",
                 "socket,soft:udp:lo+NCCL_NET=Socket,socket+NCCL_SHM_DISABLE=0+NCCL_HOSTID=x")
        for _ in range(2):
            done = run(*flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("# reduce, 2 ranks, socket\n", done.stdout)  # still counts
            self.assertIn("failed runs: 2", done.stdout)
            failures = "\n".join(self.read()["failures"])
            self.assertIn("soft:udp:lo+NCCL_NET=Socket, 2 ranks: rank 0: NCCL used the network "
                          "Socket, not Pacecar", failures)
            self.assertIn("no connection over NET/Socket", failures)

    def test_a_measurement_ended_by_its_budget_can_be_resumed(self):
        flags = (*SMALL, "--arms", "socket,soft:udp:lo", "--rounds", "3", "--resume", "--json",
                 self.file)
        done = run(*flags, "--budget", "0.001")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the 0.001 s end before round 1 of 3", done.stderr)
        first = self.read()["runs"]
        self.assertEqual(len(first), 1)
        done = run(*flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = self.read()["runs"]
        self.assertEqual(runs[0], first[0])
        self.assertEqual(sorted((one["round"], one["arm"]) for one in runs),
                         [(number, arm) for number in (1, 2, 3)
                          for arm in ("socket", "soft:udp:lo")])

    def test_ranks_run_in_namespaces(self):
        done = run(*SMALL, "--path", "veth", "--arms", "socket,soft:udp:net0")
        if done.returncode == 77:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# reduce, 2 ranks, soft:udp:net0", done.stdout)

    def test_an_interrupt_leaves_no_rank(self):
        process = subprocess.Popen(command("--sizes", "64K", "--iterations", "100000"),
                                   env={**os.environ, "TMPDIR": str(self.folder)},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)

        def are_up():  # NCCL's log is written once the ranks are
            self.assertIsNone(process.poll(), "it ended before")
            return list(self.folder.rglob("nccl.1.log"))

        self.assertTrue(exchange.wait_until(are_up, LIMIT_S))
        ranks = [entry.name for entry in pathlib.Path("/proc").iterdir()
                 if entry.name.isdigit() and str(self.folder) in arguments(entry)]
        self.assertGreaterEqual(len(ranks), 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, errors)
        self.assertEqual([rank for rank in ranks if pathlib.Path("/proc", rank).exists()], [])
        self.assertEqual(list(self.folder.rglob("*.log")), [])

    def test_flags_of_nccl_tests_work_alike(self):
        done = run("--ops", "allreduce", "-b", "8", "-e", "128", "-f", "4", "-g", "3", "-n", "2",
                   "-w", "5", "-c", "1", "-d", "float", "-o", "sum", "-z", "0", "-T", "300",
                   "-J", self.file, "--rounds", "1", "--arms", "socket")
        self.assertEqual(done.returncode, 0, done.stderr)
        one, = self.read()["runs"]
        self.assertEqual(one["ranks"], 3)
        self.assertEqual([figures.key(row)[1] for row in one["rows"]], [8, 32, 128])

    def test_a_bundle_runs_elsewhere(self):
        archive = self.folder / "some.tar.gz"
        made = subprocess.run([ROOT / "bench/nccl/bundle", archive, BUILD], text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(made.stdout, r", GLIBC_2\.\d+ and GLIBCXX_3[.\d]+ or later; unpack it")
        shutil.unpack_archive(archive, self.folder)
        nccl()
        done = subprocess.run([self.folder / "some/run", "--cpu", "--sizes", "1K", "--rounds", "1",
                               "--ops", "allreduce"], text=True, capture_output=True,
                              timeout=LIMIT_S, check=False)
        self.assertIn("# allreduce, 2 ranks, soft:udp:lo", done.stdout, done.stderr)
        self.assertIn("wrong elements: 0; failed runs: 0", done.stdout)


def arguments(process_folder):
    try:
        return (process_folder / "cmdline").read_text("utf-8", "replace")
    except OSError:  # the process has ended
        return ""


class Jobs(Case):
    """Ranks that are commands of the shell."""

    def ranks(self, *scripts):
        log = self.folder / "log"
        log.write_text("NCCL INFO Using network Socket\n", "utf-8")
        return [job.Rank(["sh", "-c", script], dict(os.environ), log) for script in scripts]

    def test_a_hang_is_killed_and_reported_with_the_last_lines(self):
        hang = "exec sleep 1000"
        with self.assertRaisesRegex(exchange.Failed, "did not end within 0.1 s and was killed"
                                    "(.|\n)*rank 1, NCCL: NCCL INFO Using network Socket"):
            job.run(self.ranks(hang, hang), 0.1)

    def test_a_rank_that_fails_ends_the_job(self):
        with self.assertRaisesRegex(exchange.Failed, "rank 1: sh ended with 3, saying 'why'"), \
                unittest.mock.patch.object(job, "LEAVE_LIMIT_S", 0):
            job.run(self.ranks("exec sleep 1000", "echo why >&2; exit 3"), LIMIT_S)


class Refusals(Case):
    def refused(self, code, sentence, *flags, **more):
        done = run(*flags, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(sentence, done.stderr)

    def misused(self, sentence, *flags):
        with contextlib.redirect_stderr(io.StringIO()) as said, \
                self.assertRaises(SystemExit) as end:
            nccl_run.parse(flags)
        self.assertEqual(end.exception.code, 2)
        self.assertIn(sentence, said.getvalue())

    def test_what_the_host_lacks_is_a_skip(self):
        self.refused(77, f"libnccl.so.2 is not found in {self.folder}: give the file", "--nccl",
                     self.folder)
        self.refused(77, "NCCL does not load", "--nccl", __file__)
        self.refused(77, "there is no nm here: install g++", PATH="/nowhere",
                     XDG_CACHE_HOME="/nowhere")

    def test_no_gpu_is_a_skip(self):
        runtime = "libcudart.so.12"
        (self.folder / runtime).symlink_to(BUILD / "cpu_device" / runtime)
        (self.folder / "libcuda.so.1").touch()  # in the place of a driver that this host may have
        with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(self.folder)):
            seen = toolkit.probe([BUILD / COLLECTIVES, nccl() / linked.LIBRARY, "probe"])
        toolkit.require_nccl(seen)
        with self.assertRaisesRegex(toolkit.Skipped, "no GPU that CUDA can use .*libcuda.so.1: "):
            toolkit.require_gpu(seen)

    def test_a_plugin_that_is_missing_or_does_not_load_is_an_error(self):
        self.refused(2, "/nowhere/plugin.so is missing: build it", "--plugin",
                     "/nowhere/plugin.so")
        self.refused(2, "the plugin does not load here", "--plugin", __file__)

    def test_a_rank_that_is_started_by_hand_is_refused(self):
        for words in (["x", "2", "0", "id", "allreduce", "4:1", "1"],
                      ["2", "2", "0", "id", "allreduce", "4:1", "1"],
                      ["0", "17", "0", "id", "allreduce", "4:1", "1"],
                      ["0", "2", "0", "id", "allreduce", "3:1", "1"]):
            with self.subTest(words=words):
                done = subprocess.run([BUILD / COLLECTIVES, "/nowhere", *words], text=True,
                                      capture_output=True, timeout=LIMIT_S, check=False)
                self.assertGreater(done.returncode, 0, "it was killed")
                self.assertIn("bench/nccl/run starts it", done.stderr)

    def test_wrong_usage_is_refused_in_a_sentence(self):
        for flags, sentence in [(("--ops", "gather"), "'gather' is none of allreduce"),
                                (("--sizes", "6"), "'6' is no size"),
                                (("--ranks", "17"), "17 is not in 2 to 16"),
                                (("--arms", "mlx5_0++X=1"), "is no arm"),
                                (("--arms", "socket+X=1+Y"), "is no arm"),
                                (("--arms", "socket,socket"), "named twice"),
                                (("--resume",), "name it with --json"),
                                (("--json", "/nowhere/f.json"), "cannot write"),
                                (("-b", "6"), "'6' is no size"),
                                (("-b", "1M", "-e", "8"), "give the smaller one as -b"),
                                (("-f", "2"), "need the first size with -b"),
                                (("-b", "8", "-e", "64", "-f", "2", "-i", "8"), "give one of them"),
                                (("-b", "8", "-e", "1G", "-i", "8"), "take larger steps"),
                                (("-b", "8", "-e", "64", "-f", "1"), "never reaches -e"),
                                (("-b", "8", "--sizes", "8"), "give one of them"),
                                (("-g", "2", "--ranks", "2"), "give one of them")]:
            self.misused(sentence, *flags)

    def test_operations_may_be_written_as_nccl_tests_and_sim_have_them(self):
        options = nccl_run.parse(("--ops", "all_reduce,allreduce,reduce-scatter"))
        self.assertEqual(options.ops, ["allreduce", "reducescatter"])

    def test_other_flags_of_nccl_tests_are_refused(self):
        for flags in (("-o", "max"), ("--datatype", "half"), ("-r", "1"), ("-c", "0"), ("-t", "2"),
                      ("-m", "2"), ("-N", "2"), ("-p", "1"), ("-z", "1"), ("-y", "1"), ("-G", "1"),
                      ("-a", "1"), ("-C", "1"), ("-S", "1"), ("-R", "1"), ("-w", "20")):
            self.misused(f"there is no {flags[0]} {flags[1]} as nccl-tests has it", *flags)

    def test_list_runs_nothing(self):
        done = run("--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("allreduce allgather reducescatter broadcast reduce sendrecv alltoall",
                      done.stdout)
        self.assertIn("socket soft:udp:lo", done.stdout)


class Arms(unittest.TestCase):
    LOG = ("NCCL INFO NET/Pacecar : Pacecar on mlx5_0 (10.0.0.1, 4096 B packets, 4 paths)\n"
           "NCCL INFO Using network Pacecar\n"
           "NCCL INFO GPU 0 / HCA 1 connected via C2C link\n"
           "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Pacecar/0\n")

    def test_the_environment_follows_the_arm(self):
        plugin, log = pathlib.Path("/plugins/x.so"), pathlib.Path("/tmp/log")
        ours = arms.environment(arms.parse("mlx5_0+PACECAR_CC=swift"), 1, plugin, log)
        self.assertEqual((ours["NCCL_NET"], ours["NCCL_NET_PLUGIN"], ours["PACECAR_NICS"],
                          ours["PACECAR_CC"]), ("Pacecar", "/plugins/x.so", "mlx5_0", "swift"))
        joined = arms.parse("mlx5_0+mlx5_1+X=1=2")
        self.assertEqual((joined.nic, joined.settings), ("mlx5_0+mlx5_1", (("X", "1=2"),)))
        other = arms.environment(arms.parse("socket"), 0, None, log)
        self.assertEqual((other["NCCL_NET"], other["NCCL_NET_PLUGIN"]), ("Socket", "none"))
        self.assertNotIn("PACECAR_NICS", other)
        theirs = arms.environment(arms.parse("/opt/x.so+OFI_X=1"), 0, plugin, log)
        self.assertEqual((theirs["NCCL_NET_PLUGIN"], theirs["OFI_X"]), ("/opt/x.so", "1"))
        self.assertFalse({"NCCL_NET", "PACECAR_NICS"} & set(theirs))
        self.assertEqual(arms.environment(arms.parse("ib"), 0, None, log)["NCCL_NET"], "IB")
        self.assertNotEqual(ours["NCCL_HOSTID"], other["NCCL_HOSTID"])

    def test_rdma_devices_with_an_active_port_are_arms(self):
        with tempfile.TemporaryDirectory() as folder:
            for device, state in (("mlx5_0", "4: ACTIVE\n"), ("mlx5_1", "1: DOWN\n")):
                port = pathlib.Path(folder, device, "ports/1")
                port.mkdir(parents=True)
                (port / "state").write_text(state, "ascii")
            found, notes = arms.usual(pathlib.Path(folder))
        names = [arm.name for arm in found]
        self.assertEqual(names, ["socket", "soft:udp:lo", "mlx5_0"])
        self.assertIn("mlx5_1 is left out: none of its ports is active", notes)
        self.assertIn("soft:raw:lo is left out: an address has one such NIC, and so one rank",
                      notes)

    def test_a_log_proves_no_other_arm(self):
        self.assertIsNone(arms.complaint(arms.parse("mlx5_0"), self.LOG))
        self.assertIn("does not name mlx5_1", arms.complaint(arms.parse("mlx5_1"), self.LOG))
        self.assertIn("not Socket", arms.complaint(arms.parse("socket"), self.LOG))
        self.assertIn("none in its log", arms.complaint(arms.parse("socket"), ""))
        another, fell_back = arms.parse("/opt/x.so"), self.LOG.replace("Pacecar", "Socket")
        self.assertIsNone(arms.complaint(another, self.LOG))
        self.assertIn("not /opt/x.so", arms.complaint(another, fell_back))
        past = self.LOG + "NCCL INFO Channel 01 : 0[0] -> 1[0] via SHM/direct/direct\n"
        self.assertIn("SHM/direct/direct, past the network",
                      arms.complaint(arms.parse("mlx5_0"), past))


class Figures(unittest.TestCase):
    def line(self, rank_seconds, wrong=0, op="allreduce", size=1 << 20, processor=1):
        return json.dumps({"op": op, "bytes": size, "count": size // 4, "iterations": 3,
                           "wrong": wrong, "seconds": rank_seconds,
                           "processor_seconds": processor})

    def test_a_repetition_takes_as_long_as_its_slowest_rank_and_the_processors_of_all(self):
        row, = figures.merge(["hello\n" + self.line([1, 4], 1, processor=2),
                              self.line([3, 2], 2, processor=5)])
        self.assertEqual((row["times_s"], row["wrong"], row["processor_s"]), ([3, 4], 3, 7))
        with self.assertRaises(exchange.Failed):
            figures.merge([self.line([1]), self.line([1], op="reduce")])
        with self.assertRaises(exchange.Failed):
            figures.merge([self.line([1]), ""])

    def test_bus_bandwidth_has_the_factors_of_nccl_tests(self):
        for op, factor in [("allreduce", 1.5), ("allgather", 0.75), ("reducescatter", 0.75),
                           ("broadcast", 1), ("reduce", 1), ("sendrecv", 1), ("alltoall", 0.75)]:
            rows = figures.merge([self.line([0.5, 1, 4], op=op)] * 4)
            line, = figures.summary([{"ranks": 4, "round": 1, "arm": "a", "rows": rows}], 4, "a")
            self.assertEqual(line["algbw_Bps"], 1 << 20)
            self.assertEqual(line["busbw_Bps"], factor * (1 << 20), op)
            self.assertEqual((line["time_min_s"], line["n"]), (0.5, 3))

    def test_ratios_are_paired_by_rounds(self):
        runs = []
        for number, (base, arm) in enumerate([(1, 0.5), (2, 1), (8, 4), (1, None)]):
            for name, seconds, processor in (("socket", base, 2), ("nic", arm, 3)):
                if seconds:
                    rows = figures.merge([self.line([seconds], processor=processor)] * 2)
                    runs.append({"ranks": 2, "round": number, "arm": name, "rows": rows})
        one, = figures.ratios(runs, 2, ["socket", "nic"], "socket")
        self.assertAlmostEqual(one["ratio"], 2)
        self.assertAlmostEqual(one["processor_ratio"], 1.5)
        self.assertEqual(one["n"], 3)

    def test_the_interval_is_students(self):
        # Half its width is t * deviation / sqrt(n), with t = 12.706 for 2 rounds, 2.201 for 12.
        for logarithms, half in (([1, 3], 12.706), ([1, 3] * 6, 2.201 * (1 / 11) ** 0.5)):
            found = figures.mean_ratio(logarithms)
            self.assertAlmostEqual(math.log(found["ratio"]), 2)
            for end, sign in (("low", -1), ("high", 1)):
                self.assertAlmostEqual(math.log(found[end]), 2 + sign * half, places=2)
        self.assertEqual(figures.mean_ratio([0.0]), {"n": 1, "ratio": 1})

    def test_sizes_and_iterations_are_parsed(self):
        self.assertEqual(nccl_run.sizes("1K,8,2M"), [8, 1024, 2 << 20])
        steps = [["-b", "8", "-e", "40", "-i", "8"], ["-b", "8", "-e", "40", "-f", "1.5"],
                 ["-b", "8", "-e", "64"], ["-b", "64"], ["-e", "64", "-f", "1"]]
        found = [nccl_run.parse(["--arms", "socket", *flags]).sizes for flags in steps]
        self.assertEqual(found, [[8, 16, 24, 32, 40], [8, 12, 16, 24, 40], [8, 16, 32, 64],
                                 [64], [64]])
        self.assertEqual([nccl_run.iterations(size, 20) for size in (8, 64 << 20, 1 << 30)],
                         [20, 4, 2])


class Mps(unittest.TestCase):
    CONTROL = ('#!/bin/sh\necho "$@" "$CUDA_MPS_PIPE_DIRECTORY" >> "$CALLS"\n'
               '[ "$1" = -d ] || cat >> "$CALLS"\nexit $CODE\n')

    def calls(self, code, gpus=1):
        """The yielded environment, what is printed, and the calls of the control program."""
        with tempfile.TemporaryDirectory() as folder:
            program, calls = pathlib.Path(folder, mps.CONTROL), pathlib.Path(folder, "calls")
            program.write_text(self.CONTROL, "utf-8")
            program.chmod(0o755)
            ours = {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls),
                    "CODE": str(code)}
            printed = io.StringIO()
            with unittest.mock.patch.dict(os.environ, ours), contextlib.redirect_stderr(printed):
                with mps.serving(["echo", json.dumps({"gpus": gpus, "reason": "no GPU"})]
                                 ) as environment:
                    pass
            return environment, printed.getvalue(), calls.read_text("utf-8").splitlines()

    def test_mps_serves_in_its_own_folders_and_ends(self):
        environment, printed, calls = self.calls(0)
        self.assertEqual(printed, "")
        pipe = environment["CUDA_MPS_PIPE_DIRECTORY"]
        self.assertEqual([line.split() for line in calls], [["-d", pipe], [pipe], ["quit"]])
        self.assertFalse(pathlib.Path(pipe).exists())

    def test_a_failure_of_mps_is_reported_and_sets_no_environment(self):
        for code, gpus, why in ((1, 1, "no reason given"), (0, 0, "no GPU")):
            environment, printed, calls = self.calls(code, gpus)
            self.assertEqual(environment, {})
            self.assertIn(f"MPS does not serve ({why}", printed)
            self.assertEqual(calls[-1], "quit")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
