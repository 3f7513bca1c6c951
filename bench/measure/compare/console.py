"""How a program of this folder or of bench/nccl talks to whoever started it, and ends."""

import argparse
import os
import signal
import sys

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def between(kind, least, most):
    """The type of a flag whose numbers are in this range."""
    def parse_number(text):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not in {least} to {most}")
        return value

    parse_number.__name__ = "number"
    return parse_number


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def say(text):
    progress("")
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)


def usage(text):
    say(text)
    return USAGE


def exit_with(main):
    """Exits with what main() returns. Whoever is told to end does so as if interrupted."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)


def interrupt(*unused):
    raise KeyboardInterrupt
