"""The description of the measuring machine, for the JSON."""

import datetime
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
TCP_ALGORITHM = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


def describe():
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": git("rev-parse", "HEAD"),
            "uncommitted_changes": bool(git("status", "--porcelain", "--untracked-files=no")),
            "kernel": platform.release(),
            "cpu_model": cpu_model(),
            "cpus": len(os.sched_getaffinity(0)),
            "load_average_1min": os.getloadavg()[0],
            "tcp_congestion_control": TCP_ALGORITHM.read_text("ascii").strip(),
            "environment": {name: value for name, value in sorted(os.environ.items())
                            if name.startswith("PACECAR_")}}


def git(*arguments):
    """None without git or a repository, as in a release's archive."""
    if not (ROOT / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()
