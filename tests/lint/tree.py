"""The source tree as the checks see it: the project's files and their text."""

import pathlib

CPP = {".h", ".hpp", ".cc"}
IGNORED = {"build", "__pycache__", ".git"}  # .git is a file in a second work tree


class Tree:
    def __init__(self, root, rules):
        self.root = pathlib.Path(root)
        self.rules = rules

    def files(self):
        """Paths of all text files, relative to the root, sorted."""
        found = [path for path in self.root.iterdir() if path.is_file()]
        for folder in self.rules["roots"]:
            found += [path for path in (self.root / folder).rglob("*") if path.is_file()]
        relative = [path.relative_to(self.root) for path in found]
        return sorted(path for path in relative if self._counts(path))

    def cpp_files(self):
        return [path for path in self.files() if path.suffix in CPP]

    def code_files(self):
        """C++, Python and shell programs."""
        return [path for path in self.files() if self.is_code(path)]

    def is_code(self, path):
        if path.suffix in CPP | {".py", ".sh"}:
            return True
        return path.suffix == "" and self.text(path).startswith("#!")

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def _counts(self, path):
        if IGNORED & set(path.parts):
            return False
        try:
            return "\0" not in self.text(path)
        except UnicodeDecodeError:
            return False
