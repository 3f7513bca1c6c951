"""Runs bench/nccl/run --ddp without PyTorch, without a GPU, and with a stand-in that has
PyTorch's interface but trains nothing."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench/nccl/run"

NO_CUDA = """
__version__ = "0"
def empty(*_, **__):
    raise AssertionError("Torch not compiled with CUDA enabled")
"""
# The stand-in writes the log lines of a real NCCL.
STAND_IN = """
import os, sys
os.environ.setdefault("NCCL_NET", "")
from unittest.mock import MagicMock
__version__ = "0"
stand_in = MagicMock()
sys.modules.update({"torch.nn": stand_in.nn, "torch.nn.parallel": stand_in.nn.parallel})
stand_in.cuda.nccl.version.return_value = (2, 28, 9)
stand_in.cuda.device_count.return_value = 1
stand_in.randn.return_value = (1, 2)
stand_in.nn.functional.mse_loss.return_value.item.return_value = (
    float(os.environ["LOSS"]) if os.environ["NCCL_NET"] == "Pacecar" else 1.5)
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


def run(*flags, torch, apart=0, loss=1.5):
    """Runs the program with a module `torch` of this text."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text(torch, "utf-8")
        return subprocess.run(list(map(str, [sys.executable, PROGRAM, "--ddp", *flags])),
                              capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={"PYTHONPATH": folder, "APART": str(apart),
                                   "LOSS": str(loss)})


def some_library():
    """A file that loads, in the plugin's place: the stand-in does not open it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(line.split()[-1] for line in maps if "/libc." in line or "/libc-" in line)


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
        for flags, sentence in [(("4:100:8:128",), "100 is no multiple of 64"),
                                (("4:128",), "no LAYERS:WIDTH:BATCH:TOKENS"),
                                (("--cpu",), "--ddp needs a GPU")]:
            done = run(*flags, torch="")
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr)


class WholeRun(unittest.TestCase):
    FLAGS = ("2:64:4:8", "--plugin", some_library(), "--arms", "socket,soft:udp:lo", "--rounds", 2,
             "--repetitions", 4, "--iters", 3)

    def test_every_arm_is_trained_in_every_round(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "f.json")
            done = run(*self.FLAGS, "--ranks", 3, "--json", file, torch=STAND_IN)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text("utf-8"))
        self.assertEqual(sorted((one["round"], one["arm"]) for one in document["runs"]),
                         [(number, arm) for number in (1, 2) for arm in ("socket", "soft:udp:lo")])
        for one in document["runs"]:
            row, = one["rows"]
            self.assertEqual((row["op"], row["count"], row["size_bytes"]), ("step", 7, 28))
            self.assertEqual((len(row["times_s"]), row["loss"], row["wrong"]), (4, 1.5, 0))
        self.assertEqual(document["versions"]["nccl"], "2.28.9")
        self.assertRegex(done.stdout, r"\n3 +step +28 B +soft:udp:lo ")

    def test_ranks_that_differ_are_an_error(self):
        done = run(*self.FLAGS, torch=STAND_IN, apart=2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("wrong elements: 16;", done.stdout)

    def test_an_arm_with_another_loss_is_an_error(self):
        done = run(*self.FLAGS, torch=STAND_IN, loss=1.6)
        self.assertEqual(done.returncode, 2)
        self.assertIn("round 1, soft:udp:lo: the loss is 1.600000, but 1.500000 with socket",
                      done.stderr)
        self.assertEqual(run(*self.FLAGS, torch=STAND_IN, loss=1.505).returncode, 0)


if __name__ == "__main__":
    unittest.main()
