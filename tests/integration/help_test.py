"""What `pacecar` says of itself fits a screen: help_test.py PROGRAM [unittest flags]."""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # the modules are beside the sources

import cli_test
from cli_test import Cli, environment, run
from limits import LIMIT_S

SCREEN = 40  # lines
GROUPS = ["measure", "diagnose", "simulate", "plan", "integrate"]


def described(*subcommand):
    return json.loads(run(*subcommand, "--describe").stdout)


def subcommands():
    return [one["name"] for one in described()["subcommands"]]


class Help(Cli):
    def test_the_front_page_has_five_groups_on_a_screen(self):
        page = run("--help").stdout
        self.assertLessEqual(page.count("\n"), SCREEN)
        self.assertEqual(re.findall(r"^(\w+)$", page, re.MULTILINE), GROUPS)
        for subcommand in subcommands():
            self.assertRegex(page, rf"(?m)^  {subcommand} ")

    def test_each_group_has_examples_and_limits(self):
        for topic in GROUPS:
            done = run("help", topic)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"\n\nWhat they do not do: [^\n]+(\n[^\n]+)*\n\Z", topic)
        self.assertIn("--out_json_file", run("help", "perftest").stdout)
        self.assertIn("PACECAR_CC=pace", run("help", "parameters").stdout)
        self.assertEqual(run("help", "lat").stdout, run("lat", "--help").stdout)
        done = run("help", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "there is no topic 'nothing': 'pacecar help' lists them")

    def test_help_shows_six_flags_and_help_all_shows_all(self):
        for subcommand in subcommands():
            few, all_of_them = (run(subcommand, flag).stdout for flag in ("--help", "--help-all"))
            self.assertLessEqual(few.count("\n"), SCREEN, subcommand)
            names = [max(flag["names"], key=len) for flag in described(subcommand)["flags"]]
            for name in names:
                self.assertIn(name, all_of_them, subcommand)
            shown = [name for name in names if re.search(rf"(?m)^  (-\w,)?{name}\b", few)]
            self.assertEqual(shown, names[:6], subcommand)
            for line in (few + all_of_them).splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_there_are_few_flags_and_parameters(self):
        flags = sum(len(described(one)["flags"]) for one in subcommands())
        self.assertLessEqual(flags, 180)
        table = json.loads(run("info", "-c", "--json").stdout)["parameters"]
        self.assertLessEqual(sum("_EXPERT_" not in one["name"] for one in table), 40)

    def test_flags_of_every_subcommand_and_old_names_work_silently(self):
        for arguments in (("info", "-q", "--no-color", "--ib-dev", "soft:udp:lo"),
                          ("predict", "-q", "--hosts", "4", "--hosts-per-leaf", "2", "--sizes",
                           "8", "--oversubscription", "2"), ("plan", "--version")):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)

    def test_exit_codes_are_documented(self):
        for subcommand in subcommands():
            self.assertIn("Exit codes:", run(subcommand, "--help").stdout, subcommand)


class Report(Cli):
    PARTS = ["Versions", "Parameters that are set here", "Paths", "preflight",
             "bw, messages of 1 MiB", "lat, messages of 8 bytes", "doctor: the jobs that run"]

    def report(self, *flags):
        name = f"{socket.gethostname()}.cluster.example"
        with tempfile.TemporaryDirectory(suffix=f"-{name}") as folder:
            done = run("report", "--out", "-", *flags, PACECAR_STATE_DIR=folder,
                       PACECAR_SECURITY="off")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"(?m)^== (.*)$", done.stdout), self.PARTS)
        self.assertIn("PACECAR_SECURITY=off  (environment)", done.stdout)
        self.assertRegex(done.stdout, r"#bytes +#iterations")
        self.assertRegex(done.stdout, r"t_typical")
        self.assertEqual(name in done.stdout, "--addresses" in flags)
        return done.stdout

    def test_it_has_every_part_and_no_address(self):
        report = self.report()
        self.assertNotRegex(report, r"127\.0\.0\.1|::1|(\w\w:){5}\w\w")
        self.assertNotRegex(report, r"NAME-\d+[.\w]")  # only whole names
        self.assertIn("no job runs: make a report while one does", report)

    def test_addresses_stay_if_asked_for(self):
        self.assertIn("127.0.0.1", self.report("--addresses"))

    def test_it_waits_for_hosts_as_long_as_asked(self):
        done = run("report", "--out", "-", "--hosts", "a,b", "--reach", "1", "--launch",
                   "sh -c 'sleep 600' {host}")
        self.assertIn("it has not answered within 1 s", done.stdout)
        self.assertNotIn("within 30 s", done.stdout)

    def test_a_file_that_cannot_be_written_is_named_first(self):
        done = run("report", "--out", "/nonexistent/x")
        self.assertEqual(done.returncode, 1)
        self.assert_one_sentence(done, "/nonexistent/x")


class Runs(Cli):
    def test_a_library_that_is_not_built_is_named_with_its_target(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(cli_test.PROGRAM, folder)
            for flags, target in (((), "verbs_device"), (("--libfabric",), "fabric_provider")):
                done = subprocess.run([f"{folder}/pacecar", "run", *flags, "--", "true"],
                                      env=environment(), text=True, capture_output=True,
                                      timeout=LIMIT_S, check=False)
                self.assertEqual(done.returncode, 1)
                self.assert_one_sentence(done, f"install the package .* --target {target}")


if __name__ == "__main__":
    cli_test.PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
