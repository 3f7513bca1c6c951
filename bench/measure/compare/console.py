"""Flags, progress, messages and exit codes of the programs of this folder and of bench/nccl."""

import argparse
import os
import pathlib
import signal
import sys

from machine import ROOT

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def between(kind, least, most):
    """A type for argparse: numbers within this range."""
    def parse_number(text):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not in {least} to {most}")
        return value

    parse_number.__name__ = "number"
    return parse_number


def writable(text):
    """A type for argparse: a file that can be written, checked before the measurement."""
    file = pathlib.Path(text)
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {file}: name a file in a folder that can "
                                         "be written")
    return file


def new_parser(program, description, epilog):
    return argparse.ArgumentParser(prog=program, description=description, epilog=epilog,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def add_build(add):
    add("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR",
        help="the build folder; default build/release")


def missing(program):
    return (f"{program} is missing: build first (cmake --preset release && cmake --build --preset "
            "release), or name another build folder with --build")


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def log(text):
    progress("")
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)


def usage(text):
    log(text)
    return USAGE


def exit_with(main):
    """Exits with the code that main() returns. SIGTERM ends the program as SIGINT does."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        log("interrupted")
        sys.exit(INTERRUPTED)


def interrupt(*unused):
    raise KeyboardInterrupt
