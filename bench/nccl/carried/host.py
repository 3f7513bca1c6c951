"""What a measurement needs and this host has or lacks, with advice for each missing thing."""

import dataclasses
import os
import pathlib
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys

import bundle_folder as bundle
import arms
import bridged
import mps
import namespaces
import toolkit

NEEDED, WANTED, FINE = "MISSING", "without", "ok"
LOADER_LIMIT_S = 60
LEAST_FREE_GPU_MIB = 4096  # four ranks with two buffers of 256 MiB each, and NCCL's own
LEAST_CPUS = 4
PYTHONS = ("/opt/*/bin/python3", "/opt/*/.venv/bin/python3", "/opt/*/venv/bin/python3",
           "/usr/local/bin/python3", "/usr/bin/python3")
NCCL_PLACES = ("/usr/local/cuda*/lib64", "/usr/local/cuda*/lib", "/usr/local/lib",
               "/usr/local/nccl*/lib", "/opt/*/lib", "/opt/nvidia/*/lib",
               "/usr/lib/python3*/*-packages/nvidia/nccl/lib",
               "/usr/local/lib/python3*/*-packages/nvidia/nccl/lib",
               "/opt/*/lib/python3*/*-packages/nvidia/nccl/lib",
               "/opt/*/.venv/lib/python3*/*-packages/nvidia/nccl/lib")
# Folders of the driver's library in containers and small systems, which the loader does not search.
DRIVER_PLACES = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib64-nvidia",
                 "/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/lib64/nvidia",
                 "/usr/lib/nvidia*", "/usr/local/cuda*/compat")
PROGRAM_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
                  "/usr/local/nvidia/bin", "/usr/local/cuda/bin")
DRIVER = "libcuda.so.1"
# Some loaders list all missing libraries, others stop at the first.
MISSING = re.compile(r"(\S+)(?: => not found|: cannot open shared object file)")
TOO_OLD = re.compile(r"(\S+): version [`'](\S+)' not found")
C_LIBRARY = re.compile(r"(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so")
HAS_TORCH = ("import importlib.util, sys; "
             "sys.exit(sys.version_info < (3, 10) or importlib.util.find_spec('torch') is None)")


class Lacking(Exception):
    """A program of the bundle cannot run on this host; the text has the reason and advice."""


