"""Pure libraries call no clock, I/O or thread function: `nm -u` on the built libraries."""

import re
import subprocess


def check(tree, built):
    """`built` are the static libraries of the pure layers."""
    if not built:
        return ["no library given: the check would see nothing"]
    pure = tree.rules["pure"]
    forbidden = re.compile("|".join(f"(?:{pattern})" for pattern in pure["symbols"]))
    problems = []
    for library in built:
        for member, symbol in undefined_symbols(library):
            if member not in pure["exempt_objects"] and forbidden.fullmatch(symbol):
                problems.append(f"{library}: {member} calls {symbol}: pass the result in instead")
    return problems


def undefined_symbols(library):
    """(object file, symbol) for each undefined symbol of the library."""
    output = subprocess.run(["nm", "--print-file-name", "--undefined-only", "--format=posix",
                             library], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        match = re.match(r".*\[(.+)\]: (\S+)", line)
        if match:
            yield match.group(1), match.group(2).split("@")[0]
