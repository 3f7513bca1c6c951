"""New names use the field's words: the number of names with private words that a folder declares
may only fall. The name of an override does not count."""

import re

from cpp_functions import NOISE
from includes import layer_of
from tree import CPP

# After a type or another word of a declaration, or after the name of a class.
DECLARED = re.compile(r"(?:(\w+)|[>\]])(?:\s+|\s*[&*]\s*|\s*&&\s*)"
                      r"(?:\w+::)*(\w+)(?=\s*[;={(,):\[>])")
NO_TYPE = {"return", "else", "case", "delete", "throw", "new", "co_return", "goto", "not", "and",
           "or", "operator", "if", "while", "do", "in"}
ENUM = re.compile(r"\benum\b[^{;()]*\{([^}]*)\}")
ENUMERATOR = re.compile(r"(?:^|,)\s*(\w+)")
TYPE = re.compile(r"\b(?:class|struct|enum|using|concept)\s+(?:class\s+|alignas\([^)]*\)\s*)?(\w+)")
OVERRIDDEN = re.compile(r"(\w+)\s*\([^;{}]*\)\s*(?:const\s*)?(?:noexcept\s*)?override\b")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def check(tree, _built=()):
    rules = tree.rules["names"]
    found = private_names(tree)
    problems = []
    for folder in sorted(set(found) | set(rules["most"])):
        names, most = sorted(found.get(folder, ())), rules["most"].get(folder, 0)
        if len(names) > most:
            problems.append(f"{folder}: {len(names)} names of words that only we use, more than "
                            f"{most}: choose the field's word ({cures(rules, names)}) for the new "
                            f"one of {', '.join(names)}")
        elif len(names) < most:
            problems.append(f"{folder}: {len(names)} names of words that only we use, and "
                            f"tests/lint/rules.toml [names.most] allows {most}: write "
                            f"{len(names)}, so that it stays")
    return problems


def private_names(tree):
    """{layer: names made of private words that its files declare}."""
    words = set(tree.rules["names"]["instead"])
    found, overridden = {}, {}
    for path in tree.files():
        if path.suffix in CPP and path.parts[0] in tree.rules["names"]["roots"]:
            layer = layer_of(path.as_posix(), tree.rules["includes"])
            text = NOISE.sub(" ", tree.text(path))
            names = {name for name in declared(text) if parts(name) & words}
            found.setdefault(layer, set()).update(names)
            overridden.setdefault(layer, set()).update(OVERRIDDEN.findall(text))
    return {layer: names - overridden[layer] for layer, names in found.items()
            if names - overridden[layer]}


def declared(text):
    """Names of variables, functions, types and enumerators."""
    names = {name for before, name in DECLARED.findall(text) if before not in NO_TYPE}
    names |= set(TYPE.findall(text))
    for body in ENUM.findall(text):
        names |= set(ENUMERATOR.findall(body))
    return names


def parts(name):
    return {part.lower() for part in PART.findall(name)}


def cures(rules, names):
    words = sorted(set().union(*map(parts, names)) & set(rules["instead"]))
    return "; ".join(f"{word}: {rules['instead'][word]}" for word in words)