class Lender:
    """Lends the host the bundle's libraries that it lacks: from the folder `spare`, which has all,
    into `folder`.

    The bundle was built elsewhere: the libraries of its programs may be missing on this host, or
    too old. The host's loader reports which. Only those are lent, because the host's own may be
    newer. The C library is never lent: it must match the loader and the kernel.
    """

    def __init__(self, loader, spare, folder):
        self._loader, self._spare, self._folder = str(loader), spare, folder

    def command(self, program, *arguments):
        """The command that runs a program of the bundle with the lent libraries; the program's
        children do not inherit them."""
        return [self._loader, "--library-path", self._path(), str(program), *map(str, arguments)]

    def _path(self):
        return ":".join(filter(None, [str(self._folder), os.environ.get("LD_LIBRARY_PATH")]))

    def lend_to(self, file):
        """Lends what this program or library needs; returns the names of newly lent libraries."""
        lent = []
        while wanted := sorted(self._wanted_by(file)):
            for name, why in wanted:
                source, place = self._spare / name, self._folder / name
                if C_LIBRARY.match(name):
                    raise Lacking(f"{file.name} needs {why} of the C library, and this host's is "
                                  "older: make the bundle on a system as old as this one")
                if place.exists() or not source.exists():
                    raise Lacking(f"{file.name} needs {name} ({why}), which is neither installed "
                                  "nor in the bundle: install its package")
                shutil.copy2(source, place)
                lent.append(name)
        return lent

    def _wanted_by(self, file):
        """{(library, why)} that the loader misses, given the libraries lent so far."""
        environment = {**os.environ, "LD_LIBRARY_PATH": self._path()}
        try:
            done = subprocess.run([self._loader, "--list", str(file)], capture_output=True,
                                  text=True, check=False, timeout=LOADER_LIMIT_S, env=environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Lacking(f"this host has no loader of the GNU C library ({error}): use a host, or "
                          "a container, of a distribution that has it") from None
        output = done.stdout + done.stderr
        wanted = {(name, "not found") for name in MISSING.findall(output)}
        wanted |= {(pathlib.Path(name).name, version) for name, version in TOO_OLD.findall(output)}
        if done.returncode != 0 and not wanted:
            raise Lacking(f"{file.name} does not load here ({output.strip()}): make the bundle on "
                          "a system like this one")
        return wanted


@dataclasses.dataclass(frozen=True)
class Finding:
    state: str  # NEEDED: nothing can be measured; WANTED: some parts are left out; FINE
    thing: str
    text: str

    def __str__(self):
        return f"{self.state:8}{self.thing}: {self.text}"


@dataclasses.dataclass
class Host:
    """What the parts use, and the findings of the check."""
    output: pathlib.Path
    findings: list = dataclasses.field(default_factory=list)
    nccl: str = ""
    torch: str = ""  # a Python with PyTorch
    seen: dict = dataclasses.field(default_factory=dict)
    has: set = dataclasses.field(default_factory=set)  # what parts ask for: gpu, veth, torch, ...
    lender: Lender | None = None

    @property
    def lent(self):
        return self.output / "lent"

    @property
    def plugin(self):
        return self.lent / bundle.PLUGIN

    @property
    def tools(self):
        return self.output / "tools"

    def add(self, state, thing, text):
        self.findings.append(Finding(state, thing, text))

    def check(self, holds, thing, text, state, advice):
        """Adds FINE with the text, or the other state with the advice."""
        self.add(*(FINE, thing, text) if holds else (state, thing, advice))
        return bool(holds)

    @property
    def ready(self):
        return all(finding.state != NEEDED for finding in self.findings)


def examine(output, nccl="", torch=""):
    host = Host(output)
    os.environ["PATH"] = ":".join(filter(None, [os.environ.get("PATH"), *PROGRAM_PLACES]))
    host.torch = find_torch(torch)
    check_system(host)
    check_carried(host)
    if host.ready:
        check_needs_of_parts(host)
        check_gpu(host, nccl)
    return host


def check_system(host):
    made = bundle.manifest()
    host.add(FINE, "Python", f"{platform.python_version()} ({sys.executable})")
    if platform.machine() != made["machine"]:
        host.add(NEEDED, "processor", f"this is {platform.machine()}, the bundle was made for "
                 f"{made['machine']}: make it on a machine like this one")
        return
    name, version = platform.libc_ver()
    if name != "glibc":
        host.add(NEEDED, "C library", "it is not the GNU C library: use a host, or a container, of "
                 "a distribution that has it")
    else:
        host.check(as_numbers(version) >= as_numbers(made["glibc"]), "C library",
                   f"glibc {version}, {made['glibc']} is needed", NEEDED,
                   f"this host has glibc {version}, and the bundle needs {made['glibc']}: use a "
                   "newer distribution (a container is enough), or make the bundle on one as old "
                   "as this")
    cpus = len(os.sched_getaffinity(0))
    host.check(cpus >= LEAST_CPUS, "processors", f"{cpus}", WANTED, f"{cpus}: with fewer than "
               f"{LEAST_CPUS} the ranks take turns, and times mean little")


def as_numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def check_carried(host):
    """Lends libraries to the bundle's programs, and puts the tools into a folder of PATH."""
    if not host.ready:
        return
    for folder in (host.lent, host.tools):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    shutil.copy2(bundle.LIBRARIES / bundle.PLUGIN, host.plugin)
    host.lender = Lender(bundle.manifest()["loader"], bundle.SPARE, host.lent)
    try:
        lent = [library for name in (toolkit.DRIVER, toolkit.RATIOS)
                for library in host.lender.lend_to(bundle.PROGRAMS / name)]
        if lent:  # these two programs run in every arm; arms.environment() has the plugin's folder
            add_library_path(host.lent)
        lent += host.lender.lend_to(host.plugin)
        arms.check_plugin(host.plugin)
    except (Lacking, toolkit.Broken) as reason:
        host.add(NEEDED, "plugin", str(reason))
        return
    host.add(FINE, "plugin", "it loads" + (f"; the bundle lends {', '.join(lent)}" if lent else ""))
    for name in (bundle.GPU_TEST, *bundle.TOOLS):
        lend_program(host, name)
    os.environ["PATH"] += f":{host.tools}"


def lend_program(host, name):
    program, own = bundle.PROGRAMS / name, shutil.which(name)
    if own and name != "pacecar":
        host.has.add(name)
        host.add(FINE, name, own)
        return
    if not program.is_file():
        host.add(WANTED, name, "neither installed nor in the bundle: install it, or make the "
                 "bundle on a host that has it")
        return
    try:
        lent = host.lender.lend_to(program)
        if name == "pacecar":
            module = shutil.copy2(bundle.LIBRARIES / bundle.MODULE, host.lent)
            lent += host.lender.lend_to(pathlib.Path(module))
    except Lacking as reason:
        host.add(WANTED, name, str(reason))
        return
    host.has.add(name)
    wrapper = host.tools / name
    command = shlex.join(host.lender.command(program))
    wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    host.add(FINE, name, "of the bundle" + (f", with {', '.join(lent)}" if lent else ""))


def check_gpu(host, named):
    try:
        host.nccl, host.seen = find_nccl(named, host.torch)
    except (toolkit.Broken, toolkit.Skipped) as reason:
        host.add(NEEDED, "NCCL", str(reason))
        return
    # A folder with the driver's library that the loader does not search.
    places = [place for place in globbed(DRIVER_PLACES) if os.path.isfile(place / DRIVER)]
    if DRIVER in host.seen["reason"] and places:
        add_library_path(places[0])
        host.seen = probe(host.nccl)
    host.check(host.seen["nccl"], "NCCL", f"{toolkit.versions(host.seen)['nccl']} ({host.nccl})",
               NEEDED, f"none loads ({host.seen['nccl_reason']}): name {toolkit.NCCL} or its "
               "folder with --nccl, or make the bundle with --with-nccl")
    if not host.seen["gpus"]:
        host.add(NEEDED, "GPU", f"there is none that CUDA can use ({host.seen['reason']}): run "
                 "this on a host with one and NVIDIA's driver; a container needs it passed through")
        return
    host.add(FINE, "GPU", "; ".join(toolkit.gpu_names()) or f"{host.seen['gpus']}")
    check_gpu_state(host)


def probe(nccl):
    return toolkit.probe([bundle.PROGRAMS / toolkit.DRIVER, nccl, "probe"])


def add_library_path(folder):
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"),
                                                           str(folder)]))


