"""Runs bench/measure/compare/incast tiny: incast_test.py BUILD_FOLDER [unittest flags].

No test asserts a speed. Tests that need namespaces are skipped where none can be made.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

from limits import LIMIT_S

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench/measure/compare"
BUILD = ""
BRIEF = ("--seconds", "1.5", "--warm-up", "1", "--rounds", "1", "--senders", "2")
SHORT = (*BRIEF, "--rate", "100M")

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import exchange  # noqa: E402  (the module is beside the program)
import incast_figures  # noqa: E402
import incast_report  # noqa: E402
import namespaces  # noqa: E402
import star  # noqa: E402


def command(*flags, build=None):
    return [sys.executable, FOLDER / "incast", "--build", build or BUILD, *flags]


def run(*flags, build=None, **environment):
    return subprocess.run(command(*flags, build=build), capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, env={**os.environ, **environment})


def why_no_star():
    """Why namespaces or the queue cannot be made; empty: they can."""
    try:
        with star.star(star.Shape(senders=1, rate_bps=10**8, mtu_bytes=1500, queue_bytes=10**6)):
            return ""
    except namespaces.Unavailable as reason:
        return str(reason)


class WholeRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_no_star():
            raise unittest.SkipTest(reason)

    def test_one_round_measures_every_arm(self):
        arms = ["swift", "tcp:reno"]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = run(*SHORT, "--arms", ",".join(arms), "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        for arm in arms:
            figures = document["rounds"][0][arm]
            self.assertEqual(len(figures["per_sender_gbps"]), 2)
            # In a window as short as this a sender of TCP may wait for its timer and send nothing.
            self.assertGreater(max(figures["per_sender_gbps"]), 0)
            self.assertGreater(figures["probes"], 0)
            # The link carries no more than its rate, and what was queued before the window.
            self.assertLess(figures["link_share"], 1.5)
            self.assertIn(arm, done.stdout)
        self.assertEqual(document["thresholds"], [])

    def test_switch_reports_its_own_queue(self):
        done = run("--switch", "--seconds", "1", "--warm-up", "1", "--rate", "50M",
                   "--senders", "2", "--metrics", PACECAR_CC="swift")
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = json.loads(done.stdout.splitlines()[-1])["metrics"]
        # Two senders at the link's rate fill a queue, which the buffer bounds.
        self.assertGreater(metrics["queue_max_bytes"], 0)
        self.assertLessEqual(metrics["queue_max_bytes"], 2_010_000)
        self.assertGreaterEqual(metrics["queue_max_bytes"], metrics["queue_p99_bytes"])

    def test_a_missed_threshold_ends_with_1(self):
        # Two senders that are told a tenth of the rate fill a fifth of the link, on a busy machine,
        # too.
        done = run(*SHORT, "--arms", "swift", "--judge", "swift",
                   "--least-share", "1", "--told", "10M")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("FAIL  goodput of swift / link", done.stdout)

    def figures_of(self, *flags, arm="swift", ground=SHORT):
        """The arm's figures in one short round."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = run(*ground, "--arms", arm, "--json", file, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(file.read_text(encoding="utf-8"))["rounds"][0][arm]

    def test_pairs_of_processes_beside_a_neighbour(self):
        figures = self.figures_of("--shape", "pairs", "--beside", "tcp:reno", "--told", "none")
        self.assertEqual(len(figures["per_sender_gbps"]), 2)
        self.assertGreater(figures["neighbour_gbps"], 0)
        both = figures["gbps"] + figures["neighbour_gbps"]
        self.assertAlmostEqual(figures["link_share"], both / figures["capacity_gbps"])
        # Two of the three flows are ours.
        self.assertAlmostEqual(figures["fair_share"],
                               figures["gbps"] / (figures["capacity_gbps"] * 2 / 3))

    def test_hosts_with_a_process_each_and_a_small_buffer(self):
        figures = self.figures_of("--shape", "fan-in", "--policer", "--share", "off",
                                  arm="tcp:reno")
        self.assertEqual(len(figures["per_sender_gbps"]), 2)
        # After losses at the policer a sender of TCP may wait for its timer and send nothing.
        self.assertGreater(max(figures["per_sender_gbps"]), 0)
        self.assertGreater(figures["drops"], 0)
        self.assertLessEqual(figures["backlog_max_bytes"], 60_000)

    def test_changing_rate_is_measured(self):
        figures = self.figures_of("--shape", "pairs", "--change", "100M:50M:100M", "--seconds",
                                  "9", "--senders", "1", arm="tcp:reno", ground=BRIEF)
        # The mean of the three rates, less headers and probes.
        self.assertGreater(figures["capacity_gbps"], 0.07)
        self.assertLess(figures["capacity_gbps"], 0.09)
        self.assertEqual(len(figures["settle_each_ms"]), 2)
        self.assertLess(figures["settle_ms"], 3000)  # the length of a part

    def test_unlimited_rate_has_no_link_share(self):
        done = run("--seconds", "1.5", "--warm-up", "1", "--senders", "1", "--shape", "pairs",
                   "--rate", "max", "--told", "none", "--metrics", PACECAR_CC="swift",
                   PACECAR_LINE_RATE="10M")
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = json.loads(done.stdout.splitlines()[-1])["metrics"]
        # Neither a link nor PACECAR_LINE_RATE of the environment limits the rate.
        self.assertGreater(metrics["gbps"], 0.02)
        self.assertNotIn("link_share", metrics)
        self.assertIn("queue_p99_bytes", metrics)

    def test_unknown_arm_is_named(self):
        done = run(*SHORT, "--arms", "nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no congestion control 'nonsense'", done.stderr)

    def test_an_interrupt_ends_its_children_and_removes_its_namespaces(self):
        with subprocess.Popen(command("--arms", "swift", "--seconds", "60"), text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + LIMIT_S
            while len(children := incast_peers_of(process.pid)) < 5:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    self.fail(f"no measurement began: {process.communicate()[1]}")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, errors)
        for child in children:
            self.assertFalse(pathlib.Path("/proc", child).exists())
        spaces = pathlib.Path("/run/netns").iterdir()
        self.assertEqual([one.name for one in spaces if f"-{process.pid}-" in one.name], [])


