"""The command line of deploy/lab/run: what it accepts, and one sentence where it does not."""

import argparse
import pathlib
import re
import sys

import private

MAX_GUESTS = 16
EPILOG = """\
Each guest sees the host's file system as it is, and keeps what it writes in memory; only the
directory of --share is common to all and stays. COMMAND finds in its environment
  LAB_RANK     this guest, from 0      LAB_PEERS   IPv4 addresses, by rank
  LAB_GUESTS   how many there are      LAB_SHARE   the common directory

Examples:
  deploy/lab/run -- ibv_devinfo
  deploy/lab/run --guests 2 -- sh -c \\
      '[ $LAB_RANK = 0 ] && exec ib_write_bw -d rxe0; sleep 1; ib_write_bw -d rxe0 guest0'
  deploy/lab/run --guests 2 --delay 1ms --loss 1% -- sh -c 'ping -c 100 -i 0.01 guest0'
Exit status: the largest of the guests'; 2 wrong usage, 69 no laboratory on this machine, 70 a
guest ended without a status, 124 the time limit."""


def parse(arguments):
    parser = Parser(prog="deploy/lab/run", epilog=EPILOG, allow_abbrev=False,
                    usage="%(prog)s [options] -- COMMAND [ARGUMENT...]",
                    description="Runs COMMAND in virtual machines that have a software RDMA NIC "
                                "(rdma_rxe) and a network of their own.",
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    add_machine(parser)
    add_network(parser)
    add_output(parser)
    if "--" not in arguments:
        options = parser.parse_args(arguments)
        parser.error("COMMAND is missing: write it after '--'")
    split = arguments.index("--")
    options = parser.parse_args(arguments[:split])
    options.command = arguments[split + 1:]
    check(parser, options)
    return options


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"lab: {message} (--help shows the usage)", file=sys.stderr)
        sys.exit(2)


def add_machine(parser):
    group = parser.add_argument_group("machines")
    group.add_argument("--guests", type=whole(1, MAX_GUESTS), default=1, metavar="N",
                       help="how many (default 1)")
    group.add_argument("--cpus", type=whole(1, 64), metavar="N",
                       help="CPUs of each guest (default: 2 for one guest, 1 for several)")
    group.add_argument("--memory", type=whole(256, 1 << 20), default=1024, metavar="MB",
                       help="memory of each guest (default 1024)")
    group.add_argument("--accel", choices=["auto", "kvm", "tcg"], default="auto",
                       help="hardware virtualisation, emulation, or what works (default)")
    group.add_argument("--timeout", type=whole(1, 86400), default=600, metavar="SECONDS",
                       help="limit of the whole run (default 600)")
    group.add_argument("--fail-fast", action="store_true",
                       help="end all guests when COMMAND fails in one")
    group.add_argument("--may-die", default="none", metavar="RANKS",
                       help="guests whose death is part of the experiment, not a failure")


def add_network(parser):
    group = parser.add_argument_group("network (RANKS: such as 0,2, or all, or none)")
    group.add_argument("--rxe", default="all", metavar="RANKS",
                       help="guests with an RDMA device rxe0 (default all)")
    group.add_argument("--knobs", default="all", metavar="RANKS",
                       help="guests to whose sending side the following apply (default all)")
    group.add_argument("--delay", type=pattern(r"\d+(\.\d+)?(us|ms|s)", "a time such as 1ms"),
                       metavar="TIME", help="hold every packet back for so long, such as 1ms")
    group.add_argument("--loss", type=percentage, metavar="PERCENT",
                       help="drop packets at random, such as 1%%")
    group.add_argument("--rate", type=pattern(r"\d+(\.\d+)?[kmg]bit", "a rate such as 200mbit"),
                       metavar="RATE", help="send no faster, such as 200mbit")
    group.add_argument("--limit", type=whole(16, 1 << 20), metavar="KB",
                       help="queue in front of --rate (default 256)")
    group.add_argument("--ecn", action="store_true",
                       help="RED in that queue marks, from 1/8 of its size and all from 1/4")


def add_output(parser):
    group = parser.add_argument_group("output")
    group.add_argument("--share", type=pathlib.Path, metavar="DIR",
                       help="host directory that all guests see at the same path, writable; holds "
                            "guest.RANK.pid of each machine's process while it runs")
    group.add_argument("--output", type=pathlib.Path, metavar="DIR",
                       help="write DIR/RANK.out and DIR/RANK.err instead of the own output")
    group.add_argument("--no-prefix", action="store_true",
                       help="no '[rank]' before the lines of several guests")
    group.add_argument("--verbose", action="store_true",
                       help="say when each guest's COMMAND starts and ends")


def check(parser, options):
    if not options.command:
        parser.error("COMMAND is missing after '--'")
    for name in ["rxe", "knobs", "may_die"]:
        setattr(options, name, ranks(parser, name, getattr(options, name), options.guests))
    if options.cpus is None:
        options.cpus = 2 if options.guests == 1 else 1
    if options.guests == 1 and (options.delay or options.loss or options.rate):
        parser.error("--delay, --loss and --rate act between guests: add --guests 2")
    if not options.rate and (options.limit or options.ecn):
        parser.error("--limit and --ecn describe the queue in front of --rate, which is missing")
    options.limit = options.limit or 256
    for folder in [options.share, options.output]:
        if folder and not folder.is_dir():
            parser.error(f"{folder} is no directory: make it first")
        if folder and private.is_open_to_all(folder):
            parser.error(f"every user may write to {folder}: name a directory of your own")


def ranks(parser, name, text, guests):
    if text in ("all", "none"):
        return set(range(guests)) if text == "all" else set()
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        parser.error(f"--{name.replace('_', '-')} takes ranks such as 0,2, all or none, "
                     f"not '{text}'")
    chosen = {int(word) for word in text.split(",")}
    if max(chosen) >= guests:
        parser.error(f"--{name.replace('_', '-')} names rank {max(chosen)}, but there "
                     f"{'is' if guests == 1 else 'are'} {guests} (ranks count from 0)")
    return chosen


def whole(low, high):
    def convert(text):
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"takes a whole number from {low} to {high}, "
                                             f"not '{text}'")
        return int(text)
    return convert


def pattern(expression, meaning):
    def convert(text):
        if not re.fullmatch(expression, text, re.ASCII):
            raise argparse.ArgumentTypeError(f"takes {meaning}, not '{text}'")
        return text
    return convert


def percentage(text):
    if not re.fullmatch(r"\d{1,3}(\.\d+)?%", text, re.ASCII) or float(text[:-1]) > 100:
        raise argparse.ArgumentTypeError(f"takes a share such as 1%, not '{text}'")
    return text
