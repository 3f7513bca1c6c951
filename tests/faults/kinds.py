"""The faults: how each is made in a job, and the verdicts that are right."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import typing

import job as jobs

CGROUP = pathlib.Path("/sys/fs/cgroup/cpu")


def stop(job, rank):
    os.kill(job.pid(rank), signal.SIGSTOP)


def nice(job, rank):
    """Another program takes most of the processor."""
    core = str(job.core_of(rank))
    jobs.run("taskset", "-a", "-p", "-c", core, str(job.pid(rank)))
    for thread in pathlib.Path(f"/proc/{job.pid(rank)}/task").iterdir():
        jobs.run("renice", "-n", "19", "-p", thread.name)
    job.start_beside("taskset", "-c", core, "sh", "-c", "while :; do :; done")


def throttle(job, rank):
    group = CGROUP / job.space(rank)
    group.mkdir()
    job.undo.callback(group.rmdir)
    job.undo.callback(lambda: (CGROUP / "cgroup.procs").write_text(str(job.pid(rank))))
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text("5000")
    (group / "cgroup.procs").write_text(str(job.pid(rank)))


def tell(words):
    return lambda job, rank: job.tell(rank, words)


def fill_disk(job, rank):
    """Another file takes all of the disk, so that the loader cannot write its own."""
    disk = job.disk(rank)
    another = os.open(disk / "another", os.O_WRONLY | os.O_CREAT)
    (disk / "batch").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        while True:
            os.write(another, b"x" * 4096)
    os.close(another)


def lose(job, rank):
    """Packets from the previous rank are dropped."""
    before = job.address((rank - 1) % job.size)
    jobs.run("ip", "netns", "exec", job.space(rank), "iptables", "-A", "INPUT", "-s", before,
             "-m", "statistic", "--mode", "random", "--probability", "0.08", "-j", "DROP")


def shape(space, device, rate):
    jobs.run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate,
             "burst", "64k", "latency", "200ms")


def slow_link(job, rank):
    """The link from the switch to the rank is slow."""
    shape(job.hub, job.port(rank), "80mbit")


def shaped_nic(job, rank):
    shape(job.hub, job.port(rank), "80mbit")
    shape(job.space(rank), "net0", "80mbit")


def dead_port(job, rank):
    jobs.run("ip", "-n", job.hub, "link", "set", job.port(rank), "down")


def incast(job, rank):
    """Processes of another job send to a process on the rank's host, over a slow link."""
    shape(job.hub, job.port(rank), "200mbit")
    environment = {**job.environment(rank), "RANK": "9"}
    flags = ["bw", "-d", "soft:udp:net0", "-s", "1048576", "-D", "600", "-p"]
    for sender in {(rank + 1) % job.size, (rank + 2) % job.size}:
        port = str(19000 + sender)
        job.start_beside("ip", "netns", "exec", job.space(rank), job.program, *flags, port,
                         env=environment)
        job.start_beside("ip", "netns", "exec", job.space(sender), "sh", "-c",
                         f"sleep 0.5; exec {job.program} {' '.join(flags)} {port} "
                         f"{job.address(rank)}", env=environment)


@dataclasses.dataclass
class Kind:
    make: typing.Callable
    rule: str              # the right verdict; empty: not a fault
    neighbours: tuple = () # relative ranks that may be named instead: the other end of a path
    wait_s: float = 0.5    # before the doctor runs


KINDS = {
    "stopped": Kind(stop, "silent"),
    "niced": Kind(nice, "slow-host"),
    "throttled": Kind(throttle, "slow-host"),
    "late-collective": Kind(tell("late 60"), "late-rank"),
    "full-disk": Kind(fill_disk, "late-rank"),
    "late-gpu": Kind(tell("gpu 40"), "late-gpu"),
    "slow-copy": Kind(tell("copy 5"), "slow-copy"),
    "wrong-order": Kind(tell("order 0"), "mismatch"),
    "loss": Kind(lose, "loss", (-1,)),
    "slow-link": Kind(slow_link, "slow-path", (-1,)),
    "shaped-nic": Kind(shaped_nic, "slow-nic"),
    "dead-port": Kind(dead_port, "dead-port"),
    "incast": Kind(incast, "incast", (), 2.0),
    "clock": Kind(lambda job, rank: None, ""),  # ahead from the start: Job's shifted_clock
}
