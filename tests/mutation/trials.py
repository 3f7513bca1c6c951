"""Runs test cases: without mutants, to see which mutants each could notice, and with mutants."""
import concurrent.futures
import dataclasses
import math
import os
import pathlib
import pickle
import re
import signal
import subprocess
import tempfile
import threading
import time

# The bits that point.h writes.
REACHED, DIFFERS, IMPOSSIBLE = 1, 2, 4
HANGS = 300  # CPU seconds after which a case without mutant hangs
FIRST_BITE = 0.1  # seconds of cases that are tried first: they kill most mutants
TOOK = re.compile(rb"\((\d+) ms total\)")
MOST_MEMORY = 8 << 20  # KiB


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    name: str
    seconds: float
    noticed: frozenset  # numbers of mutants whose values differ in it
    impossible: frozenset
    reached: frozenset


def run(command, environment, cpu_seconds, wall_seconds, output=subprocess.DEVNULL):
    """The exit status, or None if the command took too long. The limit of CPU time ends an endless
    loop early, however busy the machine is."""
    limited = ["sh", "-c", 'ulimit -c 0; ulimit -v "$1"; ulimit -t "$2"; shift 2; exec "$@"', "sh",
               str(MOST_MEMORY), str(cpu_seconds), *command]
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(limited, env=os.environ | environment, cwd=scratch,
                                   stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(wall_seconds)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)  # also what the command has started
        except ProcessLookupError:
            pass
        process.wait()
    return None if status == -signal.SIGXCPU else status


def names_of_cases(binary):
    """All cases of a googletest program."""
    listing = subprocess.run([binary, "--gtest_list_tests"], check=True, capture_output=True,
                             text=True).stdout
    names = []
    suite = ""
    for line in listing.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        elif re.fullmatch(r"\S+\.", name):
            suite = name
    return [name for name in names if "DISABLED_" not in name]


class Tests:
    """The test programs of a build."""

    def __init__(self, config, work):
        self.environment = config.get("environment", {})
        self.binaries = {program: work / "build" / config["built_in"] / program
                         for program in config["programs"]}
        self.cache = work / "noticed"
        self.jobs = config["jobs"]

    def try_case(self, program, name, numbers):
        """Runs a case without any mutant; returns which mutants the case could notice."""
        with tempfile.NamedTemporaryFile() as seen, tempfile.TemporaryFile() as output:
            seen.truncate(max(numbers) + 1)
            status = run([str(self.binaries[program]), f"--gtest_filter={name}"],
                         self.environment | {"MUTATION_SEEN": seen.name}, HANGS, 2 * HANGS, output)
            noted = pathlib.Path(seen.name).read_bytes()
            output.seek(0)
            took = TOOK.search(output.read())  # does not include the start of the program
            seconds = (int(took[1]) + 0.5) / 1000 if took else 0.0
        if status != 0:
            raise ValueError(f"{program}: {name} fails without any mutant; see\n"
                             f"  {self.binaries[program]} --gtest_filter={name}")
        having = lambda flag: frozenset(n for n in numbers if noted[n] & flag)
        return Case(program, name, seconds, having(DIFFERS), having(IMPOSSIBLE), having(REACHED))

    def cases_of(self, program, numbers, pool):
        """All cases of a program, from the cache unless the binary has changed."""
        binary = self.binaries[program]
        stored = self.cache / program
        stamp = (binary.stat().st_mtime_ns, hash(tuple(numbers)))
        if stored.exists():
            known, cases = pickle.loads(stored.read_bytes())
            if known == stamp:
                return cases
        names = names_of_cases(binary)
        cases = list(pool.map(lambda name: self.try_case(program, name, numbers), names))
        self.cache.mkdir(parents=True, exist_ok=True)
        stored.write_bytes(pickle.dumps((stamp, cases)))
        return cases

    def cases(self, numbers):
        """All cases of all programs, cheapest first."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            found = [case for program in self.binaries
                     for case in self.cases_of(program, numbers, pool)]
        return sorted(found, key=lambda case: case.seconds)

    def fails(self, number, program, cases):
        """Whether one of these cases of a program fails with a mutant."""
        usual = sum(case.seconds for case in cases)
        names = ":".join(case.name for case in cases)
        command = [str(self.binaries[program]), f"--gtest_filter={names}", "--gtest_fail_fast",
                   "--gtest_brief=1"]
        status = run(command, self.environment | {"MUTATION": str(number)},
                     math.ceil(1 + 3 * usual), 20 + 10 * usual)
        return status != 0

    def killer(self, number, cases, patience):
        """The program that kills a mutant, or None. `cases` may notice the mutant, cheapest
        first; it tries cases that together take about `patience` seconds."""
        spent = 0.0
        bites = {}
        for case in cases:
            if spent > patience:
                break
            spent += case.seconds
            bites.setdefault((spent > FIRST_BITE, case.program), []).append(case)
        for (_, program), bite in bites.items():
            if self.fails(number, program, bite):
                return program
        return None


class Progress:
    """Counts on stderr, once in a while."""

    def __init__(self, total, every=60.0):
        self.total = total
        self.every = every
        self.begin = self.shown = time.monotonic()
        self.done = 0
        self.lock = threading.Lock()

    def step(self):
        with self.lock:
            self.done += 1
            now = time.monotonic()
            if now - self.shown < self.every:
                return None
            self.shown = now
            return f"{self.done} of {self.total} mutants, {now - self.begin:.0f} s"
