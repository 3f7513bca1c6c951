"""NVIDIA's MPS, which lets the kernels of several processes run side by side on one GPU.

It gets folders of its own, so that another one on this host is not touched, changes no setting of
the card, and ends with the measurement.
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
    """The environment that clients need; {} where there is no MPS, and a word on why.

    `probe` is the command of a client that tells whether it gets a GPU: see toolkit.probe.
    """
    if not shutil.which(CONTROL):
        log(f"{CONTROL} is not installed: {SLOW}")
        yield {}
        return
    # The server may still write its last words while the folder goes.
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
    """Why a client gets no GPU; None when it does."""
    try:
        seen = toolkit.probe(probe, **environment)
    except toolkit.Broken as reason:
        return str(reason)
    return None if seen["gpus"] else seen["reason"]


def start(environment):
    """Why it does not start; None when it does."""
    code, said = control(environment, "", "-d")
    return None if code == 0 else (said.strip() or "no reason given").splitlines()[-1]


def control(environment, text, *flags):
    """(exit code, what was said) of MPS's control program."""
    # Not through a pipe: the server that stays would hold it open.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        try:
            code = subprocess.run([CONTROL, *flags], input=text, stdout=output, check=False,
                                  stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
                                  env={**os.environ, **environment}).returncode
        except subprocess.TimeoutExpired:
            return -1, f"{CONTROL} does not end"
        output.seek(0)
        return code, output.read()
