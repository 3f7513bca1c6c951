"""pacecar check-plugin: our plugin passes every rule, and a plugin that breaks one fails it."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PACECAR, PLUGIN, FAULTY = sys.argv[1:4]
SLOWER = int(os.environ.get("TESTS_SLOWER", "1"))  # a sanitizer's build
LIMIT_S = 4  # of a broken rule, so that a hang ends soon
# The faults that break a rule, where they do not have the rule's name.
FAULTS = {"sizes": ["sizes", "crash"]}


def check(*flags, fault=None, timeout_s=10):
    environment = {**os.environ, "PACECAR_NICS": "soft:udp:lo", "REAL_PLUGIN": PLUGIN,
                   "PACECAR_TIMEOUT": f"{timeout_s * SLOWER}s"}
    if fault:
        environment["FAULT"] = fault
    return subprocess.run([PACECAR, "check-plugin", *map(str, flags)], env=environment,
                          capture_output=True, text=True, timeout=300, check=False)


def rules():
    return [line.split()[0] for line in check("--list").stdout.splitlines()]


class CheckPlugin(unittest.TestCase):
    def test_our_plugin_keeps_every_rule(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = check(PLUGIN, "--version", 12, "--version", 8, "--seconds", 0.4, "--json",
                         file.name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.load(file)
        verdicts = {(one["version"], one["rule"]): one["verdict"] for one in found["rules"]}
        self.assertEqual(len(verdicts), 2 * len(rules()))
        self.assertEqual(verdicts.pop((8, "two-communicators")), "not offered")
        self.assertEqual(verdicts.pop((8, "finalize-null")), "not offered")
        self.assertEqual(set(verdicts.values()), {"pass"})
        for one in found["performance"]:
            self.assertGreater(one["stream"]["gbps"], 0)
            self.assertGreater(one["latency"]["p99_us"], one["latency"]["min_us"])

    def test_every_rule_can_fail(self):
        for rule in rules():
            for fault in FAULTS.get(rule, [rule]):
                with self.subTest(rule=rule, fault=fault):
                    done = check(FAULTY, "--only", rule, "--seconds", 0, "--limit", LIMIT_S,
                                 fault=fault, timeout_s=1)
                    self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                    lines = [line.split() for line in done.stdout.splitlines()]
                    self.assertIn(["v12", "FAIL", rule], [line[:3] for line in lines])
                    self.assertEqual("crash" in done.stdout, fault == "crash")

    def test_reluctant_plugin_passes(self):
        for rule in ["full", "properties"]:
            done = check(FAULTY, "--seconds", 0.1, "--only", rule, "--limit", 20,
                         fault="reluctant")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("half a round trip", done.stdout)

    def test_a_plugin_may_exclude_protocols(self):
        done = check(FAULTY, "--seconds", 0, "--only", "flags", fault="no-flags")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("v12  -     flags", done.stdout)

    def test_broken_rule_does_not_fail_the_others(self):
        done = check(FAULTY, "--seconds", 0, "--only", "s", fault="short")
        failed = [line.split()[2] for line in done.stdout.splitlines() if " FAIL " in line]
        self.assertEqual(failed, ["short"])

    def test_usage_errors_are_named(self):
        for flags, sentence in [(["/no/such.so"], "cannot be loaded"),
                                ([FAULTY, "--version", 9], "has no table of version 9; it has: 12"),
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