def incast_peers_of(pid):
    found = []
    with contextlib.suppress(OSError):  # a process that ended between two reads
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            if pathlib.Path("/proc", child, "comm").read_text("utf-8").strip() == "incast_peer":
                found.append(child)
    return found


class Usage(unittest.TestCase):
    def test_missing_programs_are_named(self):
        done = run(build="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --build", done.stderr)
        done = run("--arms", "swift", PATH="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'ip' is missing", done.stderr)

    def test_wrong_flags_are_refused(self):
        for flags in (["--senders", "0"], ["--rate", "fast"], ["--rate", "1"], ["--seconds", "nan"],
                      ["--json", "/nowhere/file"], ["--metrics", "--arms", "pace"],
                      ["--told", "wrong"], ["--rate", "max"], ["--change", "10M"],
                      ["--change", "10M:max"], ["--change", "10M:20M", "--rate", "10M"],
                      ["--change", "10M:20M", "--switch"], ["--policer", "--queue", "20000"]):
            with self.subTest(flags=flags):
                self.assertEqual(run(*flags).returncode, 2)


class Figures(unittest.TestCase):
    def traffic(self, gbps, payload_share=1.0, **more):
        return incast_figures.Traffic(start_s=0, begin_s=1, end_s=2, gbps=gbps,
                                      payload_share=payload_share, retransmitted=0, **more)

    def plan(self, probe_rate=0, told_bps=None):
        return types.SimpleNamespace(probe_rate=probe_rate, told_bps=told_bps)

    def shape(self):
        return star.Shape(senders=4, rate_bps=10**9, mtu_bytes=1500, queue_bytes=1)

    def test_goodput_is_judged_by_the_payload_that_the_link_can_carry(self):
        figures = incast_figures.throughput(self.traffic([0.2] * 4, 0.8), self.plan(), self.shape())
        self.assertAlmostEqual(figures["link_share"], 1)
        # 1000 probes per second, smallest frames of 84 bytes on the wire, reduce the capacity.
        figures = incast_figures.throughput(self.traffic([0.2] * 4, 0.8), self.plan(1000),
                                            self.shape())
        self.assertAlmostEqual(figures["capacity_gbps"], 0.8 * (1 - 1000 * 84 * 8e-9))

    def test_fairness(self):
        figures = incast_figures.throughput(self.traffic([1, 1, 1, 0]), self.plan(), self.shape())
        self.assertAlmostEqual(figures["jain"], 0.75)
        self.assertEqual(figures["slowest_to_fastest"], 0)
        figures = incast_figures.throughput(self.traffic([0, 0, 0, 0]), self.plan(), self.shape())
        self.assertEqual((figures["jain"], figures["link_share"]), (0, 0))

    def test_delays_are_measured_beyond_the_idle_path_within_the_window(self):
        idle = [(-1, 10, 5), (-0.9, 12, 6), (-0.8, 11, 7)]
        probes = [*idle, (0.5, 911, 6), (1.2, 111, 6), (1.3, -1, 6), (1.4, 211, 16), (2.5, 999, 9)]
        figures = incast_figures.delays(probes, idle, self.traffic([1]))
        self.assertEqual((figures["delay_p50_us"], figures["delay_max_us"]), (100, 200))
        self.assertEqual(figures["start_max_us"], 900)
        self.assertEqual(figures["noise_p99_us"], 10)
        self.assertEqual((figures["probes"], figures["probes_lost"]), (3, 1))

    def test_no_probe_in_the_window_is_a_failure(self):
        idle = [(-1, 10, 5)]
        with self.assertRaisesRegex(exchange.Failed, "--probe-rate"):
            incast_figures.delays([*idle, (0.5, 1, 1)], idle, self.traffic([1]))

    def test_told_rate_counts_where_it_is_less(self):
        for told_bps, share in ((None, 0.5), (2 * 10**9, 0.5), (5 * 10**8, 1)):
            figures = incast_figures.throughput(self.traffic([0.5]), self.plan(0, told_bps),
                                                self.shape())
            self.assertAlmostEqual(figures["told_share"], share)

    def test_fair_share_beside_a_neighbour(self):
        figures = incast_figures.throughput(self.traffic([0.25], neighbour_gbps=0.75),
                                            self.plan(), self.shape())
        self.assertAlmostEqual(figures["link_share"], 1)
        self.assertAlmostEqual(figures["fair_share"], 0.5)

    def test_changing_rate_is_weighted_by_time(self):
        rates = [(1, 10**9), (1.5, 10**8)]
        traffic = self.traffic([0.55], rates=rates)
        figures = incast_figures.throughput(traffic, self.plan(), self.shape())
        self.assertAlmostEqual(figures["link_share"], 1)
        # A probe that is queued across the change, for 0.1 s at each rate.
        probes = [(0, 0, 0), (1.4, 0.2e6, 0)]
        samples = incast_figures.queue_of_probes(probes, probes[:1], traffic, self.shape())
        self.assertAlmostEqual(samples[1][1], 0.1 * 1.1e9 / 8, delta=1)

    def test_recovery_times_after_a_rate_change(self):
        rates = [(1, 10**8), (1.5, 10**9)]
        # No arrivals for 100 ms after the change; the queue is long for 50 ms.
        arrivals = [(1 + i / 100, max(0, i - 60) * 10**9 / 800) for i in range(100)]
        samples = [(1 + i / 1000, 10**6 if 500 <= i < 550 else 100) for i in range(1000)]
        traffic = self.traffic([1], rates=rates, arrivals=arrivals)
        figures = incast_figures.recovery(samples, traffic, self.shape())
        self.assertAlmostEqual(figures["settle_ms"], 100, delta=15)
        self.assertAlmostEqual(figures["drain_ms"], 50, delta=15)
        # A single late probe is no queue; a rate that is never reached counts until the end.
        samples = [(1 + i / 1000, 10**6 if i == 700 else 100) for i in range(1000)]
        traffic = self.traffic([1], rates=rates, arrivals=[(at, 0) for at, _ in arrivals])
        figures = incast_figures.recovery(samples, traffic, self.shape())
        self.assertAlmostEqual(figures["settle_ms"], 500)
        self.assertEqual(figures["drain_ms"], 0)


