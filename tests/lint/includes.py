"""A folder includes only what its layer may, and a pure layer no header for clock or I/O."""

import re

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def is_below(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path, layers):
    """The longest listed folder that holds `path`, or None."""
    holders = [layer for layer in layers if is_below(path, layer)]
    return max(holders, key=len, default=None)


def check(tree, _built=()):
    layers = tree.rules["includes"]
    problems = []
    for path in tree.cpp_files():
        layer = layer_of(path.as_posix(), layers)
        if layer is None:
            problems.append(f"{path}: its folder has no line in tests/lint/rules.toml [includes]")
            continue
        for kind, name in INCLUDE.findall(tree.text(path)):
            check_one = quoted_problem if kind == '"' else system_problem
            problem = check_one(tree, layer, name)
            if problem:
                problems.append(f"{path}: includes {name}: {problem}")
    return problems


def quoted_problem(tree, layer, name):
    if not (tree.root / name).is_file():
        return "write the path from the root of the repository, to a file that exists"
    allowed = [layer, *tree.rules["includes"][layer]]
    if not any(is_below(name, entry) for entry in allowed):
        return f"{layer} may include only {', '.join(allowed)}"
    return None


def system_problem(tree, layer, name):
    pure = tree.rules["pure"]
    if layer in pure["folders"] and any(re.fullmatch(p, name) for p in pure["system_headers"]):
        return f"{layer} is pure: no clock, I/O, environment, thread or device"
    return None
