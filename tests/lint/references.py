"""Links of documents lead to existing files and headings. The files, functions and types that the
documents about the whole code name exist."""

import pathlib
import re

LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?")
WORD = re.compile(r"\w+")
SUFFIXES = {".cc", ".h", ".hpp", ".py", ".md", ".def", ".txt", ".toml", ".cmake", ".svg"}
CODE = {".h", ".hpp", ".cc", ".def", ".cmake", ".txt"}
NAME = re.compile(r"[A-Za-z_]\w*(::\w+)*")
PLACEHOLDER = "NAME"  # stands for what the reader will write


def check(tree, _built=()):
    problems = []
    for path in tree.files():
        if path.suffix == ".md":
            problems += link_problems(tree, path)
    code = None
    for name in tree.rules["references"]["documents"]:
        code = code or Code(tree)
        problems += name_problems(tree, pathlib.PurePosixPath(name), code)
    return problems


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(text):
    return {slug(line.lstrip("#")) for line in FENCED.sub("", text).splitlines()
            if line.startswith("#")}


def link_problems(tree, path):
    problems = []
    for target in LINK.findall(QUOTED.sub("", FENCED.sub("", tree.text(path)))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        aim = (tree.root / path.parent / file) if file else tree.root / path
        if not aim.exists():
            problems.append(f"{path}: links to {target}, and there is no such file")
        elif anchor and aim.suffix == ".md" and slug(anchor) not in anchors(aim.read_text()):
            problems.append(f"{path}: links to {target}, and there is no such heading")
    return problems


class Code:
    """The words of the code, and the names of all files."""

    def __init__(self, tree):
        self.root = tree.root
        self.files = tree.files()
        self.words = {path: set(WORD.findall(tree.text(path))) for path in self.files
                      if path.suffix in CODE}

    def has_path(self, text, folder):
        if any(list(base.glob(text.rstrip("/"))) for base in (self.root / folder, self.root)):
            return True
        return "/" not in text and any(file.match(text) for file in self.files)

    def has_name(self, text):
        """`Type::member`: some file has both words."""
        parts = set(text.split("::"))
        return any(parts <= words for words in self.words.values())


def name_problems(tree, path, code):
    problems = []
    for text in QUOTED.findall(FENCED.sub("", tree.text(path))):
        if PLACEHOLDER in text:
            continue
        named = re.sub(r"\(.*\)$", "", text)
        if PATH.fullmatch(text) and ("/" in text or pathlib.PurePosixPath(text).suffix in SUFFIXES
                                     or text.endswith(".*")):
            if not code.has_path(text, path.parent):
                problems.append(f"{path}: names the file {text}, which there is not")
        elif NAME.fullmatch(named) and ("::" in named or "_" in named.strip("_")):
            if not code.has_name(named):
                problems.append(f"{path}: names {text}, which no code has")
    return problems
