"""Starts NVIDIA's MPS, which runs the kernels of several processes on one GPU at the same time.

It uses temporary folders, so that another MPS on this host is not touched, changes no setting of
the GPU, and ends with the measurement.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile

import toolkit
from console import log

CONTROL = "nvidia-cuda-mps-control"
LIMIT_S = 30
SLOW = "the ranks take turns on the GPU, in slices of milliseconds"


@contextlib.contextmanager
def serving(probe):
    """The environment that clients need; {} without MPS, with the reason in the log.

    `probe` is the command of a client that reports whether it can use a GPU: see toolkit.probe.
    """
    if not shutil.which(CONTROL):
        log(f"{CONTROL} is not installed: {SLOW}")
        yield {}
        return
    # The server may still write to its log while the folder is deleted.
    with tempfile.TemporaryDirectory(prefix="pacecar-mps-", ignore_cleanup_errors=True) as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"),
                       "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}
        for made in environment.values():
            os.mkdir(made)
        try:
            why = start(environment) or refusal(probe, environment)
            if why is not None:
                log(f"MPS does not serve ({why}): {SLOW}")
            yield environment if why is None else {}
        finally:
            control(environment, "quit\n")


def refusal(probe, environment):
    """Why a client cannot use a GPU; None when it can."""
    try:
        seen = toolkit.probe(probe, **environment)
    except toolkit.Broken as reason:
        return str(reason)
    return None if seen["gpus"] else seen["reason"]


def start(environment):
    """Why MPS does not start; None when it does."""
    code, output = control(environment, "", "-d")
    return None if code == 0 else (output.strip() or "no reason given").splitlines()[-1]


def control(environment, text, *flags):
    """(exit code, output) of MPS's control program."""
    # Not through a pipe: the server, which keeps running, would hold it open.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        try:
            code = subprocess.run([CONTROL, *flags], input=text, stdout=output, check=False,
                                  stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
                                  env={**os.environ, **environment}).returncode
        except subprocess.TimeoutExpired:
            return -1, f"{CONTROL} does not end"
        output.seek(0)
        return code, output.read()
