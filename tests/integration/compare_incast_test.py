"""Runs bench/measure/compare/incast tiny: compare_incast_test.py BUILD_FOLDER [unittest flags].

No test asserts a speed. Tests that need namespaces are skipped where none can be made.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from limits import LIMIT_S

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench/measure/compare"
BUILD = ""
BRIEF = ("--seconds", "1.5", "--warm-up", "1", "--senders", "2")
SHORT = (*BRIEF, "--rate", "100M")

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import incast_figures  # noqa: E402  (the module is beside the program)
import namespaces  # noqa: E402
import queues  # noqa: E402
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

    def metrics_of(self, *flags, arm="swift", ground=SHORT, **environment):
        done = run(*ground, *flags, PACECAR_CC=arm, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])["metrics"]

    def test_several_hosts_send_into_one_process(self):
        for arm in "swift", "tcp:reno":
            with self.subTest(arm=arm):
                metrics = self.metrics_of(arm=arm)
                self.assertGreater(metrics["gbps"], 0)
                # The link carries no more than its rate, and what was queued before the window.
                self.assertLess(metrics["link_share"], 1.5)
                self.assertGreaterEqual(metrics["queue_max_bytes"], metrics["queue_p99_bytes"])

    def test_switch_reports_its_own_queue(self):
        metrics = self.metrics_of("--switch", "--rate", "50M", "--senders", "2",
                                  ground=("--seconds", "1"))
        # Two senders at the link's rate fill a queue, which the buffer bounds.
        self.assertGreater(metrics["queue_max_bytes"], 0)
        self.assertLessEqual(metrics["queue_max_bytes"], 2_010_000)
        self.assertNotIn("drops", metrics)

    def test_pairs_of_processes_beside_a_neighbour(self):
        metrics = self.metrics_of("--shape", "pairs", "--beside", "tcp:reno", "--told", "none")
        # Two of the three flows are ours.
        self.assertLess(metrics["fair_share"], metrics["link_share"] * 3 / 2)

    def test_hosts_with_a_process_each_and_a_small_buffer(self):
        metrics = self.metrics_of("--shape", "fan-in", "--policer", arm="tcp:reno",
                                  PACECAR_SHARE="off")
        # After losses at the policer a sender of TCP may wait for its timer and send nothing.
        self.assertGreater(metrics["gbps"], 0)
        self.assertGreater(metrics["drops"], 0)

    def test_changing_rate_is_measured(self):
        metrics = self.metrics_of("--shape", "pairs", "--change", "100M:50M:100M", "--seconds",
                                  "9", "--senders", "1", arm="tcp:reno", ground=BRIEF)
        self.assertLess(metrics["settle_ms"], 3000)  # the length of a part

    def test_unlimited_rate_has_no_link_share(self):
        metrics = self.metrics_of("--senders", "1", "--shape", "pairs", "--rate", "max", "--told",
                                  "none", ground=BRIEF, PACECAR_LINE_RATE="10M")
        # Neither a link nor PACECAR_LINE_RATE of the environment limits the rate.
        self.assertGreater(metrics["gbps"], 0.02)
        self.assertNotIn("link_share", metrics)
        self.assertNotIn("queue_p99_bytes", metrics)  # no link, no queue

    def test_unknown_algorithm_is_named(self):
        done = run(*SHORT, PACECAR_CC="nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no congestion control 'nonsense'", done.stderr)
        done = run(*SHORT, PACECAR_CC="tcp:nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("iperf3 reports", done.stderr)

    def test_an_interrupt_ends_its_children_and_removes_its_namespaces(self):
        with subprocess.Popen(command("--seconds", "60"), text=True,
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
        done = run(PATH="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'ip' is missing", done.stderr)

    def test_wrong_flags_are_refused(self):
        for flags in (["--senders", "0"], ["--rate", "fast"], ["--rate", "1"], ["--seconds", "nan"],
                      ["--told", "wrong"], ["--rate", "max"], ["--change", "10M"],
                      ["--change", "10M:max"], ["--change", "10M:20M", "--rate", "10M"],
                      ["--change", "10M:20M", "--switch"]):
            with self.subTest(flags=flags):
                self.assertEqual(run(*flags).returncode, 2)


class Figures(unittest.TestCase):
    def traffic(self, gbps, payload_share=1.0, **more):
        return incast_figures.Traffic(begin_s=1, end_s=2, gbps=gbps,
                                      payload_share=payload_share, retransmitted=0, **more)

    def shape(self):
        return star.Shape(senders=4, rate_bps=10**9, mtu_bytes=1500, queue_bytes=1)

    def throughput(self, gbps, told_bps=None, **more):
        return incast_figures.throughput(self.traffic(gbps, **more), told_bps, self.shape())

    def test_goodput_is_judged_by_the_payload_that_the_link_can_carry(self):
        figures = self.throughput([0.2] * 4, payload_share=0.8)
        self.assertAlmostEqual(figures["link_share"], 1)

    def test_fairness(self):
        figures = self.throughput([1, 1, 1, 0])
        self.assertAlmostEqual(figures["jain"], 0.75)
        self.assertEqual(figures["slowest_to_fastest"], 0)
        figures = self.throughput([0, 0, 0, 0])
        self.assertEqual((figures["jain"], figures["link_share"]), (0, 0))

    def samples(self, sizes, sent_bytes=lambda at_s: 0):
        """Queues of these sizes, one each millisecond from second 1 on."""
        times = [1 + i / 1000 for i in range(len(sizes))]
        return [queues.Sample(at, size, sent_bytes(at), 0) for at, size in zip(times, sizes)]

    def test_queue_is_that_within_the_window(self):
        samples = [queues.Sample(0.5, 10**6, 0, 3),
                   *self.samples([1250 * i for i in range(100)]), queues.Sample(2.5, 10**6, 0, 5)]
        figures = incast_figures.queue(samples, 1, 2, 10**9)
        self.assertEqual((figures["queue_p50_bytes"], figures["queue_max_bytes"]),
                         (1250 * 49, 1250 * 99))
        # A link of 1 Gb/s carries 125 bytes in a microsecond.
        self.assertEqual((figures["delay_p50_us"], figures["delay_max_us"]), (490, 990))
        self.assertEqual(figures["drops"], 2)
        self.assertNotIn("delay_p50_us", incast_figures.queue(samples, 1, 2))
        self.assertEqual(incast_figures.queue([], 1, 2), {})

    def test_told_rate_counts_where_it_is_less(self):
        for told_bps, share in ((None, 0.5), (2 * 10**9, 0.5), (5 * 10**8, 1)):
            figures = self.throughput([0.5], told_bps)
            self.assertAlmostEqual(figures["told_share"], share, places=3)

    def test_fair_share_beside_a_neighbour(self):
        figures = self.throughput([0.25], neighbour_gbps=0.75)
        self.assertAlmostEqual(figures["link_share"], 1, places=3)
        self.assertAlmostEqual(figures["fair_share"], 0.5, places=3)

    def test_changing_rate_is_weighted_by_time(self):
        rates = [(1, 10**9), (1.5, 10**8)]
        traffic = self.traffic([0.55], rates=rates)
        figures = incast_figures.throughput(traffic, None, self.shape())
        self.assertAlmostEqual(figures["link_share"], 1, places=2)

    def test_recovery_times_after_a_rate_change(self):
        rates = [(1, 10**8), (1.5, 10**9)]
        # Nothing leaves the queue for 100 ms after the change; it is long for 50 ms.
        samples = self.samples([10**6 if 500 <= i < 550 else 100 for i in range(1000)],
                               lambda at_s: max(0, at_s - 1.6) * 10**9 / 8)
        traffic = self.traffic([1], rates=rates)
        figures = incast_figures.recovery(samples, traffic, self.shape())
        self.assertAlmostEqual(figures["settle_ms"], 100, delta=15)
        self.assertAlmostEqual(figures["drain_ms"], 50, delta=15)
        # A single long queue is none; a rate that is never reached counts until the end.
        samples = self.samples([10**6 if i == 700 else 100 for i in range(1000)])
        figures = incast_figures.recovery(samples, traffic, self.shape())
        self.assertAlmostEqual(figures["settle_ms"], 500)
        self.assertEqual(figures["drain_ms"], 0)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
