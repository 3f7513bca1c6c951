"""Documents name existing parameters, and the page of parameters has the table of the code."""

import re
import subprocess

NAME = re.compile(r"\bPACECAR_[A-Z0-9_]*[A-Z0-9]\b")
HISTORY = re.compile(r"CHANGELOG\.md|bench/log/")  # may also name removed parameters
TABLE = re.compile(r"^\| parameter \|.*\n(?:\|.*\n)*", re.MULTILINE)


def check(tree, built):
    """`built` is the program that prints the table."""
    table = subprocess.run(built, check=True, capture_output=True, text=True).stdout
    known = set(NAME.findall(table)) | set(tree.rules["parameters"]["other_names"])
    removed = set(tree.rules["parameters"]["removed"])
    problems = []
    for path in tree.files():
        if path.suffix == ".md":
            allowed = known | removed if HISTORY.match(str(path)) else known
            for name in sorted(set(NAME.findall(tree.text(path))) - allowed):
                problems.append(f"{path}: {name} is no parameter")
    page = tree.rules["parameters"]["page"]
    on_page = TABLE.search(tree.text(page))
    if on_page is None or on_page.group() != table:
        problems.append(f"{page}: its table of parameters should be:\n{table}")
    return problems
