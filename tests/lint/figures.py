"""Every figure in the results of the top README stands on the page of results, too.

A figure is a date, a number with a decimal point, a number in percent, or one with a unit behind
it. It must stand there with the same digits and the same unit; "8 ranks" is none.
"""

import re

UNIT = r"(?:[KMG]i?B|[KMGT]b/s|[mun]?s)"
FIGURE = re.compile(rf"(?<![\w.,])(?:\d{{4}}-\d\d-\d\d|[+-]?\d[\d,]*(?:\.\d+)?%"
                    rf"|\d[\d,]*(?:\.\d+)? {UNIT}|\d+\.\d+)(?![\w/])")
TABLE_LINE = re.compile(r"^\|.*$", re.MULTILINE)


def check(tree, _built=()):
    rules = tree.rules["figures"]
    there = set(FIGURE.findall(tree.text(rules["results"])))
    tables = TABLE_LINE.findall(section(tree.text(rules["readme"]), rules["heading"]))
    if not tables:
        return [f"{rules['readme']}: no table below '{rules['heading']}'"]
    return [f"{rules['readme']}: '{figure}' does not stand in {rules['results']}"
            for line in tables for figure in FIGURE.findall(line) if figure not in there]


def section(text, heading):
    """What is between the heading and the next one."""
    _, _, rest = text.partition(f"\n{heading}\n")
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
