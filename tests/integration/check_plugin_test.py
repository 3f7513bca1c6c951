"""pacecar check-plugin: our plugin passes every rule, and a plugin that breaks one fails it."""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S, further

PACECAR, PLUGIN, FAULTY = sys.argv[1:4]
SLOWER = int(os.environ.get("TESTS_SLOWER", "1"))  # a sanitizer's build
HANG_S = 2  # after which a rule hangs that such a fault lets hang
HANGS = {"non-blocking", "depth", "unattended", "abort", "dead-receiver", "dead-sender"}
# The faults that break a rule, where they do not have the rule's name.
FAULTS = {"sizes": ["sizes", "crash"]}


def check(*flags, fault=None, timeout_s=10):
    environment = {**os.environ, "PACECAR_NICS": "soft:udp:lo", "REAL_PLUGIN": PLUGIN,
                   "PACECAR_TIMEOUT": f"{timeout_s * SLOWER}s"}
    if fault:
        environment["FAULT"] = fault
    return subprocess.run([PACECAR, "check-plugin", *map(str, flags)], env=environment,
                          capture_output=True, text=True, timeout=LIMIT_S, check=False)


def rules():
    return [line.split()[0] for line in check("--list").stdout.splitlines()]


class CheckPlugin(unittest.TestCase):
    def examine(self, *flags):
        """The document of our plugin, which keeps the rules."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = check(PLUGIN, *flags, "--limit", LIMIT_S, "--json", file.name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.load(file)

    def test_our_plugin_keeps_every_rule(self):
        versions = (12, *further(8))
        found = self.examine(*(word for one in versions for word in ("--table", one)))
        verdicts = {(one["version"], one["rule"]): one["verdict"] for one in found["rules"]}
        self.assertEqual(len(verdicts), len(versions) * len(rules()))
        self.assertEqual(set(verdicts.values()) - {"not offered"}, {"pass"})
        self.assertNotIn("not offered", [verdicts[12, rule] for rule in rules()])

    def test_rules_that_a_version_does_not_offer(self):
        for rule in ("two-communicators", "finalize-null"):
            found = self.examine("--table", 8, "--only", rule)
            self.assertEqual([one["verdict"] for one in found["rules"]], ["not offered"])

    def test_every_rule_can_fail(self):
        faults = [(rule, fault) for rule in rules() for fault in FAULTS.get(rule, [rule])]
        with concurrent.futures.ThreadPoolExecutor(4) as several:  # most wait for a limit of time
            for (rule, fault), done in zip(faults, several.map(self.break_rule, faults)):
                with self.subTest(rule=rule, fault=fault):
                    self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                    lines = [line.split() for line in done.stdout.splitlines()]
                    self.assertIn(["v12", "FAIL", rule], [line[:3] for line in lines])
                    self.assertEqual("crash" in done.stdout, fault == "crash")

    @staticmethod
    def break_rule(rule_and_fault):
        rule, fault = rule_and_fault
        limit = HANG_S if fault in HANGS else LIMIT_S
        return check(FAULTY, "--only", rule, "--limit", limit, fault=fault,
                     timeout_s=1)

    def test_reluctant_plugin_passes(self):
        for rule in ["full", "properties"]:
            done = check(FAULTY, "--only", rule, "--limit", LIMIT_S, fault="reluctant")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_plugin_may_exclude_protocols(self):
        done = check(FAULTY, "--only", "flags", fault="no-flags")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("v12  -     flags", done.stdout)

    def test_broken_rule_does_not_fail_the_others(self):
        done = check(FAULTY, "--only", "s", fault="short")
        failed = [line.split()[2] for line in done.stdout.splitlines() if " FAIL " in line]
        self.assertEqual(failed, ["short"])

    def test_usage_errors_are_named(self):
        for flags, sentence in [(["/no/such.so"], "cannot be loaded"),
                                ([FAULTY, "--table", 9], "has no table of version 9; it has: 12"),
                                ([PACECAR + "-none"], "cannot be loaded"),
                                ([], "which plugin?"),
                                ([PLUGIN, "--only", "tag-s"], "no rule's name contains 'tag-s'"),
                                ([PLUGIN, "--version", 5], "not in range")]:
            with self.subTest(flags=flags):
                done = check(*flags, fault="short")
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(sentence, done.stderr)

    def test_library_without_a_plugin_is_refused(self):
        done = check("libc.so.6")
        self.assertEqual(done.returncode, 2)
        self.assertIn("exports no ncclNetPlugin_v6 to v12", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
