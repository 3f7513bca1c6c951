#!/usr/bin/env python3
"""The inputs of a fuzz target, in one file that can be read and reviewed: a line for each.

    tests/fuzz/corpus.py list FILE               their names and sizes
    tests/fuzz/corpus.py unpack FILE FOLDER      each in a file of its own
    tests/fuzz/corpus.py add FILE NAME INPUT     one more, from the file INPUT
    tests/fuzz/corpus.py replay FILE PROGRAM     through a program of libFuzzer

A line is a name, a space, and the bytes: printable ones as they are, others as \\n or \\xHH. Inputs
that the fuzzer found have the name `-`: libFuzzer calls them by their SHA-1.
"""
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

FOUND = re.compile(r"[0-9a-f]{40}")  # libFuzzer's names; other names say which fault was mended


def line_of(name, content):
    text = "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else
                   {10: "\\n", 92: "\\\\"}.get(byte, f"\\x{byte:02x}") for byte in content)
    if text.endswith(" "):
        text = text[:-1] + "\\x20"
    return f"{'-' if FOUND.fullmatch(name) else name} {text}\n"


def input_of(line):
    name, _, text = line.rstrip("\n").partition(" ")
    content = re.sub(rb"\\(\\|n|x[0-9a-f]{2})", lambda escape: {b"\\": b"\\", b"n": b"\n"}.get(
        escape[1]) or bytes([int(escape[1][1:], 16)]), text.encode("ascii"))
    return hashlib.sha1(content).hexdigest() if name == "-" else name, content


def read(file):
    """The inputs by their names."""
    with open(file, encoding="ascii", newline="\n") as lines:
        return dict(map(input_of, lines))


def write(file, inputs):
    """Inputs with a name of their own come first."""
    lines = [line_of(*item) for item in sorted(inputs.items())]
    lines.sort(key=lambda line: line.startswith("- "))
    pathlib.Path(file).write_text("".join(lines), encoding="ascii", newline="\n")


def unpack(file, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in read(file).items():
        (folder / name).write_bytes(content)


def main():
    command, file, *rest = sys.argv[1:]
    if command == "list":
        for name, content in read(file).items():
            print(f"{len(content):6} {name}")
    elif command == "unpack":
        unpack(file, rest[0])
    elif command == "add":
        write(file, read(file) | {rest[0]: pathlib.Path(rest[1]).read_bytes()})
    elif command == "replay":
        with tempfile.TemporaryDirectory() as folder:
            unpack(file, folder)
            return subprocess.run([rest[0], "-runs=0", folder], check=False).returncode
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
