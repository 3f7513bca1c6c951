"""Lends a host the bundle's libraries that it lacks, and no others.

The bundle was built elsewhere: the libraries of its programs may be missing on this host, or too
old. The host's loader reports which. Only those are lent, because the host's own may be newer. The
C library is never lent: it must match the loader and the kernel.
"""

import os
import pathlib
import re
import shutil
import subprocess

LIMIT_S = 60
# Some loaders list all missing libraries, others stop at the first.
MISSING = re.compile(r"(\S+)(?: => not found|: cannot open shared object file)")
TOO_OLD = re.compile(r"(\S+): version [`'](\S+)' not found")
C_LIBRARY = re.compile(r"(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so")


class Lacking(Exception):
    """A program of the bundle cannot run on this host; the text has the reason and advice."""


class Lender:
    """Copies libraries from the folder `spare`, which has all of them, into `folder`."""

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
                                  text=True, check=False, timeout=LIMIT_S, env=environment)
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
