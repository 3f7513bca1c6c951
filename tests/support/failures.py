"""failures.py RESULTS.xml: prints the output of failed tests from ctest's JUnit file."""

import sys
import xml.etree.ElementTree

LINES = 60  # the last lines of each test


def main():
    for case in xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        if case.get("status") != "fail":
            continue
        output = (case.findtext("system-out") or "").splitlines()
        print(f"--- {case.get('name')} failed after {float(case.get('time')):.0f} s", end="")
        print(f", the last {LINES} lines" if len(output) > LINES else "")
        print("\n".join(output[-LINES:]))


main()
