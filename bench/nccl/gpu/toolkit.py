"""Finds NCCL and the programs, looks for GPUs."""

import importlib.util
import json
import os
import pathlib
import subprocess

from console import missing
from machine import ROOT

DRIVER = "collectives"
NCCL = "libnccl.so.2"
NCCL_FOLDERS = ("lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu",
                "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
PROBE_LIMIT_S = 180  # libraries of gigabytes, from a cold disk


class Skipped(Exception):
    """Nothing can be measured here; the text has the reason and advice."""


class Broken(Exception):
    """Something that should work does not; the text has the reason and advice."""


def wheel_folders():
    """The folders of NVIDIA's packages that pip has installed."""
    spec = importlib.util.find_spec("nvidia")
    for base in spec.submodule_search_locations if spec else []:
        yield from sorted(pathlib.Path(base).glob("*"))


def find_nccl(named):
    """The library's file: `named` itself, or in the folder `named`. Without `named` it is searched
    in the usual folders, and otherwise left to the loader."""
    if named and pathlib.Path(named).is_file():
        return str(pathlib.Path(named).resolve())
    usual = [pathlib.Path("/usr/local/cuda"), *wheel_folders(), pathlib.Path("/usr")]
    for base in [pathlib.Path(named)] if named else usual:
        for folder in ("", *NCCL_FOLDERS):
            if (base / folder / NCCL).is_file():
                return str((base / folder / NCCL).resolve())
    if named:
        raise Skipped(f"{NCCL} is not found in {named}: give the file or its folder with --nccl")
    return NCCL


def folder_with(file, installed, built):
    """The folder with this program or library."""
    for folder in (ROOT / installed, built):
        if (folder / file).exists():
            return folder.resolve()
    raise Broken(missing(built / file))


def use_libraries(*folders):
    """Programs that are started from now on look for libraries in these folders first."""
    os.environ["LD_LIBRARY_PATH"] = ":".join(
        [*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


def probe(command, **environment):
    """The output of a program that looks for GPUs: a JSON object with "gpus" and "reason"."""
    text = " ".join(map(str, command))
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              timeout=PROBE_LIMIT_S, env={**os.environ, **environment})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Broken(f"'{text}' does not run: {error}") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        output = (done.stderr or done.stdout).strip()
        raise Broken(f"'{text}' ended with {done.returncode}: '{output}'") from None


def require_gpu(seen):
    if seen["gpus"] == 0:
        raise Skipped(f"there is no GPU that CUDA can use ({seen['reason']}): run this on a host "
                      "with one and NVIDIA's driver, or with --cpu")


def require_nccl(seen):
    if seen["nccl"] == 0:
        raise Skipped(f"NCCL does not load ({seen['nccl_reason']}): install libnccl2, or name "
                      f"{NCCL} or its folder with --nccl")


def versions(seen):
    """For people: "2.28.9" from NCCL's 22809, "13.0" from CUDA's 13000."""
    def dotted(number, *units):
        parts = []
        for unit in units:
            parts.append(str(number // unit))
            number %= unit
        return ".".join(parts)

    return {"nccl": dotted(seen["nccl"], 10000, 100, 1),
            "cuda_driver": dotted(seen["cuda_driver"], 1000, 10)}


def gpu_names():
    """The GPUs with their driver, by nvidia-smi; empty if it fails."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True,
                              timeout=PROBE_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
