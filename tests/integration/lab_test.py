"""Runs deploy/lab/run: wrong usage, and, where it can, two guests and three.

lab_test.py [unittest flags]; exits with 77 when this machine can run no guest.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

from limits import LIMIT_S

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "deploy/lab"
UNAVAILABLE, SKIPPED = 69, 77

sys.dont_write_bytecode = True
sys.path.insert(0, str(FOLDER))
import network  # noqa: E402  (lies beside the program)
import supervise  # noqa: E402
import tsc  # noqa: E402


def run(*words):
    return subprocess.run([sys.executable, FOLDER / "run", *words], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)


class Usage(unittest.TestCase):
    def test_wrong_usage_is_refused_in_one_sentence(self):
        mistakes = {
            "COMMAND is missing": ["--guests", "2"],
            "from 1 to 16, not '0'": ["--guests", "0", "--", "true"],
            "not '5'": ["--guests", "2", "--loss", "5", "--", "true"],
            "add --guests 2": ["--delay", "1ms", "--", "true"],
            "--rate, which is missing": ["--guests", "2", "--ecn", "--", "true"],
            "names rank 2": ["--guests", "2", "--rxe", "0,2", "--", "true"],
            "no directory": ["--share", "/nonexistent", "--", "true"],
        }
        for part, words in mistakes.items():
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(part, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


class Preparation(unittest.TestCase):
    def test_it_needs_no_command(self):
        done = run("--prepare")
        self.assertIn(done.returncode, (0, UNAVAILABLE), done.stderr)
        self.assertEqual(done.stdout, "")


class Boot(unittest.TestCase):
    def test_guests_that_hang_while_booting_are_started_once_more(self):
        code = ("import runpy, supervise, sys; supervise.BOOT_S = 0; "
                "sys.argv[0] = 'run'; runpy.run_path('run', run_name='__main__')")
        done = subprocess.run([sys.executable, "-B", "-c", code, "--", "true"], cwd=FOLDER,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode == UNAVAILABLE:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, supervise.TIMED_OUT)
        self.assertRegex(done.stderr, "booted .*: it is tried again\n.*booted .*: giving up")


class Output(unittest.TestCase):
    def test_output_of_a_guest_is_written_whole_or_fails(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        with (open(writer, "wb") as stream,
              unittest.mock.patch.object(sys, "stdout", types.SimpleNamespace(buffer=stream))):
            sink = supervise.open_output(types.SimpleNamespace(output=None, guests=1), 0, "stdout")
            sink.write(b"line\n")
            self.assertEqual(os.read(reader, 16), b"line\n")
            with self.assertRaises(BlockingIOError):
                sink.write(bytes(1 << 20))
            os.read(reader, 1 << 20)  # room for what is buffered


class OtherUsers(unittest.TestCase):
    """Files of other users in shared places: the program waits for none and removes none."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def call(self, code, *words):
        """Runs `code` with the program's modules; a wait for a FIFO fails by the time limit."""
        load = ("import importlib.machinery, importlib.util\n"
                "loader = importlib.machinery.SourceFileLoader('program', 'run')\n"
                "run = importlib.util.module_from_spec("
                "importlib.util.spec_from_loader('program', loader))\n"
                "loader.exec_module(run)\n")
        done = subprocess.run([sys.executable, "-B", "-c", load + code, *map(str, words)],
                              cwd=FOLDER, env={**os.environ, "TMPDIR": str(self.root)}, text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_only_own_folders_are_removed(self):
        with_fifo, with_link, ours = (self.root / f"pacecar-lab.{i}" for i in range(3))
        for folder in (with_fifo, with_link, ours):
            folder.mkdir()
        os.mkfifo(with_fifo / "lock")
        (ours / "lock").touch()
        (with_link / "lock").symlink_to(ours / "lock")
        (self.root / "pacecar-lab.3").symlink_to(self.root)
        theirs = self.root / "pacecar-lab.4"
        if os.geteuid() == 0:
            theirs.mkdir()
            (theirs / "lock").touch()
            os.chown(theirs, 12345, 12345)
        self.call("run.remove_left_behind()")
        self.assertFalse(ours.exists())
        self.assertTrue(with_link.exists())
        self.assertEqual(theirs.exists(), os.geteuid() == 0)

    def test_pid_files_replace_links_and_fifos(self):
        elsewhere = self.root / "elsewhere"
        elsewhere.write_text("kept")
        os.mkfifo(self.root / "guest.0.pid")
        (self.root / "guest.1.pid").symlink_to(elsewhere)
        code = ("import pathlib, private, sys\n"
                "for path in sys.argv[1:]: private.write_new(pathlib.Path(path), '7\\n')")
        files = [self.root / "guest.0.pid", self.root / "guest.1.pid"]
        self.call(code, *files)
        self.assertEqual([file.read_text() for file in files], ["7\n", "7\n"])
        self.assertEqual(elsewhere.read_text(), "kept")

    def test_a_world_writable_directory_is_refused(self):
        self.root.chmod(0o1777)
        for flag in ("--share", "--output"):
            done = run(flag, str(self.root), "--", "true")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"every user may write to {self.root}", done.stderr)

    def test_a_world_writable_cache_is_refused(self):
        (self.root / "pacecar/lab").mkdir(parents=True)
        (self.root / "pacecar/lab").chmod(0o777)
        self.call("import os, sys, image\n"
                  "os.environ['XDG_CACHE_HOME'] = sys.argv[1]\n"
                  "try: image.prepare()\n"
                  "except image.Unavailable as why: assert 'XDG_CACHE_HOME' in str(why), why\n"
                  "else: raise SystemExit('prepared')", self.root)


