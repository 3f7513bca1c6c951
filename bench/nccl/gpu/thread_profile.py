"""Profiles the ranks' threads while a job runs: their processor time, from /proc; where in the code
they spend it, by `perf` if installed; and what the slices of operations wait for, by NCCL's
profiler interface (slice_waits.cc).

NCCL calls the plugin in its own thread ("NCCL Progress"): /proc cannot separate the two, perf can.
The sampler's thread and perf slow the job down a little, so do not compare these times with others.
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LOOK_EVERY_S = 0.2
PERF_HZ = 499
PERF_LIMIT_S = 120
PERF_LINES, PERF_WIDTH = 30, 120


def threads_of(pid):
    """{thread: (name, user, system seconds)} of a process; {} when it has ended."""
    result = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            # The name may contain any character, also ')'.
            head, _, tail = (task / "stat").read_text("utf-8", "replace").rpartition(")")
            fields = tail.split()
            result[int(task.name)] = (head.partition("(")[2], int(fields[11]) * TICK_S,
                                      int(fields[12]) * TICK_S)
    return result


def by_name(threads):
    """Rows of {thread, count, user_s, system_s}, the busiest first; threads whose names differ only
    by a number at the end are one row."""
    sums = {}
    for name, user, system in threads:
        kind = re.sub(r"[\s\d]+$", "", name) or name
        count, users, systems = sums.get(kind, (0, 0.0, 0.0))
        sums[kind] = (count + 1, users + user, systems + system)
    rows = [{"thread": kind, "count": count, "user_s": users, "system_s": systems}
            for kind, (count, users, systems) in sums.items()]
    return sorted(rows, key=lambda row: -row["user_s"] - row["system_s"])


class Watch:
    """Call it with the process ids of the ranks, as a context; afterwards `result` has the profile.

    The ranks need `environment`. `folder` is for files that they write, `slices` is the profiler
    plugin.
    """

    def __init__(self, slices, folder):
        self.result = {"threads": [], "slices": {}, "perf": ""}
        self._left = tempfile.TemporaryDirectory(dir=folder)
        self.environment = {"NCCL_PROFILER_PLUGIN": str(slices),
                            "SLICE_WAITS": str(pathlib.Path(self._left.name, "slices"))}
        self._seen = {}
        self._over = threading.Event()

    @contextlib.contextmanager
    def __call__(self, pids):
        looking = threading.Thread(target=self._keep_looking, args=(pids,))
        with tempfile.TemporaryDirectory(prefix="pacecar-perf-") as folder:
            perf, data = self._start_perf(pids, pathlib.Path(folder, "data"))
            self._look(pids)  # a short job may be over at the next look
            looking.start()
            try:
                yield
            finally:
                self._over.set()
                looking.join()
                self.result["threads"] = by_name(self._seen.values())
                self.result["slices"] = slices_of(pathlib.Path(self._left.name))
                self._left.cleanup()
                self._end_perf(perf, data)

    def _look(self, pids):
        for pid in pids:
            self._seen.update(threads_of(pid))  # threads that end keep their last figures

    def _keep_looking(self, pids):
        while not self._over.wait(LOOK_EVERY_S):
            self._look(pids)

    def _start_perf(self, pids, data):
        if not shutil.which("perf"):
            self.result["perf"] = "perf is not installed here: only the threads' times are known"
            return None, data
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(PERF_HZ), "-o", str(data),
                   "-p", ",".join(map(str, pids))]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True), data

    def _end_perf(self, perf, data):
        if perf is None:
            return
        perf.terminate()  # it ends with the ranks, too
        try:
            _, errors = perf.communicate(timeout=PERF_LIMIT_S)
        except subprocess.TimeoutExpired:
            perf.kill()
            _, errors = perf.communicate()
        if not data.is_file() or data.stat().st_size == 0:
            reason = (errors.strip() or "no reason given").splitlines()[0]
            self.result["perf"] = f"perf does not record here ({reason})"
            return
        self.result["perf"] = "\n\n".join(perf_report(data, fields)
                                          for fields in ("comm,dso", "comm,dso,symbol"))


def slices_of(folder):
    """{wait: [slices, seconds]}, over all ranks; {} if NCCL does not support the profiler."""
    sums = collections.defaultdict(lambda: [0, 0.0])
    for file in folder.glob("slices.*"):
        for wait, (count, seconds) in json.loads(file.read_text("utf-8")).items():
            sums[wait][0] += count
            sums[wait][1] += seconds
    return dict(sums)


def perf_report(data, fields):
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(["perf", "report", "-i", str(data), "--stdio", "--sort", fields],
                              capture_output=True, text=True, check=False, timeout=PERF_LIMIT_S)
        # Cut off the columns of branches, which are empty.
        lines = [re.sub(r"[\s-]+$", "", line)[:PERF_WIDTH] for line in done.stdout.splitlines()
                 if line.strip() and not line.startswith("#")]
        return "\n".join(lines[:PERF_LINES])
    return "perf does not report in time"


def table(seen, title):
    lines = ["", f"# what the threads did: {title}", "   user s  system s  threads  name"]
    lines += [f"{row['user_s']:9.2f} {row['system_s']:9.2f} {row['count']:8}  {row['thread']}"
              for row in seen["threads"]]
    lines += ["", "   us each    slices  what a slice waits for"] if seen["slices"] else []
    lines += [f"{seconds / count * 1e6:10.1f} {count:9}  {wait}"
              for wait, (count, seconds) in seen["slices"].items() if count]
    return [*lines, "", *seen["perf"].splitlines()]
