"""Files, lines and functions have at most the lengths of rules.toml."""

import ast

from cpp_functions import functions
from tree import CPP


def check(tree, _built=()):
    limits = tree.rules["lengths"]
    problems = []
    for path in tree.code_files():
        text = tree.text(path)
        lines = text.splitlines()
        if len(lines) > limits["file_lines"]:
            problems.append(f"{path}: {len(lines)} lines, more than {limits['file_lines']}")
        for number, line in enumerate(lines, 1):
            if len(line) > limits["columns"]:
                problems.append(f"{path}:{number}: {len(line)} columns, more than "
                                f"{limits['columns']}")
        for number, length in measured_functions(path, text):
            if length > limits["function_lines"]:
                problems.append(f"{path}:{number}: a function of {length} lines, more than "
                                f"{limits['function_lines']}")
    return problems


def measured_functions(path, text):
    """(first line, number of lines) of each function."""
    if path.suffix in CPP:
        return functions(text)
    if path.suffix == ".py":
        return [(node.lineno, node.end_lineno - node.lineno + 1)
                for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return []
