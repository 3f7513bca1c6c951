"""failures.py RESULTS.xml: prints the failures in ctest's JUnit file. For a program of many cases:
each failed case with its output; for any other program the end of its output."""

import re
import sys
import xml.etree.ElementTree

LINES = 60  # the last lines of each
FAILED = re.compile(r"\[  FAILED  \] (\S+\.\S+?)(?:, where .*)?"
                    r"(?: \(\d+ ms\)|: the process ended.*)$")
PASSING = re.compile(r"\[(?: RUN  |       OK |  SKIPPED |==========|----------)")


def failed_cases(lines):
    """Each failed case with the lines that it printed."""
    printed = []
    for line in lines:
        if case := FAILED.match(line):
            yield case[1], printed
        if FAILED.match(line) or PASSING.match(line):
            printed = []
        else:
            printed.append(line)


def main():
    for entry in xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        if entry.get("status") != "fail":
            continue
        output = (entry.findtext("system-out") or "").splitlines()
        print(f"--- {entry.get('name')} failed after {float(entry.get('time')):.0f} s")
        for name, printed in list(failed_cases(output)) or [("", output)]:
            more = f" (the last {LINES} lines)" if len(printed) > LINES else ""
            print(f"--- {name}{more}" if name else f"---{more}")
            print("\n".join(printed[-LINES:]))


main()
