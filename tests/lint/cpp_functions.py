"""Finds C++ function bodies by their braces; good for code in this project's format.

A brace outside of any function opens a function when a parenthesis came before it since the last
end of a declaration; else it opens a namespace, a type or an initialiser.
"""

import re

# Braces in comments, literals and preprocessor lines do not count.
NOISE = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
    r'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
    re.DOTALL | re.MULTILINE)
ATTRIBUTES = re.compile(r"\[\[.*?\]\]|\balignas\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)", re.DOTALL)


def functions(text):
    """(first line, number of lines) of each function outside of other functions."""
    text = NOISE.sub(lambda m: "\n" * m.group().count("\n") or " ", text)
    found = []
    depth = 0           # of braces inside the current function
    start = 0           # of the current declaration
    for brace in re.finditer(r"[{};]", text):
        here = brace.end()
        if depth > 0:
            depth += {"{": 1, "}": -1, ";": 0}[brace.group()]
            if depth == 0:
                found.append(measure(text, start, here))
                start = here
        elif brace.group() == "{" and "(" in ATTRIBUTES.sub("", text[start:here]):
            depth = 1
        else:
            start = here
    return found


def measure(text, start, end):
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return text.count("\n", 0, start) + 1, text.count("\n", start, end) + 1