class Thresholds(unittest.TestCase):
    ROUNDS = [{"pace": {"link_share": 0.96, "queue_p99_bytes": 20},
               "swift": {"link_share": 0.9, "queue_p99_bytes": 100}},
              {"pace": {"link_share": 0.94, "queue_p99_bytes": 40},
               "swift": {"link_share": 0.9, "queue_p99_bytes": 400}},
              {"pace": {"link_share": 0.97, "queue_p99_bytes": 90},
               "swift": {"link_share": 0.9, "queue_p99_bytes": 90}}]

    def test_medians_are_judged_and_ratios_are_taken_within_a_round(self):
        share, delay = incast_report.thresholds(self.ROUNDS, "pace", ["swift", "pace"], 0.95, 0.25)
        self.assertEqual((share["value"], share["met"]), (0.96, True))
        self.assertEqual((delay["value"], delay["met"]), (0.2, True))
        share, delay = incast_report.thresholds(self.ROUNDS, "pace", ["swift", "pace"], 0.97, 0.1)
        self.assertFalse(share["met"] or delay["met"])

    def test_unmeasured_threshold_is_missed(self):
        (share,) = incast_report.thresholds([{}], "pace", ["pace"], 0.95, 0.25)
        self.assertFalse(share["met"])
        self.assertIn("not measured", incast_report.sentence(share))

    def test_best_arm_is_the_measure_when_the_rate_is_unknown(self):
        one = {"pace": {"gbps": 3, "link_share": None, "queue_p99_bytes": 10},
               "swift": {"gbps": 4, "link_share": None, "queue_p99_bytes": 100}}
        incast_report.compare_within(one)
        share, _ = incast_report.thresholds([one], "pace", ["swift", "pace"], 0.7, 0.25)
        self.assertEqual((share["value"], share["met"]), (0.75, True))
        self.assertIn("best arm", incast_report.sentence(share))

    def test_no_thresholds_without_the_judged_arm(self):
        self.assertEqual(incast_report.thresholds(self.ROUNDS, "pace", ["swift"], 0.95, 0.25), [])


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
