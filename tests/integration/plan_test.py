"""Runs the real `pacecar plan`: plan_test.py PROGRAM [unittest flags]."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

PROGRAM = ""
HETHUB = pathlib.Path(__file__).resolve().parents[2] / "bench/plan/examples/hethub.toml"

SMALL = """
[model]
preset = "llama2-7b"
[training]
global_batch = 64
[[accelerators]]
name = "old"
hosts = 1
tflops = 125
memory = "32GB"
memory_rate = "900GB"
host = {gpus = 8, nics = "100G", nvlink = "1200G"}
[[accelerators]]
name = "new"
hosts = 1
tflops = 312
samples = [{micro_batch = 1, tensor = 1, forward = "14ms"}]
host = {gpus = 8, nics = "200G", nvlink = "2400G"}
"""


def run(*arguments):
    return subprocess.run([PROGRAM, "plan", *arguments], text=True, capture_output=True,
                          timeout=LIMIT_S, check=False)


class Plan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.small = self.folder / "small.toml"
        self.small.write_text(SMALL)

    def fails(self, *arguments, message, code=2):
        done = run(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        self.assertIn(message, done.stderr)

    def test_plans_of_a_small_cluster_are_sorted_and_fit_the_memory(self):
        done = run(self.small, "--best", "3", "--json=" + str(self.folder / "plans.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of the sum of what each kind reaches alone", done.stdout)
        self.assertIn("is busy longest", done.stdout)
        document = json.loads((self.folder / "plans.json").read_text())
        plans = document["plans"]
        self.assertEqual(len(plans), 3)
        self.assertEqual([p["step_s"] for p in plans], sorted(p["step_s"] for p in plans))
        for plan in plans:
            self.assertEqual(sum(plan["layers"]), 32)
            self.assertLess(plan["of_compute_bound"], 1)
            self.assertAlmostEqual(sum(plan["shares"].values()), 1, places=6)
            for stage in plan["stages"]:
                memory = stage["memory_bytes"]
                self.assertLessEqual(
                    memory["weights"] + memory["optimizer"] + memory["activations"],
                    memory["usable"])
        self.assertGreaterEqual(plans[0]["step_s"], document["bound_s"])

    def test_emits_launch_parameters(self):
        megatron = run(self.small, "--megatron")
        self.assertEqual(megatron.returncode, 0, megatron.stderr)
        self.assertIn("--pipeline-model-parallel-size", megatron.stdout)
        self.fails(self.small, "--megatron", "--plan", "9", message="there is no plan 9")

    def test_example_is_planned_near_its_bound(self):
        done = run(HETHUB, "--best", "1", "--nodes", "100", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        plan = document["plans"][0]
        self.assertEqual(sum(plan["layers"]), 160)
        self.assertGreaterEqual(plan["tokens_per_s"] / document["alone_tokens_per_s"], 0.97)

    def test_a_factor_of_sizes_may_exceed_their_range(self):
        done = subprocess.run([PROGRAM, "predict", "--hosts", "2", "--gpus", "1", "--algorithm",
                               "ring", "--protocol", "LL", "--sizes", "1:16384G:x16384G", "--json"],
                              text=True, capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        sizes = [one["size"] for one in json.loads(done.stdout)["results"]]
        self.assertEqual(sizes, [1, 1 << 44])

    def test_groups_that_do_not_divide_the_ranks_are_refused(self):
        for hosts, group, words in ((4, 20, "group is 20: give a divisor of the 32 ranks"),
                                    (2048, 8192, "divisor of the 16384 ranks, and of the 4096")):
            done = subprocess.run([PROGRAM, "predict", "--hosts", str(hosts), "--gpus", "8",
                                   "--set", f"collective.group={group}"],
                                  text=True, capture_output=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stderr)

    def test_predictions_name_what_is_assumed(self):
        small = [PROGRAM, "predict", "--hosts", "2", "--sizes", "1M"]
        text, document = (subprocess.run(small + more, text=True, capture_output=True,
                                         timeout=LIMIT_S, check=True).stdout
                          for more in ([], ["--json"]))
        self.assertIn("# assumed, not measured: 4 us per step of Simple, 0.7 of LL", text)
        self.assertIn("not measured", json.loads(document)["assumed"])

    def test_pairs_use_the_whole_link_and_simple(self):
        done = subprocess.run([PROGRAM, "predict", "--hosts", "2", "--gpus", "1", "--op",
                               "sendrecv,alltoall", "--sizes", "1K,64M", "--json"], text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)
        results = json.loads(done.stdout)["results"]
        used = {(one["operation"], one["size"], one["protocol"]) for one in results}
        self.assertEqual({protocol for _, size, protocol in used if size > 1024}, {"Simple"})
        self.assertEqual({protocol for *_, protocol in used}, {"Simple", "LL"})
        for one in results:
            if (one["operation"], one["size"]) == ("sendrecv", 64 << 20):
                self.assertGreater(one["busbw_gb_s"], 40)  # of 400 Gb/s

    def test_an_alltoall_has_at_least_a_byte_for_each_rank(self):
        def sizes(text):
            return subprocess.run([PROGRAM, "predict", "--hosts", "2", "--gpus", "8", "--op",
                                   "alltoall", "--sizes", text, "--json"], text=True,
                                  capture_output=True, timeout=LIMIT_S, check=False)

        refused = sizes("8")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("an alltoall at least a byte for each rank", refused.stderr)
        answered = {one["size"] for one in json.loads(sizes("8,1K").stdout)["results"]}
        self.assertEqual(answered, {1024})

    def test_flags_may_come_in_any_order(self):
        done = subprocess.run([PROGRAM, "predict", "--topology", "star", "--hosts", "129"],
                              text=True, capture_output=True, timeout=LIMIT_S, check=False)
        self.assertIn("# 129 hosts of 8 GPUs", done.stdout)

    def test_each_of_two_equal_sizes_has_a_best_choice(self):
        done = subprocess.run([PROGRAM, "predict", "--hosts", "2", "--gpus", "1", "--sizes",
                               "1M,2M,1M", "--json"], text=True, capture_output=True,
                              timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        best = [one["size"] for one in json.loads(done.stdout)["results"] if one["best"]]
        self.assertEqual(best, [1 << 20, 2 << 20, 1 << 20])

    def test_bad_input_is_one_sentence(self):
        def setting(text, message, code=2):
            self.fails(self.small, "--set", text, message=message, code=code)

        self.fails(message="nothing is to be planned")
        self.fails(self.folder / "none.toml", message="none.toml")
        setting("model.preset=llama2-7c", "did you mean 'llama2-7b'?")
        setting("model.heads=7", "do not divide hidden")
        setting("model.top_k=2", "more than experts")
        setting("model.layer=2", "layer")
        setting("training.global_batch=0", "global_batch")
        setting("training.tensor=[]", "is empty")
        setting("training.tensor=[1,1]", "twice")
        setting("training.micro_batches=[0]", "has a 0")
        setting("training.recompute=some", "recompute")
        setting("training.micro_batches=[128]", "no plan divides the batch", code=1)
        setting("training.usable_memory=0.02", "no plan fits the memory", code=1)
        setting("accelerators=[]", "there are no accelerators")
        setting("accelerators=[{name=1}]", "name")
        setting("accelerators=[{hosts=1}]", "tflops is missing")
        setting('accelerators=[{tflops=1, samples=[{forward="1us"}]}]', "fit no roofline")
        setting("topolgy.hosts=2", "there is no table")
        setting("topology.kind=ring", "ring")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
