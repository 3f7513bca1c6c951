"""The live ground of NCCL, the recorder of host profiles, and the prediction of live cells:
live_nccl_test.py BUILD_FOLDER [unittest flags].

No test asserts a speed. Tests that need namespaces or NCCL are skipped where there are none.
"""

import collections
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import tomllib
import unittest

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench/measure/live"
BUILD = ""

sys.dont_write_bytecode = True
sys.path[:0] = [str(FOLDER), str(ROOT / "bench/measure/compare"), str(ROOT / "bench/nccl/gpu"),
                str(ROOT / "bench/nccl/cpu_device")]
import linked  # noqa: E402  (the modules are in the folder of the programs)
import namespaces  # noqa: E402
import nccl_flags  # noqa: E402
import nccl_run  # noqa: E402
import queues  # noqa: E402
import star  # noqa: E402


def program(name):
    """A program as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(FOLDER / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def run(name, *flags, **environment):
    return subprocess.run([sys.executable, FOLDER / name, "--build", BUILD, *map(str, flags)],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          env={**os.environ, **environment})


def why_no_ground():
    """Why namespaces or NCCL cannot be had; empty: they can."""
    try:
        linked.folder_of(linked.NEWEST)
        with star.star(star.Shape(senders=1, rate_bps=10**8, mtu_bytes=1500, queue_bytes=10**6)):
            return ""
    except (namespaces.Unavailable, linked.Unavailable) as reason:
        return str(reason)


class Figures(unittest.TestCase):
    def options(self, *flags):
        return nccl_flags.parse([*flags])

    def job(self, starts, times, size=1 << 20):
        return {"starts_s": starts, "times_s": times, "size_bytes": size, "processor_s": 0.5}

    def test_operations_within_the_window_count(self):
        jobs = [self.job([0, 1, 2, 3], [1, 0.25, 0.25, 1])]
        found = nccl_run.speed(self.options("--rate", "100M"), jobs, 0.5, 3.5)
        self.assertEqual(found["operations"], 2)
        self.assertAlmostEqual(found["busbw_mbytes"], (1 << 20) * 4e-6)
        self.assertAlmostEqual(found["link_share"], (1 << 20) * 4 * 8 / 1e8)
        self.assertAlmostEqual(found["op_p99_ms"], 250)

    def test_one_endless_operation_is_all_there_is(self):
        found = nccl_run.speed(self.options(), [self.job([0, 4], [4, 1])], 4.5, 4.9)
        self.assertEqual(found["operations"], 2)

    def test_bandwidths_of_jobs_add_up(self):
        jobs = [self.job([0], [1]), self.job([0], [2])]
        found = nccl_run.speed(self.options("--jobs", "2"), jobs, 0, 9)
        self.assertAlmostEqual(found["busbw_mbytes"], (1 << 20) * 1.5e-6)
        self.assertAlmostEqual(found["slowest_to_fastest"], 0.5)

    def test_the_fullest_port_is_the_queue_and_drops_add_up(self):
        samples = [queues.Sample(at / 10, at * size, 0, drops * at, port) for at in range(11)
                   for port, size, drops in (("a", 1, 1), ("b", 10, 2))]
        found = nccl_run.queues(samples, 0, 2)
        self.assertEqual(found["queue_max_bytes"], 100)
        self.assertEqual(found["queue_p50_bytes"], 50)
        self.assertEqual(found["drops"], 30)

    def test_shares_of_limits_are_of_all_sending_flows(self):
        limits = nccl_run.Limits(pathlib.Path("/nowhere"))
        flows = [{"limits": {"grant": 3, "window": 1}}, {"direction": "receive"}]
        limits._states = {"one": {"nics": [{"flows": flows}]},
                          "two": {"nics": [{"flows": [{"limits": {"grant": 0, "window": 4}}]}]}}
        self.assertEqual(limits.shares(), {"limited_by_grant": 3 / 8, "limited_by_window": 5 / 8})

    def test_an_operation_without_a_bus_factor_is_not_offered(self):
        self.assertLessEqual(set(nccl_run.OPERATIONS), set(nccl_run.BUS_FACTOR))
        self.assertEqual(nccl_run.BUS_FACTOR["incast"](5), 0.8)

    def test_line_rate_is_as_the_flag_says(self):
        place = pathlib.Path("/nowhere")

        def line_rate(arm, *flags):
            options = self.options("--rate", "300M", *flags)
            return nccl_run.settings(options, arm, place).get("PACECAR_LINE_RATE")
        self.assertEqual(line_rate("pace"), "300000000")
        self.assertEqual(line_rate("pace", "--line-rate", "ten"), "3000000000")
        self.assertIsNone(line_rate("pace", "--line-rate", "none"))
        self.assertEqual(line_rate("fixed", "--line-rate", "none"), "300000000")
        self.assertIsNone(line_rate("socket"))


class Refusals(unittest.TestCase):
    def test_mistakes_get_one_sentence(self):
        for flags, sentence in (
                (["--arm", "socket:nope"], "this kernel has no 'nope' for TCP"),
                (["--bytes", "3"], "no multiple of 4"), (["--rate", "1"], "not in 10M to 1000G"),
                (["--op", "gather"], "invalid choice: 'gather'"),
                (["--joined", "--loss", "0.1"], "takes packets only")):
            with self.subTest(flags=flags):
                done = run("nccl", *flags)
                self.assertEqual(done.returncode, 2)
                self.assertIn(sentence, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_a_missing_build_is_named(self):
        done = subprocess.run([sys.executable, FOLDER / "nccl", "--build", "/nowhere"],
                              capture_output=True, text=True, check=False, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is missing: build first", done.stderr)


class Recorder(unittest.TestCase):
    LATE_US = 5000
    COUNT = 8
    # Takes each of COUNT packets LATE_US after its arrival, on a socket that it has found empty.
    HOST = f"""
