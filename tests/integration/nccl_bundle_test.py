"""Makes a bundle of bench/nccl/bundle, unpacks it, and runs it as its users do:
nccl_bundle_test.py BUILD FAKES [unittest flags].

BUILD is the build folder, FAKES the libraries of tests/support/fake_nccl. Nothing here asserts a
speed.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, FAKES = (pathlib.Path(),) * 2
PLACE = None  # holds the unpacked bundle and its output
BUNDLE = pathlib.Path()

sys.dont_write_bytecode = True


def setUpModule():
    """Makes and unpacks one bundle, and loads its modules from there."""
    global PLACE, BUNDLE, hosts, main, parts, report_text
    PLACE = tempfile.TemporaryDirectory()
    archive = pathlib.Path(PLACE.name, "some.tar.gz")
    done = subprocess.run([sys.executable, ROOT / "bench/nccl/bundle", "--build", BUILD,
                           "--output", archive, "--without", "perf"],
                          capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    shutil.unpack_archive(archive, PLACE.name)
    BUNDLE = pathlib.Path(PLACE.name, "some")
    sys.path.insert(0, str(BUNDLE / "bench/nccl/carried"))
    import host as hosts
    import main
    import parts
    import report_text


def tearDownModule():
    PLACE.cleanup()


def run(*flags, **environment):
    return subprocess.run(list(map(str, [BUNDLE / "run", *flags])), capture_output=True, text=True,
                          timeout=LIMIT_S, check=False,
                          env={**os.environ, "PYTHON": sys.executable, **environment})


def tiny(name, *flags, rounds=1):
    return parts.Part(name, "a tiny one", ("gpu",),
                      ("--ops", "reduce", "--sizes", "8,1K", "--iterations", "3", "--repetitions",
                       "1", *flags), rounds)


class SelfCheck(unittest.TestCase):
    def setUp(self):
        self.output = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_a_missing_gpu_is_reported(self):
        done = run("--output", self.output, "--nccl", FAKES, LD_LIBRARY_PATH=str(FAKES),
                   FAKE_NCCL="no-gpu")
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("MISSING GPU: there is none that CUDA can use (no CUDA-capable device is "
                      "detected): run this on a host with one", done.stdout)
        self.assertIn("ok      plugin: it loads", done.stdout)
        self.assertIn("nothing can be measured here", done.stderr)
        self.assertIn("Nothing has been measured yet",
                      (self.output / "report.md").read_text("utf-8"))

    def test_the_check_needs_no_compiler_and_no_tools(self):
        programs = self.output / "programs"
        programs.mkdir()
        (programs / "dirname").symlink_to(shutil.which("dirname"))
        done = run("--check", "--output", self.output, "--nccl", FAKES,
                   LD_LIBRARY_PATH=str(FAKES), PATH=str(programs))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("this host can be measured", done.stderr)

    def test_a_missing_nccl_is_reported_with_the_cure(self):
        done = run("--check", "--output", self.output, "--nccl", __file__,
                   LD_LIBRARY_PATH=str(FAKES))
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stdout, r"(?m)^MISSING NCCL: none loads .*: name libnccl.so.2 or its")

    def test_an_old_python_is_reported(self):
        old = self.output / "python3"
        old.write_text("#!/bin/sh\nexit 1\n", "utf-8")
        old.chmod(0o755)
        (self.output / "dirname").symlink_to(shutil.which("dirname"))
        done = run(PATH=str(self.output), PYTHON="")
        self.assertEqual(done.returncode, 77)
        self.assertIn("no Python from 3.10 on is found: install python3", done.stderr)

    def test_wrong_usage_is_refused_in_a_sentence(self):
        for flags, sentence in [(("--part", "nothing"), "'nothing' is none of plugin-rules, gpu-"),
                                (("--budget", "-1"), "-1 is not in 0 to"),
                                (("--output", "/proc/x"), "/proc/x cannot be made")]:
            done = run(*flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)

    def test_an_exclusive_or_full_gpu_is_reported(self):
        for printed, sentence in [("Prohibited, 80000\n", "'nvidia-smi -c DEFAULT' as root"),
                                  ("Default, 80000\nDefault, 12\n", "GPU 1: 12 MiB are free"),
                                  ("Exclusive_Process, 80000\n", "there is no nvidia-cuda-mps")]:
            host = hosts.Host(self.output)
            with unittest.mock.patch.object(hosts.toolkit, "answer", return_value=printed), \
                    unittest.mock.patch.object(hosts.shutil, "which", return_value=None):
                hosts.check_gpu_state(host)
            self.assertFalse(host.ready)
            self.assertIn(sentence, str(host.findings[0]))


class Measuring(unittest.TestCase):
    """Runs the measurement in this process, with tiny parts."""

    def setUp(self):
        self.output = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.output / "parts").mkdir()
        ours = {"LD_LIBRARY_PATH": str(FAKES), "PATH": os.environ["PATH"]}
        self.enterContext(unittest.mock.patch.dict(os.environ, ours))
        self.enterContext(unittest.mock.patch.object(main, "log"))
        self.host = hosts.examine(self.output, str(FAKES))
        self.assertTrue(self.host.ready, self.host.findings)

    def measure(self, *some, budget=0):
        states = {}
        options = types.SimpleNamespace(part=some, budget=budget, timeout=60, output=self.output)
        with unittest.mock.patch.object(main, "PARTS", some):
            code = main.measure(self.host, options, states)
            main.report(self.host, states)
        return code, (self.output / "report.md").read_text("utf-8")

    def test_each_part_is_measured_once_and_reported(self):
        part = tiny("one", "--arms", "socket,soft:udp:lo", rounds=2)
        code, text = self.measure(part)
        self.assertEqual(code, 0)
        self.assertIn("| `one` | a tiny one | 2 of 2 rounds |", text)
        self.assertIn("`soft:udp:lo`: how many times as fast as `socket`, within a round", text)
        self.assertIn("NCCL 2.28.9, the driver is for CUDA 13.0", text)
        self.assertIn("Wrong elements: 0; failed runs: 0.", text)
        document = json.loads((self.output / "results.json").read_text("utf-8"))
        self.assertEqual(len(document["parts"]["one"]["runs"]), 4)
        with unittest.mock.patch.object(main, "run_part") as again:
            self.assertEqual(self.measure(part)[0], 0)
        again.assert_not_called()

    def test_a_part_that_fails_does_not_stop_the_others(self):
        code, text = self.measure(tiny("bad", "--arms", "socket+PATH=/nowhere+LD_LIBRARY_PATH=/"),
                                  tiny("good", "--arms", "socket"))
        self.assertEqual(code, 1)
        self.assertIn("| `bad` | a tiny one | failed: exit code 2: round 1 of 1, socket", text)
        self.assertIn("| `good` | a tiny one | 1 of 1 rounds |", text)

    def test_a_part_that_the_host_cannot_run_is_left_out(self):
        code, text = self.measure(parts.Part("far", "on the moon", ("gpu", "moon")))
        self.assertEqual(code, 0)
        self.assertIn("| `far` | on the moon | left out: this host has no moon |", text)

    def test_a_spent_budget_leaves_parts_for_the_next_run(self):
        code, text = self.measure(tiny("one", "--arms", "socket"), budget=main.RESERVE_S)
        self.assertEqual(code, main.UNFINISHED)
        self.assertIn("| `one` | a tiny one | not begun |", text)

    def test_a_part_cut_short_by_the_budget_is_not_a_failure(self):
        with unittest.mock.patch.object(main, "watched", return_value=True):
            code, text = self.measure(tiny("one", "--arms", "socket"), budget=100)
        self.assertEqual(code, main.UNFINISHED)
        self.assertIn("| `one` | a tiny one | not begun |", text)

    def test_a_kill_leaves_the_figures_and_no_ranks(self):
        process = subprocess.Popen(
            [BUNDLE / "run", "--output", self.output, "--nccl", FAKES, "--part",
             "loopback-2-small"], env={**os.environ, "PYTHON": sys.executable,
                                       "TMPDIR": str(self.output)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + LIMIT_S
        file = self.output / "parts/loopback-2-small.json"
        while not file.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        while some := ranks_in(self.output):
            self.assertLess(time.monotonic(), deadline, some)
            time.sleep(0.02)
        self.assertTrue(json.loads(file.read_text("utf-8"))["runs"])
        # The next run reports these figures.
        self.assertRegex(self.measure(parts.PARTS[3], budget=main.RESERVE_S)[1],
                         r"`socket`|`soft:udp:lo`")


def ranks_in(folder):
    """Processes of the bundle's ranks whose job lies in this folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = entry.read_text("utf-8", "replace")
        except OSError:  # the process has ended
            continue
        if "/bin/collectives" in arguments and str(folder) in arguments:
            found.append(arguments)
    return found


