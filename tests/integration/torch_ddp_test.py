"""Runs bench/nccl/torch_ddp.py without PyTorch, without a GPU, and with a stand-in that has
PyTorch's interface but trains nothing."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench/nccl/torch_ddp.py"

sys.dont_write_bytecode = True
SPEC = importlib.util.spec_from_file_location("torch_ddp", PROGRAM)
torch_ddp = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(torch_ddp)
import exchange  # noqa: E402  (torch_ddp has made its folder known)

NO_CUDA = """
__version__ = "0"
def empty(*_, **__):
    raise AssertionError("Torch not compiled with CUDA enabled")
"""
# The stand-in writes the log lines of a real NCCL.
STAND_IN = """
import os, sys
from unittest.mock import MagicMock
__version__ = "0"
stand_in = MagicMock()
sys.modules.update({"torch.nn": stand_in.nn, "torch.nn.parallel": stand_in.nn.parallel})
stand_in.cuda.nccl.version.return_value = (2, 28, 9)
stand_in.cuda.device_count.return_value = 1
stand_in.randn.return_value = (1, 2)
stand_in.nn.functional.mse_loss.return_value.item.return_value = 1.5
parameters = stand_in.nn.utils.parameters_to_vector.return_value.detach.return_value
parameters.__len__.return_value = 7
apart = MagicMock()
apart.sum.return_value = int(os.environ["APART"])
parameters.clone.return_value.__ne__ = lambda *_: apart
def initialise(backend, init_method, rank, world_size):
    network = os.environ["NCCL_NET"]
    with open(os.environ["NCCL_DEBUG_FILE"], "w") as log:
        print(f"Pacecar on {os.environ.get('PACECAR_NICS')} (stand-in)", file=log)
        print(f"Using network {network}", file=log)
        print(f"Channel 00/0 : 0[0] -> 1[0] [send] via NET/{network}/0", file=log)
stand_in.distributed.init_process_group = initialise
def __getattr__(name):
    return getattr(stand_in, name)
"""


def run(*flags, torch, apart=0):
    """Runs the program with a module `torch` of this text."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text(torch, "utf-8")
        return subprocess.run(list(map(str, [sys.executable, PROGRAM, *flags])),
                              capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={"PYTHONPATH": folder, "APART": str(apart)})


def some_library():
    """A file that loads, in the plugin's place: the stand-in does not open it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(line.split()[-1] for line in maps if "/libc." in line or "/libc-" in line)


def output(step_s, apart=0, loss=1.0):
    return "some library says hello\n" + json.dumps(
        {"step_s": step_s, "loss": loss, "parameters": 7, "apart": apart}) + "\n"


class Skips(unittest.TestCase):
    def test_no_torch_is_a_skip(self):
        done = run(torch="raise ImportError('no torch here')")
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: this Python has no PyTorch (no torch here): run it with one",
                      done.stderr)

    def test_no_gpu_is_a_skip(self):
        done = run(torch=NO_CUDA)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: there is no GPU that CUDA can use (Torch not compiled with CUDA "
                      "enabled)", done.stderr)

    def test_wrong_usage_is_refused_in_a_sentence(self):
        for flags, sentence in [(("--width", "100"), "100 is no multiple of 64"),
                                (("--arms", "socket,socket"), "named twice"),
                                (("--ranks", "1"), "1 is not in 2 to 16")]:
            done = run(*flags, torch="")
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr)


class WholeRun(unittest.TestCase):
    def test_every_arm_is_trained_in_every_round(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "f.json")
            done = run("--plugin", some_library(), "--ranks", "3", "--rounds", "2", "--steps", "4",
                       "--warm-up", "1", "--json", file, torch=STAND_IN)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text("utf-8"))
        self.assertEqual(sorted((one["round"], one["arm"]) for one in document["runs"]),
                         [(number, arm) for number in (1, 2) for arm in ("socket", "soft:udp:lo")])
        for one in document["runs"]:
            self.assertEqual((len(one["step_s"]), one["loss"], one["parameters"]), (4, 1.5, 7))
        self.assertEqual(document["versions"], {"torch": "0", "nccl": "2.28.9"})
        self.assertRegex(done.stdout, r"(?m)^soft:udp:lo .* 1.5000 +2$")

    def test_ranks_that_differ_fail_their_arm(self):
        done = run("--arms", "socket", torch=STAND_IN, apart=2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("round 1 of 3, socket: 2 of 7 parameters differ between ranks", done.stderr)


class Figures(unittest.TestCase):
    def test_a_step_takes_as_long_as_its_slowest_rank(self):
        merged = torch_ddp.merge([output([1, 4], loss=2.0), output([3, 2], loss=4.0)])
        self.assertEqual(merged, {"step_s": [3, 4], "loss": 3.0, "parameters": 7})

    def test_parameters_that_differ_between_ranks_are_an_error(self):
        with self.assertRaisesRegex(exchange.Failed, "2 of 7 parameters differ between ranks"):
            torch_ddp.merge([output([1], apart=2), output([1], apart=2)])

    def test_the_ratio_is_taken_within_a_round(self):
        runs = [{"round": number, "arm": arm, "step_s": [seconds], "loss": 1.0}
                for number, pair in enumerate([(1, 0.5), (3, 1), (8, 2)])
                for arm, seconds in zip(("socket", "nic"), pair)]
        _, base, arm = torch_ddp.table(runs)
        self.assertRegex(base, r"socket +3000.00 \(1000.00..8000.00\) +1.00 \(1.00..1.00\) +1.0000")
        self.assertRegex(arm, r"nic +1000.00 \(500.00..2000.00\) +3.00 \(2.00..4.00\)")

    def test_a_different_loss_is_reported(self):
        runs = [{"round": 1, "arm": arm, "loss": loss}
                for arm, loss in (("socket", 2.0), ("a", 2.01), ("b", 2.1))]
        self.assertEqual(torch_ddp.disagreements(runs),
                         ["round 1, b: the loss is 2.100000, but 2.000000 with socket"])


if __name__ == "__main__":
    unittest.main()
