"""Runs the real `pacecar ab`: ab_test.py PROGRAM [unittest flags].

Small simulated plans and tiny shell commands; no test asserts a duration.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from limits import ALL, LIMIT_S

PROGRAM = ""
PLANS = pathlib.Path(__file__).resolve().parents[2] / "bench/plans"
SMOKE = PLANS / "smoke.toml"

PLAN = """
seeds = 2
metrics = ["finish_us", "queue_max_bytes"]
[topology]
kind = "star"
hosts = 4
[workload]
kind = "incast"
senders = 3
bytes = "20KB"
[[arm]]
name = "fixed"
transport.cc = "fixed"
[[arm]]
name = "swift"
transport.cc = "swift"
[[factor]]
name = "senders"
key = "workload.senders"
values = [2, 3]
"""

BENCHMARK = ("echo '#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]'; "
             "echo 65536 10 99 $RATE 1")


class AbTest(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.addCleanup(self.stack.close)

    def run_ab(self, *arguments, expect=0, **changes):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
        done = subprocess.run([PROGRAM, "ab", *map(str, arguments)], env={**environment, **changes},
                              cwd=self.folder, text=True, capture_output=True, timeout=LIMIT_S,
                              check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def plan(self, more="", name="plan.toml"):
        path = self.folder / name
        path.write_text(PLAN + more)
        return path

    def results(self, name, file):
        return (self.folder / name / file).read_bytes()

    def records(self, name):
        return [json.loads(line) for line in self.results(name, "runs.jsonl").splitlines()]

    # --- plans ---

    def test_smoke_plan(self):
        done = self.run_ab(SMOKE, "--out", "out")
        self.assertIn("Thresholds", done.stdout)
        self.assertEqual(len(self.records("out")), 16)
        summary = json.loads(self.results("out", "summary.json"))
        self.assertEqual(len(summary["cells"]), 8)
        self.assertTrue(summary["passed"])
        report = self.results("out", "report.html")
        self.assertIn(b"<html", report)

    def test_every_plan_is_sound(self):
        for plan in sorted(PLANS.glob("*.toml")):
            with self.subTest(plan.name):
                self.assertIn("the plan is sound", self.run_ab(plan, "--dry-run").stdout)

    def test_pace_small_plan_meets_its_thresholds(self):
        done = self.run_ab(PLANS / "pace_small.toml", "--out", "out")
        self.assertNotIn("runs failed", done.stdout)
        self.assertTrue(json.loads(self.results("out", "summary.json"))["passed"])

    # When `pace` meets them, this test goes, and the plan's remark with it.
    @unittest.skipUnless(ALL, "in the full run")
    def test_shared_buffer_plan_is_missed_by_pace_alone(self):
        self.run_ab(PLANS / "pace_shared_buffer.toml", "--filter", "core=1:1", "--filter", "seed=1",
                    "--out", "out", expect=3)
        thresholds = json.loads(self.results("out", "summary.json"))["thresholds"]
        self.assertEqual({each["text"] for each in thresholds if not each["passed"]},
                         {"finish_us of pace, core = 1:1", "drops of pace, core = 1:1"})
        self.assertEqual(len(thresholds), 6)

    def test_records_have_their_provenance(self):
        self.run_ab(self.plan(), "--out", "out", "--jobs", "2", PACECAR_LOG="warn")
        records = self.records("out")
        self.assertEqual(sorted(r["index"] for r in records), list(range(8)))
        for record in records:
            self.assertTrue(record["ok"])
            self.assertEqual(record["plan"], "plan")
            self.assertIn(record["arm"], ("fixed", "swift"))
            self.assertIn(record["factors"]["senders"], ("2", "3"))
            self.assertGreater(record["metrics"]["finish_us"], 0)
            self.assertGreater(record["counters"]["nics"]["data_packets_sent"], 0)
            self.assertTrue((self.folder / "out" / record["detail"]).is_file())
            origin = record["provenance"]
            self.assertEqual(origin["environment"]["PACECAR_LOG"], "warn")
            for key in ("version", "commit", "kernel", "host", "cpu", "compiler", "command_line"):
                self.assertTrue(origin[key], key)

    def test_a_missed_threshold_is_exit_code_3(self):
        plan = self.plan("[[threshold]]\nmetric = 'finish_us'\narm = 'swift'\nmax = 0.5\n")
        done = self.run_ab(plan, "--out", "out", expect=3)
        self.assertIn("MISS", done.stdout)
        self.assertFalse(json.loads(self.results("out", "summary.json"))["passed"])

    def test_failed_runs_do_not_lose_the_others(self):
        plan = self.plan("[[arm]]\nname = 'bad'\ntopology.hosts = 1200\nworkload.senders = 1100\n")
        done = self.run_ab(plan, "--out", "out", expect=1)
        self.assertTrue(done.stdout.startswith("4 of 12 runs failed, 0 did not finish"))
        self.assertIn("host 0 has 1100 peers", done.stdout)
        self.assertEqual(sum(r["ok"] for r in self.records("out")), 8)
        self.assertEqual(sum(not r["ok"] for r in self.records("out")), 4)

    def test_thresholds_over_runs_that_did_not_finish_are_not_met(self):
        bound = "[[threshold]]\nmetric = 'drops'\nmax = 100000\n"
        cut = "[[arm]]\nname = 'cut'\nrun.time_limit = '3us'\n"
        done = self.run_ab(self.plan(cut + bound), "--out", "out", expect=3)
        self.assertTrue(done.stdout.startswith("0 of 12 runs failed, 4 did not finish"))
        self.assertIn("2 of 2 flows were not done after 3.000 us", done.stdout)
        self.assertEqual((done.stdout.count("  pass "), done.stdout.count("  NOT DONE ")), (4, 2))
        summary = json.loads(self.results("out", "summary.json"))
        self.assertFalse(summary["passed"])
        self.assertEqual([run["index"] for run in summary["unfinished"]], [4, 5, 10, 11])
        page = self.results("out", "report.html")
        self.assertIn(b"0 of 12 runs failed, 4 did not finish", page)
        # A plan may say that its flows are endless.
        cut += "run.endless = true\n"
        done = self.run_ab(self.plan(cut + bound), "--out", "out", "--force")
        self.assertEqual(done.stdout.count("  pass "), 6)

    def test_identical_arms_are_named_once(self):
        same = "[[arm]]\nname = 'again'\ntransport.cc = 'swift'\nfabric.failover = '1us'\n"
        plan = self.plan(same)
        plan.write_text(plan.read_text().replace("20KB", "1MB"))
        done = self.run_ab(plan, "--out", "out")
        said = "'swift' and 'again' are identical in all runs"
        self.assertEqual(done.stderr.count(said), 1, done.stderr)
        summary = json.loads(self.results("out", "summary.json"))
        self.assertEqual([one["arms"] for one in summary["identical"]], [["swift", "again"]])
        self.assertEqual(self.results("out", "report.html").count(said.encode()), 1)
        done = self.run_ab("--a", "X=1", "--b", "X=2", "--reps", "2", "--out", "programs", "--",
                           "sh", "-c", BENCHMARK, RATE="1")
        self.assertIn("'X=1' and 'X=2' are identical in all runs", done.stderr)

    def test_what_spoils_the_runs_of_a_plan_is_said(self):
        small = ("[fabric]\nbuffer = '4MiB'\n[[arm]]\nname = 'small'\n"
                 "fabric.pfc = {headroom = 9000}\n")
        done = self.run_ab(self.plan(small), "--out", "out")
        self.assertEqual(done.stderr.count("pfc's headroom of 9000 bytes is less than"), 1)
        losing = ("[fabric]\nqueue = '9KB'\n[run]\ntime_limit = '200us'\n[transport]\n"
                  "reordering = 'any'\ntimeout = '1ms'\n")
        done = self.run_ab(self.plan(losing), "--out", "out", "--force", expect=3)
        self.assertIn("only the timeout, 1000 us, tells that packets are lost", done.stdout)
        self.assertIn("leave reordering out", done.stdout)

    def test_results_are_not_overwritten_by_accident(self):
        plan = self.plan()
        self.run_ab(plan, "--filter", "senders=2", "--out", "out")
        refused = self.run_ab(plan, "--out", "out", expect=2)
        self.assertIn("--resume", refused.stderr)
        self.assertEqual(len(self.records("out")), 4)
        before = set(self.results("out", "runs.jsonl").splitlines())
        self.run_ab(plan, "--resume", "--out", "out")
        self.assertEqual(len(self.records("out")), 8)
        self.assertTrue(before <= set(self.results("out", "runs.jsonl").splitlines()))
        self.run_ab("--force", "--out", "out", "--filter", "arm=swift", plan)
        self.assertEqual(len(self.records("out")), 4)

    def test_a_folder_that_cannot_be_made_is_named(self):
        error = self.run_ab(self.plan(), "--out", "/dev/null/out", expect=1).stderr
        self.assertIn("cannot make /dev/null/out", error)

    def test_resume_after_the_plan_has_grown(self):
        self.run_ab(self.plan(), "--out", "out")
        old = {r["spec_hash"]: r["metrics"] for r in self.records("out")}
        grown = self.plan()
        grown.write_text(grown.read_text().replace("seeds = 2", "seeds = 3"))
        self.run_ab(grown, "--resume", "--out", "out")
        self.run_ab(grown, "--out", "fresh")
        self.assertEqual(self.results("out", "summary.json"), self.results("fresh", "summary.json"))
        self.assertTrue(set(old) <= {r["spec_hash"] for r in self.records("out")})

    def test_an_unfinished_line_is_run_again(self):
        plan = self.plan()
        self.run_ab(plan, "--out", "out")
        summary = self.results("out", "summary.json")
        path = self.folder / "out/runs.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
        self.run_ab(plan, "--resume", "--out", "out")
        self.assertEqual(self.results("out", "summary.json"), summary)

    def test_number_of_jobs_does_not_change_results(self):
        plan = self.plan()
        self.run_ab(plan, "--jobs", "1", "--out", "one")
        self.run_ab(plan, "--jobs", "5", "--out", "five")
        self.assertEqual(self.results("one", "summary.json"),
                         self.results("five", "summary.json"))

    def test_list_and_dry_run_run_nothing(self):
        plan = self.plan()
        listed = self.run_ab(plan, "--list", "--filter", "seed=2")
        self.assertEqual(len(listed.stdout.splitlines()), 4)
        self.assertIn("fixed, senders = 2, seed 2", listed.stdout)
        self.assertIn("8 runs", self.run_ab(plan, "--dry-run").stdout)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["plan.toml"])

    def test_mistakes_are_errors(self):
        for more, wanted in (
                ("[[arm]]\nname = 'x'\ntransport.cc = 'swfit'\n", "swfit"),
                ("[[arm]]\nname = 'x'\ntransport.pahts = 3\n", "plan.toml, line"),
                ("[[arm]]\nname = 'x'\ntopology.file = 'none.topo'\n", "none.topo"),
                ("[[arm]]\nname = 'x'\nrun.trace = 'one.json'\n", "all runs would write"),
                ("[[threshold]]\nmetric = 'finish_us@rest'\nmax = 1\n", "'finish_us@rest'")):
            error = self.run_ab(self.plan(more), "--dry-run", expect=2).stderr
            self.assertIn(wanted, error)
            self.assertEqual(len(error.strip().splitlines()), 1)
        for arguments in (("none.toml",), (), ("--reps", "3", "plan.toml"),
                          ("plan.toml", "--jobs", "0"),
                          ("--a", "X=1", "--", "true"), ("--a", "X", "--b", "Y=2", "--", "true"),
                          ("--",)):
            self.plan()
            self.assertTrue(self.run_ab(*arguments, expect=2).stderr.startswith("error: "))

    def test_interrupted_experiment_can_be_resumed(self):
        plan = self.plan("[run]\nsample_points = 2\n")
        plan.write_text(plan.read_text().replace("seeds = 2", "seeds = 5000"))
        process = subprocess.Popen([PROGRAM, "ab", plan, "--out", "out", "--jobs", "1"],
                                   cwd=self.folder, stderr=subprocess.PIPE, text=True)
        path = self.folder / "out/runs.jsonl"
        while process.poll() is None and not (path.exists() and path.read_text().count("\n") > 2):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("with --resume to continue", error)
        self.run_ab(plan, "--resume", "--out", "out", "--filter", "seed=1")
        self.assertGreater(len(self.records("out")), 2)

    # --- real programs ---

    def test_programs(self):
        done = self.run_ab("--a", "RATE=90", "--b", "RATE=95 X='a b'", "--reps", "6", "--warmup",
                           "1", "--out", "out", "--", "sh", "-c", BENCHMARK)
        self.assertIn("bw_gbps", done.stdout)
        records = self.records("out")
        self.assertEqual(len(records), 12)
        self.assertNotEqual([r["arm"] for r in records[0:2]] * 6, [r["arm"] for r in records])
        summary = json.loads(self.results("out", "summary.json"))
        comparison, = summary["comparisons"]
        self.assertEqual((comparison["n"], comparison["difference"]), (6, 5))

    def test_misspelt_parameters_of_arms_are_said_once(self):
        done = self.run_ab("--a", "PACECAR_CCC=swift", "--b", "PACECAR_CC=pace", "--reps", "2",
                           "--out", "out", "--", "true")
        self.assertEqual(done.stderr.count("did you mean PACECAR_CC?"), 1, done.stderr)

    def test_a_plan_of_programs_has_thresholds(self):
        plan = self.folder / "rates.toml"
        plan.write_text(f"command = ['sh', '-c', \"\"\"{BENCHMARK}\"\"\"]\nrounds = 2\n"
                        "[[arm]]\nname = 'slow'\nenvironment = {RATE = 90}\n"
                        "[[arm]]\nname = 'fast'\nenvironment = {RATE = 95}\n"
                        "[[threshold]]\nmetric = 'bw_gbps'\nversus = 'slow'\nmin_ratio = 1.06\n")
        done = self.run_ab(plan, "--out", "out", expect=3)
        self.assertIn("MISS", done.stdout)
        self.assertEqual(self.results("out", "plan.toml"), plan.read_bytes())

    def test_three_arms_and_a_metric(self):
        self.run_ab("--arm", "low=RATE=1", "--arm", "mid=RATE=2", "--arm", "high=RATE=3", "--reps",
                    "2", "--metric", "bw_peak_gbps", "--out", "out", "--", "sh", "-c", BENCHMARK)
        comparisons = json.loads(self.results("out", "summary.json"))["comparisons"]
        self.assertEqual([c["arm"] for c in comparisons], ["mid", "high"])
        self.assertEqual({c["metric"] for c in comparisons}, {"bw_peak_gbps"})

    def test_failing_and_hanging_commands(self):
        arms = ("--a", "X=1", "--b", "X=2", "--reps", "2", "--force", "--out", "out")
        error = self.run_ab(*arms, "--", "sh", "-c", "echo working; echo broken >&2; exit 7",
                            expect=1).stderr
        self.assertIn("ended with exit code 7", error)
        self.assertIn("broken", error)
        error = self.run_ab(*arms, "--timeout", "0.2", "--", "sleep", "60", expect=1).stderr
        self.assertIn("ran past its limit of 0.2 s", error)
        error = self.run_ab(*arms, "--", "/no/such/program", expect=1).stderr
        self.assertIn("cannot run /no/such/program", error)

    def test_failures_are_seen_although_our_parent_ignored_its_childrens_ends(self):
        done = subprocess.run(
            [PROGRAM, "ab", "--a", "X=1", "--b", "X=2", "--reps", "2", "--", "sh", "-c", "exit 7"],
            cwd=self.folder, text=True, capture_output=True, timeout=LIMIT_S, check=False,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ended with exit code 7", done.stderr)

    def battery(self, *arguments):
        return subprocess.run([sys.executable, "-B", PLANS / "battery.py", *arguments], text=True,
                              capture_output=True, timeout=LIMIT_S, check=False, cwd=self.folder)

    def test_random_cases_are_sound_in_every_fabric(self):
        for fabric in ((), ("--fabric", "pfc"), ("--fabric", "dropping"), ("--fabric", "trimming")):
            made = self.battery("plan", "--seed", "5", "--cases", "120", *fabric)
            self.assertEqual(made.stderr, "")
            pathlib.Path(self.folder, "cases.toml").write_text(made.stdout, "utf-8")
            self.assertIn("1080 runs, 9 arms", self.run_ab("cases.toml", "--dry-run").stdout)

    def test_random_cases_are_judged_by_the_best_other_arm(self):
        fewer = self.battery("plan", "--seed", "5", "--cases", "3").stdout
        more = self.battery("plan", "--seed", "5", "--cases", "4").stdout
        cases = fewer.partition("[[factor.value]]")[2]
        self.assertTrue(more.partition("[[factor.value]]")[2].startswith(cases))
        figures = {"pace": {"finish_us": 120, "queue_max_bytes": 10},
                   "nscc": {"finish_us": 110, "queue_max_bytes": 20},
                   "swift": {"finish_us": 100, "queue_max_bytes": 30},
                   "hpcc": {"queue_max_bytes": 30}}  # not done at the time limit
        pathlib.Path(self.folder, "x").mkdir()
        pathlib.Path(self.folder, "x/runs.jsonl").write_text("\n".join(json.dumps(
            {"arm": arm, "factors": {"case": "000 incast"}, "metrics": metrics})
            for arm, metrics in figures.items()), "utf-8")
        judged = self.battery("judge", "x").stdout
        self.assertIn("1.200 of swift", judged)
        self.assertIn("1 cases: pace takes 1.200 of the best other's time", judged)
        self.assertIn("at most nscc's in 100.0%", judged)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
