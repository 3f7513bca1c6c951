"""A folder with many source files has a README.md; each begins with a heading."""

import collections


def check(tree, _built=()):
    rules = tree.rules["readmes"]
    sources = collections.Counter(path.parent for path in tree.code_files())
    problems = []
    for folder, count in sorted(sources.items()):
        covered = next((above for above in (folder, *folder.parents)
                        if above.as_posix() in rules["covered_by_parent"]), None)
        readme = tree.root / (covered.parent if covered else folder) / "README.md"
        if count > rules["files_without"] and not readme.is_file():
            problems.append(f"{folder}: {count} source files need a {readme.name} that says what "
                            "they are for, how data flows, and what may depend on them")
        if readme.is_file() and not readme.read_text("utf-8").startswith("# "):
            problems.append(f"{readme.relative_to(tree.root)}: its first line is no heading: begin "
                            "with '# '")
    return problems
