"""Lends a host those libraries that it lacks, and no others.

What is carried was built elsewhere: its libraries may be missing on this host, or too old. The
host's loader says which; only those are lent, since another program here may need its own, newer
ones. The C library is never lent: it belongs to the loader and the kernel.
"""

import os
import pathlib
import re
import shutil
import subprocess

LIMIT_S = 60
# Some loaders list all that is missing, others stop at the first.
MISSING = re.compile(r"(\S+)(?: => not found|: cannot open shared object file)")
TOO_OLD = re.compile(r"(\S+): version [`'](\S+)' not found")
C_LIBRARY = re.compile(r"(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so")


class Lacking(Exception):
    """Something carried cannot run on this host; the text says why, and what would help."""


class Lender:
    """`folder` gets the libraries that are lent; `spare` holds all that could be."""

    def __init__(self, loader, spare, folder):
        self._loader, self._spare, self._folder = str(loader), spare, folder

    def command(self, program, *arguments):
        """Runs a program of the bundle with what is lent, which its children do not inherit."""
        return [self._loader, "--library-path", self._path(), str(program), *map(str, arguments)]

    def _path(self):
        return ":".join(filter(None, [str(self._folder), os.environ.get("LD_LIBRARY_PATH")]))

    def lend_to(self, file):
        """The names of what this file, a program or a library, needed beyond what was lent."""
        lent = []
        while wanted := sorted(self._wanted_by(file)):
            for name, why in wanted:
                source, place = self._spare / name, self._folder / name
                if C_LIBRARY.match(name):
                    raise Lacking(f"{file.name} needs {why} of the C library, which this host's "
                                  "lacks: make the bundle on a system as old as this one")
                if place.exists() or not source.exists():
                    raise Lacking(f"{file.name} needs {name} ({why}), which is neither here nor "
                                  "carried: install the package that holds it")
                shutil.copy2(source, place)
                lent.append(name)
        return lent

    def _wanted_by(self, file):
        """{(library, why)} that the loader misses, with what is lent by now."""
        environment = {**os.environ, "LD_LIBRARY_PATH": self._path()}
        try:
            done = subprocess.run([self._loader, "--list", str(file)], capture_output=True,
                                  text=True, check=False, timeout=LIMIT_S, env=environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Lacking(f"this host has no loader of the GNU C library ({error}): use a host, or "
                          "a container, of a distribution that has it") from None
        said = done.stdout + done.stderr
        wanted = {(name, "not found") for name in MISSING.findall(said)}
        wanted |= {(pathlib.Path(name).name, version) for name, version in TOO_OLD.findall(said)}
        if done.returncode != 0 and not wanted:
            raise Lacking(f"{file.name} does not load here ({said.strip()}): make the bundle on a "
                          "system like this one")
        return wanted
