#!/usr/bin/env python3
"""lint.py CHECK [BUILT...]: runs one check over the source tree and prints what it finds.

BUILT is what the check needs from the build: `purity` takes the static libraries of the pure
layers, `parameters` the program that prints the table.
"""

import pathlib
import sys
import tomllib

import examples
import figures
import includes
import lengths
import names
import parameters
import picture
import prose
import purity
import readmes
import references
import words
from tree import Tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = {"examples": examples, "figures": figures, "includes": includes, "lengths": lengths,
          "names": names, "parameters": parameters, "picture": picture, "prose": prose,
          "purity": purity, "readmes": readmes, "references": references, "words": words}


def main(arguments):
    if not arguments or arguments[0] not in CHECKS:
        print(f"usage: lint.py {'|'.join(CHECKS)} [BUILT...]", file=sys.stderr)
        return 2
    rules = tomllib.loads((ROOT / "tests/lint/rules.toml").read_text())
    name, built = arguments[0], arguments[1:]
    problems = CHECKS[name].check(Tree(ROOT, rules), built)
    print("\n".join(problems) or f"{name}: nothing to complain about")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