class Lending(unittest.TestCase):
    """With a scripted loader."""

    def lent(self, *lines):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for made in ("spare", "lent"):
                (folder / made).mkdir()
            for library in ("libfmt.so.9", "libstdc++.so.6"):
                (folder / "spare" / library).write_text("", "utf-8")
            loader = folder / "loader"
            # One line for each call; nothing after the last line.
            loader.write_text("#!/bin/sh\n" + "".join(
                f'[ -e "$0.{i}" ] || {{ : > "$0.{i}"; echo "{one}"; exit 0; }}\n'
                for i, one in enumerate(lines)), "utf-8")
            loader.chmod(0o755)
            lender = hosts.Lender(loader, folder / "spare", folder / "lent")
            return lender.lend_to(pathlib.Path("plugin.so"))

    def test_missing_and_old_libraries_are_lent(self):
        missing = "plugin.so: error while loading shared libraries: libfmt.so.9: cannot open " \
                  "shared object file: No such file or directory"
        old = "plugin.so: /lib/libstdc++.so.6: version 'GLIBCXX_3.4.30' not found (required by x)"
        self.assertEqual(self.lent(missing, old), ["libfmt.so.9", "libstdc++.so.6"])
        self.assertEqual(self.lent("  libfmt.so.9 => not found"), ["libfmt.so.9"])
        self.assertEqual(self.lent(), [])

    def test_an_old_c_library_is_refused(self):
        with self.assertRaisesRegex(hosts.Lacking, "GLIBC_2.36 of the C library"):
            self.lent("plugin.so: /lib/libc.so.6: version 'GLIBC_2.36' not found (required by x)")

    def test_a_library_outside_the_bundle_is_named(self):
        with self.assertRaisesRegex(hosts.Lacking, "libother.so.1 .*neither installed nor in the"):
            self.lent("  libother.so.1 => not found")


