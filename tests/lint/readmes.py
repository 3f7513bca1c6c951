"""A folder with many source files has a README.md."""

import collections


def check(tree, _built=()):
    rules = tree.rules["readmes"]
    sources = collections.Counter(path.parent for path in tree.code_files())
    problems = []
    for folder, count in sorted(sources.items()):
        covered = folder.as_posix() in rules["covered_by_parent"]
        readme = tree.root / (folder.parent if covered else folder) / "README.md"
        if count > rules["files_without"] and not readme.is_file():
            problems.append(f"{folder}: {count} source files need a {readme.name} that says what "
                            "they are for, how data flows, and what may depend on them")
    return problems
