#!/usr/bin/env python3
"""One rank of tests/soak, in a guest of the laboratory: rounds of one job and one fault each.

Both ranks draw the same rounds from the same seed. They synchronise before each round through files
in the shared folder; the job itself connects over TCP.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANK = int(os.environ["LAB_RANK"])
PEERS = os.environ["LAB_PEERS"].split()
SHARE = pathlib.Path(os.environ["LAB_SHARE"])
MEET_LIMIT_S = 120
JOB_LIMIT_S = 90  # a job that takes longer hangs
JOB_S = 6         # of measurements in a job that nothing disturbs
TIMEOUT_S = 10    # PACECAR_TIMEOUT
KEPT = 4000       # last characters of a job's output
NETEM_S = 15      # seconds: RC makes hardly any progress while packets are reordered
FAULTS = {"none": 1, "netem": 5, "flap": 3, "kill": 2, "cut": 1, "delete": 1}  # weights
NETEM = ["loss {:.2f}%", "duplicate {:.2f}%", "corrupt {:.2f}%", "delay 2ms {:.2f}ms",
         "rate 200mbit limit 100 loss {:.2f}%"]


@dataclasses.dataclass(frozen=True)
class Round:
    number: int
    fault: str
    victim: int      # the rank that has the fault
    after_s: float   # from the job's start
    size: int
    amount: float
    discipline: str


def draw(number, dice, faults):
    fault = dice.choices(faults, [FAULTS[name] for name in faults])[0]
    return Round(number, fault, dice.randrange(2), dice.uniform(2, 6),
                 dice.choice([8, 4096, 65536, 1 << 20, 4 << 20]), dice.uniform(0.1, 2),
                 dice.choice(NETEM))


def main():
    options = parse()
    dice = random.Random(options.seed)
    end = time.monotonic() + options.seconds
    number = 0
    while meet(number, last=RANK == 0 and time.monotonic() > end):
        play(draw(number, dice, options.faults), options)
        number += 1
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--nics", required=True)
    parser.add_argument("--faults", type=lambda text: text.split(","), required=True)
    return parser.parse_args()


def meet(number, last):
    """Waits for the other rank; false when rank 0 ends the soak."""
    (SHARE / f"at.{number}.{RANK}").write_text("last" if last else "on", "ascii")
    other = SHARE / f"at.{number}.{1 - RANK}"
    deadline = time.monotonic() + MEET_LIMIT_S
    while not (other.exists() and other.read_text("ascii")):
        if time.monotonic() > deadline:
            raise SystemExit(f"round {number}: the other rank does not come")
        time.sleep(0.05)
    return "last" not in ((SHARE / f"at.{number}.0").read_text("ascii"))


def play(round_, options):
    job = start_job(round_, options)
    time.sleep(round_.after_s)
    if round_.victim == RANK:
        happen(round_, job)
    try:
        output, _ = job.communicate(timeout=JOB_LIMIT_S)
        status = job.returncode
    except subprocess.TimeoutExpired:
        seen = where(job, options.build)
        job.kill()
        output, status = job.communicate()[0][-KEPT:] + seen, None
    mend(round_)
    outcome = {"round": round_.number, "rank": RANK, "fault": round_.fault,
               "verdict": verdict(round_, status, output), "status": status,
               "output": output if status is None else output[-KEPT:],
               "size": round_.size}
    with (SHARE / f"rounds.{RANK}").open("a", encoding="utf-8") as file:
        file.write(json.dumps(outcome) + "\n")


def where(job, build):
    """The state of a hanging job: its doctor's findings and its threads' stacks."""
    looks = [[build / "bench/pacecar", "doctor", "--watch", "0", "--json"],
             ["gdb", "-p", str(job.pid), "-batch", "-ex", "thread apply all bt 12"]]
    seen = ""
    for look in looks:
        with contextlib.suppress(FileNotFoundError, subprocess.TimeoutExpired):
            seen += subprocess.run(look, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, timeout=MEET_LIMIT_S / 4,
                                   check=False).stdout
    return seen


def start_job(round_, options):
    iterations = max(20, min(500, (64 << 20) // round_.size))
    command = [ROOT / "bench/nccl/run", "--cpu", "--build", options.build, "--ops", "allreduce",
               "--ranks", 2, "--rank", RANK, "--master",
               f"{PEERS[0]}:{22000 + round_.number % 10000}", "--sizes", round_.size, "-n",
               iterations, "--repetitions", 1,
               "--seconds", JOB_S]
    environment = {**os.environ, "PACECAR_NICS": options.nics.split(",")[RANK],
                   "PACECAR_TIMEOUT": f"{TIMEOUT_S}s"}
    return subprocess.Popen(list(map(str, command)), env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def happen(round_, job):
    if round_.fault == "netem":
        run("tc", "qdisc", "replace", "dev", "eth0", "root", "netem",
            *round_.discipline.format(round_.amount).split())
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(NETEM_S)
        lift_discipline()
    elif round_.fault == "flap":
        run("ip", "link", "set", "eth0", "down")
        time.sleep(1.5 * round_.amount)
        run("ip", "link", "set", "eth0", "up")
    elif round_.fault == "kill":
        job.send_signal(signal.SIGKILL)
    elif round_.fault == "cut":
        # All packets are lost, for longer than any timeout.
        run("tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "loss", "100%")
    elif round_.fault == "delete":
        subprocess.Popen(["rdma", "link", "delete", "rxe0"])  # waits until the device is unused


def mend(round_):
    if round_.victim != RANK:
        return
    if round_.fault == "cut":
        lift_discipline()
    if round_.fault == "delete":
        deadline = time.monotonic() + MEET_LIMIT_S / 2
        while pathlib.Path("/sys/class/infiniband/rxe0").exists():
            if time.monotonic() > deadline:
                raise SystemExit("rxe0 is still in use after its job has ended")
            time.sleep(0.1)
        run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
        time.sleep(1)  # its GIDs come a little later


def lift_discipline():
    run("tc", "qdisc", "del", "dev", "eth0", "root")


def verdict(round_, status, output):
    """ok: the job succeeded or was killed on purpose; told: its error names the device or the peer;
    else the fault."""
    if status is None:
        return "hangs"
    if re.search(r": element \d+ is ", output):
        return "corrupt"
    if status == -signal.SIGKILL and round_.fault == "kill" and round_.victim == RANK:
        return "ok"
    if status == 0:
        return "ok"
    if status < 0:
        return f"ended by signal {-status}"
    if round_.fault not in ("flap", "kill", "cut", "delete"):
        return "failed although the fault passes"
    names = "rxe0" in output or PEERS[1 - RANK] in output
    return "told" if names else "failed without naming device or peer"


def run(*command):
    subprocess.run(command, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
