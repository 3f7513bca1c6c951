"""Runs bench/compare/incast tiny: incast_test.py BUILD_FOLDER [unittest flags].

Nothing here asserts a speed. What needs namespaces is skipped where they cannot be made.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench/compare"
LIMIT_S = 120
BUILD = ""
SHORT = ("--seconds", "0.3", "--warm-up", "0.2", "--rounds", "1", "--rate", "100M",
         "--senders", "2")

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import exchange  # noqa: E402  (lies beside the program)
import incast_arms  # noqa: E402
import incast_report  # noqa: E402
import star  # noqa: E402


def command(*flags, build=None):
    return [sys.executable, FOLDER / "incast", "--build", build or BUILD, *flags]


def run(*flags, build=None, **environment):
    return subprocess.run(command(*flags, build=build), capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, env={**os.environ, **environment})


def why_no_star():
    """Empty where the namespaces and the queue can be made."""
    try:
        with star.star(star.Shape(senders=1, rate_bps=10**8, mtu_bytes=1500, queue_bytes=10**6)):
            return ""
    except star.Unavailable as reason:
        return str(reason)


class WholeRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_no_star():
            raise unittest.SkipTest(reason)

    def test_one_round_measures_every_arm(self):
        arms = ["swift", *(["tcp:reno"] if shutil.which("iperf3") else [])]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = run(*SHORT, "--arms", ",".join(arms), "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        for arm in arms:
            figures = document["rounds"][0][arm]
            self.assertEqual(len(figures["per_sender_gbps"]), 2)
            self.assertGreater(min(figures["per_sender_gbps"]), 0)
            self.assertGreater(figures["probes"], 0)
            # The link carries no more than its rate, give or take what waited before the window.
            self.assertLess(figures["link_share"], 1.5)
            self.assertIn(arm, done.stdout)
        self.assertEqual(document["thresholds"], [])

    def test_through_the_switch_its_own_queue_is_judged(self):
        done = run("--switch", "--seconds", "1", "--warm-up", "1", "--rate", "50M",
                   "--senders", "2", "--metrics", PACECAR_CC="swift")
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = json.loads(done.stdout.splitlines()[-1])["metrics"]
        # Two senders of the link's own rate: something waits, and the buffer bounds it.
        self.assertGreater(metrics["queue_max_bytes"], 0)
        self.assertLessEqual(metrics["queue_max_bytes"], 2_010_000)
        self.assertGreaterEqual(metrics["queue_max_bytes"], metrics["queue_p99_bytes"])

    def test_a_missed_threshold_ends_with_1(self):
        # Two senders that are told a tenth of the rate fill a fifth of the link; a window that is
        # long enough says so on a busy machine, too.
        done = run(*SHORT, "--seconds", "1", "--arms", "swift", "--judge", "swift",
                   "--least-share", "1", "--line-rate", "10M")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("FAIL  goodput of swift / link", done.stdout)

    def test_an_arm_that_does_not_exist_is_a_failure_that_says_so(self):
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
    with contextlib.suppress(OSError):  # a process that ended between two looks
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            if pathlib.Path("/proc", child, "comm").read_text("utf-8").strip() == "incast_peer":
                found.append(child)
    return found


class Usage(unittest.TestCase):
    def test_what_is_missing_is_said_in_a_sentence(self):
        done = run(build="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --build", done.stderr)
        done = run("--arms", "tcp:cubic", PATH="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'iperf3' is missing", done.stderr)
        done = run("--arms", "swift", PATH="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'ip' is missing", done.stderr)

    def test_wrong_flags_are_refused(self):
        for flags in (["--senders", "0"], ["--rate", "fast"], ["--rate", "1"], ["--seconds", "nan"],
                      ["--json", "/nowhere/file"], ["--metrics", "--arms", "pace"]):
            with self.subTest(flags=flags):
                self.assertEqual(run(*flags).returncode, 2)


class Figures(unittest.TestCase):
    def traffic(self, rates, payload_share=1.0):
        return incast_arms.Traffic(start_s=0, begin_s=1, end_s=2, gbps=rates,
                                   payload_share=payload_share, retransmitted=0)

    def plan(self, probe_rate=0):
        return incast_arms.Plan(None, None, 1, 1, 1, 1, probe_rate, 0)

    def shape(self):
        return star.Shape(senders=4, rate_bps=10**9, mtu_bytes=1500, queue_bytes=1)

    def test_goodput_is_judged_by_the_payload_that_the_link_can_carry(self):
        figures = incast_arms.throughput(self.traffic([0.2] * 4, 0.8), self.plan(), self.shape())
        self.assertAlmostEqual(figures["link_share"], 1)
        # 1000 probes of a least frame on the wire, 84 bytes, are not the senders' to use.
        figures = incast_arms.throughput(self.traffic([0.2] * 4, 0.8), self.plan(1000),
                                         self.shape())
        self.assertAlmostEqual(figures["capacity_gbps"], 0.8 * (1 - 1000 * 84 * 8e-9))

    def test_fairness(self):
        figures = incast_arms.throughput(self.traffic([1, 1, 1, 0]), self.plan(), self.shape())
        self.assertAlmostEqual(figures["jain"], 0.75)
        self.assertEqual(figures["slowest_to_fastest"], 0)
        figures = incast_arms.throughput(self.traffic([0, 0, 0, 0]), self.plan(), self.shape())
        self.assertEqual((figures["jain"], figures["link_share"]), (0, 0))

    def test_delays_are_those_beyond_the_idle_path_within_the_window(self):
        idle = [(-1, 10, 5), (-0.9, 12, 6), (-0.8, 11, 7)]
        probes = [*idle, (0.5, 911, 6), (1.2, 111, 6), (1.3, -1, 6), (1.4, 211, 16), (2.5, 999, 9)]
        figures = incast_arms.delays(probes, idle, self.traffic([1]))
        self.assertEqual((figures["delay_p50_us"], figures["delay_max_us"]), (100, 200))
        self.assertEqual(figures["start_max_us"], 900)
        self.assertEqual(figures["noise_p99_us"], 10)
        self.assertEqual((figures["probes"], figures["probes_lost"]), (3, 1))

    def test_no_probe_in_the_window_is_a_failure(self):
        idle = [(-1, 10, 5)]
        with self.assertRaisesRegex(exchange.Failed, "--probe-rate"):
            incast_arms.delays([*idle, (0.5, 1, 1)], idle, self.traffic([1]))


class Thresholds(unittest.TestCase):
    ROUNDS = [{"pace": {"link_share": 0.96, "delay_p99_us": 20},
               "swift": {"link_share": 0.9, "delay_p99_us": 100}},
              {"pace": {"link_share": 0.94, "delay_p99_us": 40},
               "swift": {"link_share": 0.9, "delay_p99_us": 400}},
              {"pace": {"link_share": 0.97, "delay_p99_us": 90},
               "swift": {"link_share": 0.9, "delay_p99_us": 90}}]

    def test_medians_are_judged_and_ratios_are_taken_within_a_round(self):
        share, delay = incast_report.thresholds(self.ROUNDS, "pace", ["swift", "pace"], 0.95, 0.25)
        self.assertEqual((share["value"], share["met"]), (0.96, True))
        self.assertEqual((delay["value"], delay["met"]), (0.2, True))
        share, delay = incast_report.thresholds(self.ROUNDS, "pace", ["swift", "pace"], 0.97, 0.1)
        self.assertFalse(share["met"] or delay["met"])

    def test_what_was_not_measured_is_missed(self):
        (share,) = incast_report.thresholds([{}], "pace", ["pace"], 0.95, 0.25)
        self.assertFalse(share["met"])
        self.assertIn("not measured", incast_report.sentence(share))

    def test_at_the_switch_the_queue_is_judged(self):
        rounds = [{"pace": {"link_share": 1, "backlog_p99_bytes": 10_000},
                   "swift": {"link_share": 1, "backlog_p99_bytes": 100_000}}]
        _, queue = incast_report.thresholds(rounds, "pace", ["swift", "pace"], 0.95, 0.25, True)
        self.assertEqual((queue["value"], queue["met"]), (0.1, True))

    def test_without_the_judged_arm_there_are_none(self):
        self.assertEqual(incast_report.thresholds(self.ROUNDS, "pace", ["swift"], 0.95, 0.25), [])


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
