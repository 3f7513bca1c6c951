"""Runs the real `pacecar top` on real processes, also in a terminal (tmux): top_test.py PROGRAM.

Nothing here asserts a speed. Time limits are bounds on hanging.
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True  # the module lies beside the sources

import jobs
from limits import LIMIT_S

PROGRAM = ""


class Case(jobs.JobCase):
    dropped = ("NO_COLOR", "TMUX")
    added = {"TERM": "xterm-256color"}

    def start_stream(self):
        flags = ["-D", "600"]
        server = self.start(PROGRAM, "bw", "-p", "0", *flags)
        port = None
        while port is None:
            line = server.stderr.readline()
            self.assertTrue(line, "the server ended")
            port = re.search(r"on port (\d+)", line)
        client = self.start(PROGRAM, "bw", "-p", port.group(1), *flags, "127.0.0.1")
        while "flows_sending\":1" not in self.top("--json", "--once").stdout:
            pass
        return server, client

    def top(self, *arguments, **changes):
        return subprocess.run([PROGRAM, "top", *arguments], env=self.environment(**changes),
                              text=True, capture_output=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL)

    def shell(self):
        """Stands in for ssh: runs the command here, and writes down the host."""
        script = self.root / "ssh"
        script.write_text('#!/bin/sh\necho "$1" >>"$0.hosts"\nshift\nexec "$@"\n')
        script.chmod(0o755)
        return script


class Log(Case):
    def test_once_prints_one_page_without_colours(self):
        server, client = self.start_stream()
        give_up = time.monotonic() + LIMIT_S
        row = rf"pid {client.pid}\)  +to  +pacecar .*pid {server.pid}"
        while True:  # in an interval without a processor, a process sends no byte
            process = self.top("--once", "--interval", "0.2")
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            sending = [line for line in process.stdout.splitlines() if re.search(row, line)]
            moved = any(re.search(r"\d [GM]b/s .*\d us .*\d%", line) for line in sending)
            if moved or time.monotonic() > give_up:
                break
        self.assertTrue(moved, process.stdout)
        self.assertEqual(len(sending), 1, process.stdout)
        self.assertNotIn("\x1b", process.stdout)
        self.assertIn("2 processes, 2 NICs, 2 flows", process.stdout)

    def test_doctor_reads_the_json_lines(self):
        self.start_stream()
        file = self.root / "look.json"
        file.write_text(self.top("--json", "--once").stdout)
        self.assertEqual(len(json.loads(file.read_text())["processes"]), 2)
        checked = subprocess.run([PROGRAM, "doctor", str(file)], env=self.environment(), text=True,
                                 capture_output=True, timeout=LIMIT_S, check=False)
        self.assertIn(checked.returncode, (0, 1), checked.stderr)

    def test_hosts_are_asked_over_ssh(self):
        self.start_stream()
        shell = self.shell()
        process = self.top("--once", "--interval", "0.2", "--hosts", "node1,node2", "--ssh",
                           str(shell), "--remote", PROGRAM)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.assertIn("2 hosts, 2 processes", process.stdout)
        self.assertIn("b/s", process.stdout)
        hosts = pathlib.Path(f"{shell}.hosts").read_text().split()
        self.assertEqual(sorted(hosts), ["node1", "node2"])

    def test_an_unreachable_host_is_one_line(self):
        process = self.top("--once", "--hosts", "node1", "--ssh", "false")
        self.assertEqual(process.returncode, 1)
        self.assertIn("! node1: it cannot be reached (exit 1): does 'false node1 pacecar agent'",
                      process.stdout)

    def test_a_stopped_process_is_reported(self):
        server, client = self.start_stream()
        server.send_signal(signal.SIGSTOP)
        process = self.top("--once", "--interval", "0.1")
        self.assertEqual(process.returncode, 0)
        self.assertRegex(process.stdout, rf"\n! pid {server.pid} on \S+: it does not answer")
        self.assertIn(f"pid {client.pid}", process.stdout)

    def test_wrong_usage_is_one_sentence(self):
        for code, arguments in ((2, ["--nope"]), (2, ["--sort", "x"]), (2, ["--interval", "0"]),
                                (2, ["--hosts", "-oX", "--once"]), (2, ["--ssh", "x"]),
                                (2, ["--hosts", "a", "--ssh", " ", "--once"]),
                                (2, ["--hosts", "a", "--json"]), (2, []), (1, ["--once"])):
            process = self.top(*arguments)
            self.assertEqual(process.returncode, code, arguments)
            self.assertRegex(process.stderr, r"\Aerror: .*\n\Z", arguments)
        process = self.top("--once", PACECAR_STATE_DIR="none")
        self.assertEqual(process.returncode, 2)
        self.assertRegex(process.stderr, r"\Aerror: PACECAR_STATE_DIR is none.*\n\Z")

    def test_a_full_disk_is_an_error(self):
        for flag in "--once", "--json":
            with open("/dev/full", "w", encoding="ascii") as full:
                process = subprocess.run([PROGRAM, "top", flag, "--interval", "0.1"],
                                         env=self.environment(), stdout=full,
                                         stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                                         check=False)
            self.assertEqual(process.returncode, 1)
            self.assertRegex(process.stderr, r"\Aerror: cannot write .*\n\Z")


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class Terminal(Case):
    servers = 0

    def tmux(self, *arguments):
        command = ["tmux", "-S", str(self.root / f"tmux{self.servers}"), "-f", "/dev/null",
                   *arguments]
        return subprocess.run(command, env=self.environment(), text=True, capture_output=True,
                              timeout=LIMIT_S, check=False)

    def open(self, *arguments, variables=()):
        command = ["env", *variables, PROGRAM, "top", "--interval", "0.2", *arguments]
        self.servers += 1  # the previous server may not have ended yet
        script = self.root / "script"
        script.write_text(f"trap : INT; {' '.join(command)}; echo \"exit $?\"; exec sleep 1000\n")
        opened = self.tmux("new-session", "-d", "-x", "170", "-y", "40", f"sh {script}")
        self.assertEqual(opened.returncode, 0, opened.stderr)
        self.addCleanup(self.tmux, "kill-server")

    def screen(self, *flags):
        return self.tmux("capture-pane", "-p", *flags).stdout

    def until(self, pattern, *flags):
        give_up = time.monotonic() + LIMIT_S
        while not re.search(pattern, text := self.screen(*flags), re.MULTILINE):
            if time.monotonic() > give_up:
                self.fail(f"no {pattern} in\n{text}")
            time.sleep(0.02)
        return text

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def test_keys_sort_filter_pause_and_quit(self):
        server, client = self.start_stream()
        self.open()
        self.until(rf"^ NIC +PROCESS(.*\n)+ LIMIT +PROCESS(.*\n)+.*pid {client.pid}\).* to .*b/s")
        self.assertIn("by limit", self.screen())
        self.press("s")
        self.until("by goodput")
        self.press("r")
        self.until(r"by goodput \(reversed\)")
        self.press("?")
        self.until("q quit  space pause")
        self.press("/", f"{client.pid})", "Enter")
        self.until(rf"filter: {client.pid}\)$")
        self.press("Escape")
        self.until("2 flows")

        self.press("Space")
        self.until("PAUSED")
        server.kill()
        client.kill()
        server.wait()
        client.wait()
        self.assertIn(f"pid {client.pid}", self.screen())
        self.press("Space")
        self.until("0 processes")
        self.press("q")
        self.until("^exit 0$")

    def test_processes_that_start_later_appear(self):
        self.open()
        self.until("0 processes")
        self.start_stream()
        self.until("2 processes")
        self.tmux("resize-window", "-x", "80", "-y", "12")
        self.until("2 processes")
        self.assertLessEqual(max(map(len, self.screen().splitlines())), 80)
        self.press("C-c")
        self.until("^exit 0$")

    def test_no_color_switches_colours_off(self):
        coloured = r"\x1b\[(\d+;)*3[0-7]m"
        self.open()
        self.until(coloured, "-e")
        self.tmux("kill-server")
        self.open(variables=["NO_COLOR=1"])
        text = self.until("pacecar top", "-e")
        self.assertNotRegex(text, coloured)
        self.assertIn("\x1b[7m", text)  # the title is still inverted

    def test_an_unknown_terminal_is_one_sentence(self):
        self.open(variables=["TERM=nope"])
        self.until("error: .*the terminal 'nope' is not known: set TERM")
        self.until("^exit 2$")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
