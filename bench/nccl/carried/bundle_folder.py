"""The paths in an unpacked bundle."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RUN, TORCH = HERE.parent / "run", HERE.parent / "torch_ddp.py"
MANIFEST = ROOT / "manifest.json"
PROGRAMS, LIBRARIES, SPARE = ROOT / "bin", ROOT / "lib", ROOT / "spare"
CARRIED_NCCL = ROOT / "nccl"
PLUGIN = "libnccl-net-pacecar.so"
MODULE = "libpacecar-diagnose.so"  # of pacecar, with check-plugin
GPU_TEST = "real_gpu_test"
TOOLS = ("pacecar", "ip", "perf")  # used by name if the host has none of its own

sys.path[:0] = [str(HERE.parent), str(HERE.parent / "gpu"), str(ROOT / "bench/measure/compare")]


def manifest():
    return json.loads(MANIFEST.read_text("utf-8"))
