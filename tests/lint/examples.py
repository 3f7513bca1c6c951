"""The examples in the public header are lines of a program that the tests run."""

import pathlib
import re

EXAMPLE = re.compile(r"^\s*//   (\S.*;)$")
SPACES = re.compile(r"\s+")


def check(tree, _built=()):
    rules = tree.rules["examples"]
    header = pathlib.PurePosixPath(rules["header"])
    program = SPACES.sub(" ", tree.text(pathlib.PurePosixPath(rules["program"])))
    problems = []
    for number, line in enumerate(tree.text(header).splitlines(), 1):
        example = EXAMPLE.match(line)
        if example and SPACES.sub(" ", example.group(1)) not in program:
            problems.append(f"{header}:{number}: this example does not stand in "
                            f"{rules['program']}, so nobody knows that it compiles")
    return problems
