"""Runs the real `pacecar doctor` on processes that really stall: doctor_test.py PROGRAM RANK.

A stall is reported after five seconds: the tests run the doctor until it reports what they expect.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True  # the module is beside the sources

import jobs
from limits import LIMIT_S

PROGRAM = ""
RANK = ""


class Job(jobs.JobCase):
    def start_ring(self, kinds, **changes):
        """Starts ranks that are connected in a ring; `kinds`: eager or late, of each rank."""
        ranks = [self.start(RANK, kind, RANK=str(rank), **changes)
                 for rank, kind in enumerate(kinds)]
        handles = [rank.stdout.readline() for rank in ranks]
        for i, rank in enumerate(ranks):
            rank.stdin.write(handles[(i + 1) % len(ranks)])
            rank.stdin.flush()
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "connected\n")
        return ranks

    def doctor(self, *arguments, **changes):
        return subprocess.run([PROGRAM, "doctor", *arguments], env=self.environment(**changes),
                              text=True, capture_output=True, timeout=LIMIT_S, check=False)

    def until(self, wanted, *arguments):
        """Runs the doctor until wanted(document); returns its exit code and document."""
        give_up = time.monotonic() + LIMIT_S
        while True:
            process = self.doctor("--json", *arguments)
            if process.returncode in (0, 1) and wanted(document := json.loads(process.stdout)):
                return process.returncode, document
            if time.monotonic() > give_up:
                self.fail(process.stdout + process.stderr)


class Ring(Job):
    """Three ranks; rank 1 has posted neither its send nor its receive yet."""

    def setUp(self):
        super().setUp()
        self.ranks = self.start_ring(["eager", "late", "eager"])

    def name(self, rank):
        return f"rank {rank} ({socket.gethostname()}, pid {self.ranks[rank].pid})"

    def test_late_rank_is_named_until_it_continues(self):
        def both_wait(document):
            return {f["process"] for f in document["findings"] if f["trouble"]} == {
                self.name(0), self.name(2)}
        code, document = self.until(both_wait, "--watch", "0")
        self.assertEqual(code, 1)
        self.assertEqual({(f["process"], f["rule"], f["peer"])
                          for f in document["findings"] if f["trouble"]},
                         {(self.name(0), "no-buffer", self.name(1)),
                          (self.name(2), "no-message", self.name(1))})
        verdict = document["verdict"]
        self.assertEqual(verdict["process"], self.name(1))
        self.assertEqual(verdict["nic"], "soft:udp:lo")
        self.assertIn("2 of 3 processes", verdict["why"])

        process = self.doctor("--watch", "0")
        self.assertEqual((process.returncode, process.stderr), (1, ""))
        self.assertIn(f"\nTrouble: {self.name(1)}\n", process.stdout)

        self.several_files(document)

        self.ranks[1].stdin.write("come\n")
        self.ranks[1].stdin.flush()
        for rank in self.ranks:
            self.assertEqual(rank.stdout.readline(), "passed on\n")
        process = self.doctor("--watch", "0")
        self.assertEqual(process.returncode, 0, process.stdout)
        self.assertIn("nothing is wrong", process.stdout)

    def several_files(self, whole):
        """Checks the verdict on one file per process, as if each rank ran on its own host."""
        files = []
        for i, process in enumerate(whole["processes"]):
            files.append(self.root / f"host{i}.json")
            files[-1].write_text(json.dumps({**whole, "processes": [process]}))
        process = self.doctor("--json", *map(str, files))
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual(json.loads(process.stdout)["verdict"], whole["verdict"])
        without = [str(file) for file, process in zip(files, whole["processes"])
                   if process["now"]["rank"] != 1]
        verdict = json.loads(self.doctor("--json", *without).stdout)["verdict"]
        self.assertRegex(verdict["process"], r"^127\.0\.0\.1:\d+$")
        self.assertIn("run pacecar doctor there", verdict["why"])

    def test_pid_selects_one_process(self):
        pid = self.ranks[2].pid
        document = json.loads(self.doctor("--json", "--watch", "0", "--pid", str(pid)).stdout)
        self.assertEqual([p["now"]["pid"] for p in document["processes"]], [pid])

    def test_sockets_are_private_and_stale_ones_are_removed(self):
        sockets = sorted(self.state.iterdir())
        self.assertEqual(len(sockets), 3)
        self.assertEqual(stat.S_IMODE(self.state.stat().st_mode), 0o700)
        for path in sockets:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        for rank in self.ranks:
            rank.kill()
            rank.wait()
        self.assertEqual(sorted(self.state.iterdir()), sockets)  # killed: not removed
        for path in sockets:
            os.utime(path, (1, 1))
        process = self.doctor()
        self.assertEqual(process.returncode, 2)
        self.assertEqual(list(self.state.iterdir()), [])


class Stopped(Job):
    def test_stopped_process_is_named_for_unacknowledged_writes(self):
        # One message that lasts longer than the test: a rank that is stopped between two messages
        # may have acknowledged all writes, and its peer would wait for a buffer.
        running, stopped = self.start_ring(["eager", "eager"], PACECAR_RATE_MAX="1M")

        def moves(document):
            return any(f.get("goodput_bps", 0) > 0 for f in document["findings"])
        code, document = self.until(moves)
        self.assertEqual(code, 0, document["verdict"])

        stopped.send_signal(signal.SIGSTOP)

        def stands(document):
            return any(f["rule"] == "unacknowledged" for f in document["findings"])
        code, document = self.until(stands, "--watch", "0")
        self.assertEqual(code, 1)
        self.assertEqual([p["pid"] for p in document["silent"]], [stopped.pid])
        self.assertIn(f"pid {stopped.pid} ", document["verdict"]["process"])
        self.assertIn("does not answer", document["verdict"]["why"])
        self.assertEqual([p["now"]["pid"] for p in document["processes"]], [running.pid])


class CommandLine(Job):
    def test_no_process_is_an_error(self):
        process = self.doctor()
        self.assertEqual((process.returncode, process.stdout), (2, ""))
        self.assertRegex(process.stderr, r"\Aerror: no process with Pacecar .*\n\Z")

    def test_state_dir_none_is_an_error(self):
        process = self.doctor(PACECAR_STATE_DIR="none")
        self.assertEqual(process.returncode, 2)
        self.assertRegex(process.stderr, r"\Aerror: PACECAR_STATE_DIR is none.*\n\Z")

    def test_wrong_usage(self):
        bad = self.root / "bad.json"
        bad.write_text("{}")
        for arguments in (["--nope"], [str(self.root / "nope")], [str(bad)], ["--pid", "0"],
                          ["--watch", "x"], ["--pid", "1", str(bad)]):
            process = self.doctor(*arguments)
            self.assertEqual((process.returncode, process.stdout), (2, ""), arguments)
            self.assertRegex(process.stderr, r"\Aerror: .*\n\Z")

    def test_malformed_document_is_left_out_with_a_warning(self):
        for document in (b'{"schema_version": 1, "host": "\\u001b[2J"}',
                         b'{"schema_version": 1, "nics": ' + b"[" * 80000 + b"]" * 80000 + b"}"):
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(self.state / "7-0.sock"))
                server.listen()
                asking = self.start(PROGRAM, "doctor", "--watch", "0")
                caller, _ = server.accept()
                caller.sendall(document)
                caller.close()
                output, errors = asking.communicate(timeout=LIMIT_S)
            (self.state / "7-0.sock").unlink()
            self.assertEqual((asking.returncode, output), (2, ""))
            self.assertIn("warning: pid 7: ", errors)
            self.assertNotIn("\x1b[2J", errors)

    def test_help_lists_the_exit_codes(self):
        process = self.doctor("--help")
        self.assertEqual(process.returncode, 0)
        self.assertIn("Exit codes: 0 nothing is wrong, 1 something is", process.stdout)


if __name__ == "__main__":
    PROGRAM, RANK = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