import socket, time
host = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
host.bind(("127.0.0.1", 0))
host.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
for _ in range({COUNT}):
    try:
        host.recvmsg(100, 100, socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass
    host.sendto(b"x", host.getsockname())
    time.sleep({LATE_US}e-6)
    host.recvmsg(100, 100, socket.MSG_DONTWAIT)
"""

    def record(self):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(BUILD, "bench/measure/live/librecord_host.so")
            subprocess.run([sys.executable, "-c", self.HOST], check=True, timeout=LIMIT_S,
                           env={**os.environ, "LD_PRELOAD": str(library),
                                "PACECAR_RECORD": folder})
            (file,) = pathlib.Path(folder).iterdir()
            return json.loads(file.read_text("ascii"))

    def test_known_lateness_is_recorded(self):
        found = self.record()
        self.assertEqual(found["wake_us"]["count"], self.COUNT)
        # The kernel begins to stamp arrivals a little after it has been asked to.
        self.assertGreaterEqual(statistics.median(found["wake_us"]["samples"]), self.LATE_US)
        self.assertEqual(found["receive_us"]["count"], self.COUNT)
        self.assertEqual(found["turn_interval_us"]["count"], 2 * self.COUNT - 1)

    def test_profile_is_what_the_simulator_reads(self):
        recorded = self.record()
        recorded["send_us"] = recorded["receive_us"]  # Python sends by another call
        profile = program("record_host").profile([recorded], "a test")
        document = tomllib.loads(profile)
        for name in ("wake_us", "pause_us"):
            self.assertEqual(len(document[name]), len(document["percent"]))
            self.assertEqual(document[name], sorted(document[name]))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "own.toml")
            file.write_text(profile, "utf-8")
            done = subprocess.run(
                [pathlib.Path(BUILD, "bench/pacecar"), "sim", "--topology", "star:hosts=2",
                 "--workload", "pairs:bytes=10KB", "--set", f"hosts.model={file}"],
                capture_output=True, text=True, check=False, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_profiles_of_the_repository_are_ascending(self):
        for file in (ROOT / "bench/profiles").glob("*.toml"):
            document = tomllib.loads(file.read_text("utf-8"))
            self.assertTrue(document["source"], file.name)
            for name in ("percent", "wake_us", "pause_us"):
                self.assertEqual(document[name], sorted(document[name]), f"{file.name}: {name}")


class Prediction(unittest.TestCase):
    def test_every_cell_of_the_plan_can_be_simulated_or_is_left_out(self):
        predict = program("predict")
        plan = tomllib.loads((ROOT / "bench/plans/live_nccl.toml").read_text("utf-8"))
        names = []
        for value in plan["factor"][0]["value"]:
            cell = nccl_flags.parse(value["flags"])
            spec = tomllib.loads(predict.spec(cell, "pace", {"operations": 4}, "udp"))
            self.assertEqual(spec["topology"]["processes"], cell.jobs)
            self.assertEqual(len(spec["workload"]["job"]), cell.jobs)
            names.append(value["name"])
        self.assertEqual(max(collections.Counter(names).values()), 1)

    def test_order_of_arms(self):
        same_order = program("predict").same_order
        self.assertTrue(same_order([(3, 30), (2, 20), (1, 10)]))
        self.assertFalse(same_order([(3, 20), (2, 30)]))
        self.assertTrue(same_order([(3, 20), (2.95, 30)]), "measured as equal")

    def test_simulated_cell_has_figures(self):
        predict = program("predict")
        measured = {"plan": "", "arm": "pace", "factors": {"cell": "all-reduce"},
                    "metrics": {"busbw_mbytes": 30, "queue_p99_bytes": 30_000, "operations": 2}}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "runs.jsonl").write_text(json.dumps(measured), "utf-8")
            done = run("predict", ROOT / "bench/plans/live_nccl.toml", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"all-reduce +pace +30\.00 +[1-9]")
            self.assertIn("of 1; queue within", done.stdout)
            self.assertEqual(predict.read_results(pathlib.Path(folder))["all-reduce", "pace"]
                             ["busbw_mbytes"], 30)


class LiveRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_no_ground():
            raise unittest.SkipTest(reason)

    def metrics_of(self, *flags):
        done = run("nccl", "--seconds", "1", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])["metrics"]

    def test_pacecar_tells_what_limits_it(self):
        found = self.metrics_of("--bytes", "256K", "--op", "alltoall", "--ranks", "3")
        shares = [value for name, value in found.items() if name.startswith("limited_by_")]
        self.assertAlmostEqual(sum(shares), 1)
        self.assertGreater(found["busbw_mbytes"], 0)
        self.assertLess(found["link_share"], 1)

    def test_socket_beside_tcp_on_busy_processors(self):
        found = self.metrics_of("--arm", "socket:cubic", "--op", "incast", "--bytes", "64K",
                                "--beside", "2", "--busy", "1", "--jobs", "2", "--pause", "0.01")
        self.assertGreater(found["share"], 0)
        self.assertLess(found["share"], 1)
        self.assertGreater(found["queue_max_bytes"], 0)

    def test_switch_delays_loses_and_marks(self):
        for flags in (["--round-trip", "0.02", "--loss", "0.01"], ["--ecn", "5K,10K,1"]):
            found = self.metrics_of("--bytes", "64K", "--rate", "50M", *flags)
            self.assertGreater(found["operations"], 0)
            if "--round-trip" in flags:
                self.assertGreater(found["op_p50_ms"], 20)

    def test_short_plan_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([pathlib.Path(BUILD, "bench/pacecar").resolve(), "ab",
                                   "bench/plans/live_nccl_short.toml", "--out", folder],
                                  capture_output=True, text=True, cwd=ROOT, check=False,
                                  timeout=2 * LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
