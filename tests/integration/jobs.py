"""Test cases whose processes serve their state in a folder of the test's own."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest


class JobCase(unittest.TestCase):
    dropped = ()  # further variables, beside PACECAR_*, that the processes do not inherit
    added = {}    # variables that are set for the processes

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.state = self.root / "state"
        self.state.mkdir(mode=0o700)

    def environment(self, **changes):
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("PACECAR_") and k not in self.dropped}
        return {**clean, "PACECAR_NICS": "soft:udp:lo", "PACECAR_TIMEOUT": "300s",
                "PACECAR_STATE_DIR": str(self.state), **self.added, **changes}

    def start(self, *command, **changes):
        process = subprocess.Popen(command, env=self.environment(**changes), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        ended = process.poll()
        process.kill()
        _, errors = process.communicate()
        if ended is not None or errors:
            print(f"{process.args}: {'killed' if ended is None else ended}\n{errors}",
                  file=sys.stderr)