def find_nccl(named, torch):
    """(the library, the probe of the ranks' program with it): the first of this host that loads,
    else the bundle's, else the one that the loader finds."""
    if named:
        nccl = toolkit.find_nccl(named)
        return nccl, probe(nccl)
    found = [toolkit.find_nccl(None), nccl_of_torch(torch)]
    found += [str(place / toolkit.NCCL) for place in (*globbed(NCCL_PLACES), bundle.CARRIED_NCCL)
              if os.path.isfile(place / toolkit.NCCL)]  # False also where it may not be read
    for nccl in filter(None, found):
        seen = probe(nccl)
        if seen["nccl"]:
            return nccl, seen
    return found[0], probe(found[0])


def nccl_of_torch(torch):
    """The library that was installed with this Python's PyTorch; empty when there is none."""
    if not torch:
        return ""
    script = ("import importlib.util, pathlib\n"
              "for base in importlib.util.find_spec('nvidia').submodule_search_locations:\n"
              f"  for file in pathlib.Path(base).glob('*/lib/{toolkit.NCCL}'): print(file)")
    return (toolkit.answer([torch, "-c", script], LOADER_LIMIT_S) or "").partition("\n")[0]


def check_gpu_state(host):
    output = toolkit.answer(["nvidia-smi", "--query-gpu=compute_mode,memory.free",
                             "--format=csv,noheader,nounits"], LOADER_LIMIT_S)
    for number, line in enumerate((output or "").splitlines()):
        mode, _, free = (part.strip() for part in line.partition(","))
        if mode == "Prohibited":
            host.add(NEEDED, f"GPU {number}", "its compute mode forbids all processes: run "
                     "'nvidia-smi -c DEFAULT' as root")
        elif mode == "Exclusive_Process" and not shutil.which(mps.CONTROL):
            host.add(NEEDED, f"GPU {number}", "its compute mode admits one process, and there is "
                     f"no {mps.CONTROL}: run 'nvidia-smi -c DEFAULT' as root")
        if free.isdecimal() and int(free) < LEAST_FREE_GPU_MIB:
            host.add(NEEDED, f"GPU {number}", f"{free} MiB are free, {LEAST_FREE_GPU_MIB} are "
                     "needed: end the other processes that use it")
    host.has.add("gpu")


def check_needs_of_parts(host):
    """Loopback, and what only some parts need."""
    host.check(loopback_works(), "loopback", "packets pass", NEEDED,
               "no packet passes on 127.0.0.1: run 'ip link set lo up' as root")
    control = shutil.which(mps.CONTROL)
    host.check(control, "MPS", control, WANTED, f"{mps.CONTROL} is not installed: {mps.SLOW}, and "
               "times mean little for the network")
    try:
        with bridged.hosts(2, namespaces.VETH_MTU):
            pass
    except namespaces.Unavailable as reason:
        host.add(WANTED, "veth", f"{reason}; the parts over veth are left out")
    else:
        host.has.add("veth")
        host.add(FINE, "veth", "network namespaces can be made")
    if host.check(host.torch, "PyTorch", host.torch, WANTED, "no Python has it: name one that has "
                  "with --torch PYTHON; the training step is left out"):
        host.has.add("torch")


def loopback_works():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        try:
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(1)
            receiver.sendto(b"?", receiver.getsockname())
            return receiver.recv(1) == b"?"
        except OSError:
            return False


def find_torch(named):
    """A Python that has PyTorch; empty when none is found. A named one is not checked."""
    usual = [sys.executable, shutil.which("python3"), *map(str, globbed(PYTHONS))]
    for python in [named] if named else dict.fromkeys(filter(None, usual)):
        if named or toolkit.answer([python, "-c", HAS_TORCH], LOADER_LIMIT_S) is not None:
            return python
    return ""


def globbed(patterns):
    """The existing paths that match absolute patterns, in the patterns' order."""
    return [path for pattern in patterns for path in sorted(pathlib.Path("/").glob(pattern[1:]))]