class Knobs(unittest.TestCase):
    @staticmethod
    def batch(**given):
        given = {"delay": None, "loss": None, "rate": None, "limit": 256, "ecn": False} | given
        return network.tc_batch(types.SimpleNamespace(**given)).splitlines()

    def test_no_flags_make_no_discipline(self):
        self.assertEqual(self.batch(), [])

    def test_disciplines_form_one_chain(self):
        lines = self.batch(delay="1ms", loss="2%", rate="10mbit", ecn=True)
        self.assertEqual([line.split(": ")[1].split()[0] for line in lines],
                         ["netem", "tbf", "red"])
        self.assertIn(" root handle 1:", lines[0])
        self.assertIn(" parent 1:1 handle 2:", lines[1])
        self.assertIn(" parent 2:1 handle 3:", lines[2])


SCRIPT = r"""
echo "devices:$(ls /sys/class/infiniband 2>/dev/null) of $LAB_GUESTS"
ping -q -c 2 -W 20 "guest$((1 - LAB_RANK))" >/dev/null && echo reached
echo "$LAB_RANK" >"$LAB_SHARE/mine.$LAB_RANK"
deploy/lab/barrier met
cat "$LAB_SHARE"/mine.*
head -c 300000 /dev/zero | tr '\0' 'e' | tee /dev/stderr | wc -c
sleep 1000 &
exit $((LAB_RANK * 3))
"""


class Guests(unittest.TestCase):
    def run_guests(self, *words):
        done = run(*words)
        if done.returncode == UNAVAILABLE:
            self.skipTest(done.stderr)
        return done

    def test_two_guests_reach_each_other_and_return_their_output(self):
        with tempfile.TemporaryDirectory() as share, tempfile.TemporaryDirectory() as output:
            done = self.run_guests("--guests", "2", "--rxe", "0", "--share", share,
                                   "--output", output, "--timeout", "240", "--", "sh", "-c", SCRIPT)
            texts = {file.name: file.read_text(encoding="utf-8")
                     for file in pathlib.Path(output).iterdir()}
            left = {file.name for file in pathlib.Path(share).iterdir()}
        self.assertEqual(done.returncode, 3, done.stderr)
        for rank, device in enumerate(["rxe0", ""]):
            self.assertEqual(texts[f"{rank}.out"].splitlines(),
                             [f"devices:{device} of 2", "reached", "0", "1", "300000"])
            self.assertEqual(len(texts[f"{rank}.err"]), 300000)
        self.assertEqual(left, {"mine.0", "mine.1"})

    def test_each_of_three_guests_reaches_the_others(self):
        script = 'for peer in $LAB_PEERS; do ping -qc 1 -W 60 "$peer" >/dev/null || exit; done'
        done = self.run_guests("--guests", "3", "--rxe", "none", "--timeout", "240", "--", "sh",
                               "-c", f"{FOLDER}/barrier up; {script}; {FOLDER}/barrier done")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_death_of_a_guest_has_its_own_exit_code(self):
        done = self.run_guests("--timeout", "120", "--", "sh", "-c",
                               "echo before; sleep 0.5; echo b >/proc/sysrq-trigger; sleep 1000")
        self.assertEqual((done.returncode, done.stdout), (70, "before\n"), done.stderr)
        self.assertIn("guest 0: ended without an exit status", done.stderr)

    def test_a_guest_need_not_measure_its_clock(self):
        # The counter's rate has a line of its own only if it differs from the processor's rate.
        find = "dmesg | sed -n 's/.*tsc: Detected \\([0-9]*\\)[.0-9]* MHz .*/\\1/p' | tail -n 1"
        done = self.run_guests("--rxe", "none", "--accel", "tcg", "--timeout", "240", "--", "sh",
                               "-c", find)
        self.assertAlmostEqual(float(done.stdout), tsc.khz() / 1000, delta=26, msg=done.stderr)

    def test_a_run_that_takes_too_long_says_what_its_guest_did_last(self):
        done = self.run_guests("--rxe", "none", "--timeout", "15", "--", "sh", "-c",
                               "echo slept here >/dev/kmsg; sleep 1000")
        self.assertEqual(done.returncode, 124, done.stderr)
        self.assertRegex(done.stderr, r"guest 0: has not ended\n(.*\n)*.*slept here")


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    if outcome.wasSuccessful() and outcome.skipped:
        print("no laboratory on this machine (deploy/lab/README.md): no guest was tested")
        sys.exit(SKIPPED)
    sys.exit(not outcome.wasSuccessful())
