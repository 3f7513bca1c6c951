"""Documents name existing parameters, and the README's table agrees with the code."""

import re
import subprocess

NAME = re.compile(r"\bPACECAR_[A-Z0-9_]*[A-Z0-9]\b")
TABLE = re.compile(r"^\| parameter \|.*\n(?:\|.*\n)*", re.MULTILINE)


def check(tree, built):
    """`built` is the program that prints the table."""
    table = subprocess.run(built, check=True, capture_output=True, text=True).stdout
    known = set(NAME.findall(table)) | set(tree.rules["parameters"]["other_names"])
    problems = []
    for path in tree.files():
        if path.suffix == ".md":
            for name in sorted(set(NAME.findall(tree.text(path))) - known):
                problems.append(f"{path}: {name} is no parameter")
    in_readme = TABLE.search(tree.text("README.md"))
    if in_readme is None or in_readme.group() != table:
        problems.append(f"README.md: its table of parameters should be:\n{table}")
    return problems
