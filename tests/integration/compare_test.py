"""Runs bench/measure/compare/tcp tiny, over loopback: compare_test.py BUILD [unittest flags].

No test asserts a speed.
"""

import contextlib
import faulthandler
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest.mock

from limits import LIMIT_S

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench/measure/compare"
BUILD = ""

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import exchange  # noqa: E402  (the module is beside the program)
import namespaces  # noqa: E402
import probes  # noqa: E402
import report  # noqa: E402


def run(*flags, build=None, **environment):
    command = [sys.executable, FOLDER / "tcp", "--build", build or BUILD, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          env={**os.environ, **environment})


class WholeRun(unittest.TestCase):
    def test_one_round_has_every_installed_program(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "figures.json")
            done = run("--seconds", "2", "--rounds", "1", "--paths", "loopback", "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        path = document["paths"]["loopback"]
        expected = {"plugin": {"gbps", "cpu_total", "rtt_median_us"},
                    "pacecar": {"gbps", "cpu_total", "rtt_median_us"},
                    "udp_limit": {"gbps", "cpu_total", "rtt_median_us"}}
        if shutil.which("iperf3"):
            expected["iperf3"] = {"gbps", "cpu_sender", "cpu_receiver"}
        if shutil.which("fi_pingpong"):
            expected["fi_pingpong"] = {"rtt_mean_us"}
        for program, names in expected.items():
            for name in names:
                self.assertGreater(path["summary"][program][name]["median"], 0, (program, name))
            self.assertIn(report.NAMES[program], done.stdout)
        self.assertEqual(document["failures"], [])
        self.assertTrue(document["machine"]["kernel"])

    def test_missing_peer_program_is_left_out_with_a_sentence(self):
        done = run("--seconds", "0.3", "--rounds", "1", "--paths", "loopback", PATH="/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("iperf3 is not installed (package iperf3)", done.stderr)
        self.assertNotIn("TCP", done.stdout)

    def test_a_folder_without_programs_says_how_to_build(self):
        done = run(build="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --build", done.stderr)

    def test_wrong_flags_are_refused(self):
        for flags in (["--paths", "moon"], ["--rounds", "0"], ["--seconds", "nan"],
                      ["--json", "/nowhere/file"]):
            with self.subTest(flags=flags):
                self.assertEqual(run(*flags).returncode, 2)

    def test_an_interrupt_ends_its_children_and_removes_its_namespaces(self):
        # Without the right to make namespaces, the loopback path is measured first.
        command = [sys.executable, FOLDER / "tcp", "--build", BUILD, "--seconds", "60",
                   "--paths", "veth,loopback"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as process:
            deadline = time.monotonic() + LIMIT_S
            while len(children := children_of(process.pid, "plugin_bench")) < 2:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    self.fail(f"no measurement began: {process.communicate()[1]}")
            used = [namespace_of(child) for child in children]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("interrupted", errors)
        for child in children:
            self.assertFalse(pathlib.Path("/proc", child).exists())
        for namespace in filter(None, used):
            self.assertFalse(pathlib.Path("/run/netns", namespace).exists())


class Interrupts(unittest.TestCase):
    """Popen.wait(limit) keeps its lock after about one interrupt in a thousand, for ever."""

    ROUNDS = 4000
    LONGEST_WAIT_S = 0.002  # the first waits are the shortest, so races are likeliest

    def test_a_process_can_be_ended_after_every_interrupt_of_a_wait(self):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        randomness = random.Random(1)
        with exchange.Process((), ["sleep", 3600], os.environ) as process:
            for _ in range(self.ROUNDS):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL,
                                     randomness.uniform(0.00001, self.LONGEST_WAIT_S))
                    self.assertFalse(process.ends_well(1))
        self.assertTrue(process.ended())

    def test_ends_well_only_if_the_process_ends_in_time(self):
        with exchange.Process((), ["true"], os.environ) as process:
            self.assertTrue(process.ends_well(LIMIT_S))
        with exchange.Process((), ["sleep", 3600], os.environ) as process:
            self.assertFalse(process.ends_well(0.01))


def children_of(pid, name):
    found = []
    with contextlib.suppress(OSError):  # a process that ended between two reads
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            if pathlib.Path("/proc", child, "comm").read_text("utf-8").strip() == name:
                found.append(child)
    return found


def namespace_of(pid):
    """The name of a process' network namespace; empty where it has none."""
    if not shutil.which("ip"):
        return ""
    return subprocess.run(["ip", "netns", "identify", pid], capture_output=True, text=True,
                          check=False).stdout.strip()


class Namespaces(unittest.TestCase):
    def test_no_key_of_the_terminal_ends_their_deletion(self):
        """A signal of the terminal reaches the processes of its session only."""
        with tempfile.TemporaryDirectory() as folder:
            program, seen = pathlib.Path(folder, "ip"), pathlib.Path(folder, "seen")
            program.write_text('#!/bin/sh\n[ "$2" != del ] || '
                               f"cut -d' ' -f6 /proc/$$/stat >> '{seen}'\n")
            program.chmod(0o700)
            with (unittest.mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"),
                  unittest.mock.patch.object(os, "geteuid", return_value=0),
                  namespaces.made(["one", "two"])):
                pass
            sessions = set(seen.read_text("utf-8").split())
        self.assertEqual(len(sessions), 2)
        self.assertNotIn(str(os.getsid(0)), sessions)


class Processes(unittest.TestCase):
    def test_one_is_a_process_group_of_this_session(self):
        """Linux would schedule a session of its own as a group beside the others."""
        with exchange.Process((), ["sleep", "60"], dict(os.environ)) as process:
            self.assertEqual(os.getpgid(process.pid), process.pid)
            self.assertEqual(os.getsid(process.pid), os.getsid(0))


class Report(unittest.TestCase):
    ROUNDS = [{"plugin": {"gbps": 10}, "iperf3": {"gbps": 20}},
              {"plugin": {"gbps": 30}, "iperf3": {"gbps": 10}},
              {"plugin": {"gbps": 20}, "iperf3": {"gbps": 20}},
              {"plugin": {"gbps": 99}}]

    def test_ratios_are_taken_within_a_round(self):
        (ratio,) = report.ratios(self.ROUNDS)
        self.assertEqual((ratio["program"], ratio["to"]), ("plugin", "iperf3"))
        self.assertEqual([ratio[k] for k in ("median", "min", "max", "n")], [1, 0.5, 3, 3])

    def test_summary_has_medians_of_what_was_measured(self):
        spread = report.summary(self.ROUNDS)["plugin"]["gbps"]
        self.assertEqual(spread, {"median": 25, "min": 10, "max": 99, "n": 4})

    def test_a_run_that_failed_everywhere_leaves_no_row(self):
        self.assertNotIn("udp_limit", report.summary(self.ROUNDS))
        self.assertFalse(any("bare UDP" in line for line in report.table(self.ROUNDS)))


class RoundTrips(unittest.TestCase):
    """Programs that print half of a round trip are doubled; the bare ping-pong is not."""

    def setUp(self):
        self.outputs = []
        original = probes.exchange
        probes.exchange = lambda *unused: self.outputs.pop(0)
        self.addCleanup(setattr, probes, "exchange", original)
        self.tools = unittest.mock.MagicMock()
        self.link = type("Link", (), {"address": "127.0.0.1"})

    def figures(self, run, output):
        self.outputs.append(output)
        return probes.figures(run, self.tools, self.link, 1)

    def test_plugin_is_doubled(self):
        figures = self.figures(probes.plugin_ping_pong, '{"p50_us": 10, "p99_us": 20}')
        self.assertEqual(figures, {"rtt_median_us": 20, "rtt_p99_us": 40})

    def test_pacecar_lat_is_doubled(self):
        figures = self.figures(probes.pacecar_lat,
                               '{"results": {"t_typical": 10, "percentile_99": 20}}')
        self.assertEqual(figures, {"rtt_median_us": 20, "rtt_p99_us": 40})

    def test_bare_udp_is_not_doubled(self):
        figures = self.figures(probes.udp_ping_pong, '{"rtt_us_median": 10, "rtt_us_p99": 20}')
        self.assertEqual(figures, {"rtt_median_us": 10, "rtt_p99_us": 20})

    def test_fi_pingpong_is_doubled(self):
        figures = self.figures(probes.fi_ping_pong, "bytes #sent usec/xfer Mxfers/sec\n"
                               "8 1k 148.35 0.01\n")
        self.assertEqual(figures, {"rtt_mean_us": 296.7})

    def test_an_error_of_iperf3_is_a_failure(self):
        with self.assertRaisesRegex(probes.Failed, "refused"):
            self.figures(probes.iperf3_stream, '{"end": {}, "error": "Connection refused"}')

    def test_output_that_is_not_understood_is_a_failure(self):
        for output in ("", "{}", "nothing"):
            with self.subTest(output=output), self.assertRaises(probes.Failed):
                self.figures(probes.fi_ping_pong, output)
            with self.subTest(output=output), self.assertRaises(probes.Failed):
                self.figures(probes.udp_stream, output)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