class Report(unittest.TestCase):
    def test_the_grid_has_a_row_per_operation_and_a_column_per_size(self):
        cells = {("reduce", 8): 1, ("reduce", 1024): 2, ("alltoall", 1024): 3}
        self.assertEqual(report_text.grid(cells, str), [
            "| | 8 B | 1 KiB |", "|---|---|---|", "| reduce | 1 | 2 |", "| alltoall | - | 3 |"])

    def test_a_round_counts_once_every_arm_has_run(self):
        document = {"options": {"arms": "a,b,c"}, "left_out": ["c, 2 ranks"],
                    "runs": [{"round": 1, "arm": "a"}, {"round": 1, "arm": "b"},
                             {"round": 2, "arm": "a"}]}
        self.assertEqual(parts.rounds_of(document), 1)

    def test_gpu_tests_are_tabulated(self):
        suite = [{"name": "Copies", "result": "COMPLETED", "said": "fast"},
                 {"name": "Exports", "result": "COMPLETED",
                  "failures": [{"failure": "file:1\nno dma-buf"}]},
                 {"name": "Knows", "result": "SKIPPED"}]
        lines = report_text.gpu_tests({"testsuites": [{"testsuite": suite}]})
        self.assertEqual(lines[2:], ["| Copies | completed; fast |",
                                     "| Exports | failed: no dma-buf |", "| Knows | skipped |"])

    def test_training_steps_are_compared(self):
        runs = [{"round": 1, "arm": arm, "step_s": [seconds], "loss": 1.0}
                for arm, seconds in (("socket", 2), ("nic", 1))]
        self.assertRegex("\n".join(report_text.lines_of({"runs": runs})),
                         r"nic +1000.00 .* 2.00 \(")

    def test_a_broken_document_is_named_in_the_report(self):
        self.assertIn("cannot be shown (KeyError('ranks'))",
                      report_text.lines_of({"runs": [{}]})[1])

    def test_broken_rules_are_listed(self):
        rule = {"rule": "depth", "verdict": "fail", "sentence": "32 requests", "detail": "31"}
        self.assertEqual(report_text.rules({"rules": [rule], "performance": []})[1:],
                         ["1 of 1 rules do not hold.", "- depth: fail; 32 requests: 31"])

    def test_part_names_are_unique(self):
        names = [part.name for part in parts.PARTS]
        self.assertEqual(len(set(names)), len(names))


if __name__ == "__main__":
    BUILD, FAKES = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main()
