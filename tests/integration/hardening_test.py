"""The hardening of the binaries that ship: hardening_test.py BINARY...

Each is checked with readelf: a program is position independent, its relocations are read-only
before it runs, no page is both writable and executable, stack frames are protected, library calls
are bounded by the size of their buffers, and indirect branches land on endbr64.
"""

import platform
import re
import subprocess
import sys
import unittest

BINARIES = []


def readelf(flag, binary):
    return subprocess.run(["readelf", "--wide", flag, binary], text=True, capture_output=True,
                          check=True).stdout


class Hardening(unittest.TestCase):
    def test_code_is_position_independent(self):
        for binary in BINARIES:
            self.assertRegex(readelf("--file-header", binary), r"Type:\s+DYN")

    def test_relocations_are_read_only_at_start(self):
        for binary in BINARIES:
            self.assertIn("GNU_RELRO", readelf("--program-headers", binary))
            self.assertRegex(readelf("--dynamic", binary), r"\(FLAGS_1\).*\bNOW\b")

    def test_no_segment_is_writable_and_executable(self):
        for binary in BINARIES:
            headers = readelf("--program-headers", binary)
            flags = re.findall(r"^ +(?:LOAD|GNU_STACK) +(?:0x\w+ +){5}([RWE ]+?) +0x", headers,
                               re.MULTILINE)
            self.assertGreater(len(flags), 2, headers)
            for of_segment in flags:
                self.assertFalse({"W", "E"} <= set(of_segment), headers)

    def test_stack_and_buffers_are_protected(self):
        for binary in BINARIES:
            symbols = readelf("--dyn-syms", binary)
            self.assertIn("__stack_chk_fail", symbols)
            self.assertRegex(symbols, r"__mem(cpy|move|set)_chk|__(v?snprintf|read|recv)_chk")

    def test_indirect_branches_land_on_endbr64(self):
        if platform.machine() != "x86_64":
            self.skipTest("endbr64 is x86's")
        for binary in BINARIES:
            with open(binary, "rb") as file:
                self.assertGreater(file.read().count(b"\xf3\x0f\x1e\xfa"), 100)


if __name__ == "__main__":
    BINARIES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
