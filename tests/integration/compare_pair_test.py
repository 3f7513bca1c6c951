"""Runs bench/measure/compare/pair tiny, over loopback: compare_pair_test.py BUILD [unittest flags].

No test asserts a speed.
"""

import contextlib
import faulthandler
import importlib.machinery
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
import types
import unittest.mock

from limits import LIMIT_S

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench/measure/compare"
BUILD = ""

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import exchange  # noqa: E402  (the module is beside the program)
import namespaces  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("pair", str(FOLDER / "pair"))
pair = types.ModuleType("pair")
LOADER.exec_module(pair)


def run(program, *flags, build=None, **environment):
    command = [sys.executable, FOLDER / "pair", program, "--build", build or BUILD, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          env={**os.environ, **environment})


class Pair(unittest.TestCase):
    def test_every_program_is_measured(self):
        stream, trips = {"gbps", "cpu_sender", "cpu_receiver", "cpu_total"}, {"rtt_median_us"}
        expected = {"pacecar": stream | trips, "udp": stream | trips}
        if shutil.which("iperf3"):
            expected["tcp"] = stream
        for program, names in expected.items():
            with self.subTest(program=program):
                done = run(program, "--seconds", "1")
                self.assertEqual(done.returncode, 0, done.stderr)
                metrics = json.loads(done.stdout)["metrics"]
                for name in names:
                    self.assertGreater(metrics[name], 0, name)

    def test_what_is_missing_is_named_with_its_cure(self):
        done = run("tcp", PATH="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("iperf3 is not installed: install the package iperf3", done.stderr)
        done = run("udp", build="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --build", done.stderr)
        done = run("perftest", "--path", "rdma", PACECAR_NICS="none0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no RDMA device none0", done.stderr)

    def test_wrong_flags_are_refused(self):
        for flags in (["moon"], ["udp", "--path", "moon"], ["udp", "--seconds", "nan"]):
            with self.subTest(flags=flags):
                self.assertEqual(run(*flags).returncode, 2)

    def test_an_interrupt_ends_its_children_and_removes_its_namespaces(self):
        path = "veth" if os.geteuid() == 0 else "loopback"
        command = [sys.executable, FOLDER / "pair", "pacecar", "--build", BUILD, "--seconds", "60",
                   "--path", path]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as process:
            deadline = time.monotonic() + LIMIT_S
            while len(children := children_of(process.pid, "pacecar")) < 2:
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


class Figures(unittest.TestCase):
    """Programs that print half of a round trip are doubled; the bare ping-pong is not."""

    def figures(self, program, *outputs):
        remaining = list(outputs)
        run_of = types.SimpleNamespace(
            size=65536, seconds=1, whole_seconds=1, address="127.0.0.1", nic="none0", gid_index=1,
            built=lambda path: path, exchange=lambda *unused: remaining.pop(0))
        with unittest.mock.patch.object(shutil, "which", return_value="found"):
            return pair.PROGRAMS[program](run_of)

    def test_pacecar_lat_is_doubled(self):
        figures = self.figures("pacecar", '{"results": {"BW_average": 8, "client": '
                               '{"cpu_s_per_gb": 1}, "server": {"cpu_s_per_gb": 2}}}',
                               '{"results": {"t_typical": 10, "percentile_99": 20}}')
        self.assertEqual(figures, {"gbps": 8, "cpu_sender": 1, "cpu_receiver": 2, "cpu_total": 3,
                                   "rtt_median_us": 20, "rtt_p99_us": 40})

    def test_bare_udp_is_not_doubled(self):
        figures = self.figures("udp", '{"gbps": 8, "lost_share": 0, "cpu_s_per_gb_sender": 1, '
                               '"cpu_s_per_gb_receiver": 2}',
                               '{"rtt_us_median": 10, "rtt_us_p99": 20}')
        self.assertEqual((figures["rtt_median_us"], figures["rtt_p99_us"]), (10, 20))

    def test_perftest_is_doubled(self):
        figures = self.figures(
            "perftest",
            " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
            " 65536 100 0.00 0.64 0.001\n",
            " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] "
            "t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]\n"
            " 8 2000 9.90 90.00 10.30 11.00 1.00 20.00 30.00\n")
        self.assertEqual(figures, {"gbps": 0.64, "rtt_median_us": 20.6, "rtt_p99_us": 40})

    def test_an_error_of_iperf3_is_a_failure(self):
        with self.assertRaisesRegex(exchange.Failed, "refused"):
            self.figures("tcp", '{"end": {}, "error": "Connection refused"}')

    def test_output_that_is_not_understood_is_a_failure(self):
        for output in ("", "{}"):
            with self.subTest(output=output), self.assertRaises(pair.NOT_UNDERSTOOD):
                self.figures("udp", output)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
