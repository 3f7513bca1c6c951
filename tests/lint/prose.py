"""Comments and pages are plain sentences: the number of phrases that ask to be read twice may only
fall in each folder. Pages count by themselves; bench/log keeps what was written."""

import re

from tree import CPP

PHRASES = {
    "an antecedent before 'what'":
        r"\b(?:about|after|as|at|before|beyond|by|for|from|in|like|of|on|over|than|to|with) what\b",
    "a noun for 'what'":
        r"\b[Ww]hat (?:arrives|came|comes|had|has|is|it|leaves|no|others?|remains|they|was|were)\b"
        r"(?![^.]{0,80}\?)",
    "a noun for 'those'": r"\b[Tt]hose (?:for|in|of|that|which|who|with)\b",
    "a noun before the sentence's 'of'": r"(?:^|[.!?:] )Of (?=[a-z])",
    "'that many' for 'so many'": r"\b[Ss]o (?:long|many|much|often)\b(?! (?:as|that)\b)",
    "the repeated words for 'likewise'": r"\b[Ll]ikewise\b",
    "a noun behind the possessive":
        r"\b(?!(?:he|here|it|let|one|that|there|what|who)'s)[A-Za-z]\w*'s(?=[,.;:)]|\s*$|\s+"
        r"(?:and|are|as|at|by|for|from|has|have|if|in|is|on|or|than|to|was|were|when|with)\b)",
    "'is not a' for 'is no'": r"\b(?:are|is|was|were) no (?!less|longer|more|such)\w+",
    "the field's word for 'told'": r"\b[Tt]old\b",
    "'next to' or 'compared with' for 'beside'": r"\b[Bb]eside\b",
    "a noun for the pronoun": r"\bof (?:it|them|these|those)(?=[,.;:)]|$)",
    "a noun behind 'the same'": r"\b[Tt]he same(?=[.,;:)])",
}
COMMENT = {".cc": r"//+ ?(.*)", ".py": r'(?:^|\s)# ([^\n]*)|"""(.*?)"""',
           ".toml": r"(?:^|\s)# (.*)"}


def check(tree, _built=()):
    most = tree.rules["prose"]["most"]
    found = hits(tree)
    problems = []
    for folder in sorted(set(found) | set(most)):
        here = found.get(folder, [])
        if len(here) > most.get(folder, 0):
            listed = "".join(f"\n  {path}: '{text}': write {cure}" for path, text, cure in here)
            problems.append(f"{folder}: {len(here)} phrases that ask to be read twice, more than "
                            f"{most.get(folder, 0)}; rewrite the new one:{listed}")
        elif len(here) < most.get(folder, 0):
            problems.append(f"{folder}: {len(here)} phrases that ask to be read twice, and "
                            f"tests/lint/rules.toml [prose.most] allows {most[folder]}: write "
                            f"{len(here)}, so that it stays")
    return problems


def hits(tree):
    """{folder: [(path, phrase, cure)]}."""
    found = {}
    for path in tree.files():
        if path.as_posix().startswith(("bench/log/", "tests/lint/")) or path.name == "LICENSE":
            continue
        folder = "pages" if path.suffix == ".md" else path.parts[0]
        text = prose(path, tree)
        for cure, phrase in PHRASES.items():
            for match in re.finditer(phrase, text, re.M):
                around = " ".join(text[max(0, match.start() - 30):match.end() + 20].split())
                found.setdefault(folder, []).append((path, around, cure))
    return found


def prose(path, tree):
    text = tree.text(path)
    if path.suffix == ".md":
        return re.sub(r"`[^`\n]*`", "x", re.sub(r"```.*?```", "", text, flags=re.S))
    kind = ".cc" if path.suffix in CPP | {".def"} else ".py" if tree.is_code(path) else path.suffix
    comments = re.findall(COMMENT.get(kind, r"(?!)"), text, re.M | re.S if kind == ".py" else re.M)
    return "\n".join(" ".join(one) if isinstance(one, tuple) else one for one in comments)
