"""Words that no finished tree may have, and tests that sleep."""

import re

# Put together here, so that this file does not hold them.
BANNED = {
    r"\b(FIX" r"ME|TO" r"DO|X" r"XX)\b": "finish it, or leave it out",
    r"#\s*define\s+(private|protected)\s+public": "test through the interface",
    r"(?<![\w.$})])/(work|home|root)/": "no path of one machine",
}
SLEEP = re.compile(r"\bsleep_(for|until)\b")


def check(tree, _built=()):
    problems = []
    for path in tree.files():
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for pattern, cure in BANNED.items():
                match = re.search(pattern, line)
                if match:
                    problems.append(f"{path}:{number}: '{match.group()}': {cure}")
            if path.parts[0] == "tests" and path.suffix == ".cc" and SLEEP.search(line):
                if path.as_posix() not in tree.rules["sleeps"]:
                    problems.append(f"{path}:{number}: a test that sleeps: wait for the event, or "
                                    "give the reason in tests/lint/rules.toml [sleeps]")
    return problems
