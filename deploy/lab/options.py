"""The command line of deploy/lab/run. A mistake ends the program with one sentence."""

import argparse
import pathlib
import re
import sys

import private

MAX_GUESTS = 16
EPILOG = """\
Each guest sees the host's file system, and keeps the files that it writes in memory; only the
directory of --share is common to all guests and the host. COMMAND's environment has
  LAB_RANK     this guest, from 0      LAB_PEERS   IPv4 addresses, by rank
  LAB_GUESTS   how many there are      LAB_SHARE   the common directory

Examples:
  deploy/lab/run -- ibv_devinfo
  deploy/lab/run --guests 2 -- sh -c \\
      '[ $LAB_RANK = 0 ] && exec ib_write_bw -d rxe0; sleep 1; ib_write_bw -d rxe0 guest0'
  deploy/lab/run --guests 2 --delay 1ms --loss 1% -- sh -c 'ping -c 100 -i 0.01 guest0'
Exit status: the largest of the guests' statuses; 2 wrong usage, 69 this machine cannot run guests,
70 a guest ended without a status, 124 the time limit."""


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
        if options.prepare:
            return options
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
                       help="number of guests (default 1)")
    group.add_argument("--cpus", type=whole(1, 64), metavar="N",
                       help="CPUs of each guest (default: 2 for one guest, 1 for several)")
    group.add_argument("--memory", type=whole(256, 1 << 20), default=1024, metavar="MB",
                       help="memory of each guest (default 1024)")
    group.add_argument("--accel", choices=["auto", "kvm", "tcg"], default="auto",
                       help="hardware virtualisation, emulation, or the first that works (default)")
    group.add_argument("--timeout", type=whole(1, 86400), default=600, metavar="SECONDS",
                       help="limit of the whole run, without the time in which a busy host does "
                            "not run the guests (default 600)")
    group.add_argument("--prepare", action="store_true",
                       help="without COMMAND: only install the packages and make the image")
    group.add_argument("--may-die", default="none", metavar="RANKS",
                       help="guests that may end without a status, which then counts as 0")


def add_network(parser):
    group = parser.add_argument_group("network (RANKS: such as 0,2, or all, or none)")
    group.add_argument("--rxe", default="all", metavar="RANKS",
                       help="guests with an RDMA device rxe0 (default all)")
    group.add_argument("--knobs", default="all", metavar="RANKS",
                       help="guests whose outgoing packets the next flags affect (default all)")
    group.add_argument("--delay", type=pattern(r"\d+(\.\d+)?(us|ms|s)", "a time such as 1ms"),
                       metavar="TIME", help="delay every packet, such as 1ms")
    group.add_argument("--loss", metavar="PERCENT", help="drop packets at random, such as 1%%",
                       type=pattern(r"(100(\.0+)?|\d{1,2}(\.\d+)?)%", "a share such as 1%"))
    group.add_argument("--rate", type=pattern(r"\d+(\.\d+)?[kmg]bit", "a rate such as 200mbit"),
                       metavar="RATE", help="limit the rate, such as 200mbit")
    group.add_argument("--limit", type=whole(16, 1 << 20), metavar="KB",
                       help="size of the queue of --rate (default 256)")
    group.add_argument("--ecn", action="store_true",
                       help="ECN marks by RED in that queue: some from 1/8 of its size on, all "
                            "packets from 1/4 on")


def add_output(parser):
    group = parser.add_argument_group("output")
    group.add_argument("--share", type=pathlib.Path, metavar="DIR",
                       help="host directory that all guests see at the same path, writable; holds "
                            "guest.RANK.pid of each machine's process while it runs")
    group.add_argument("--output", type=pathlib.Path, metavar="DIR",
                       help="write the guests' output to DIR/RANK.out and DIR/RANK.err")


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
        parser.error("--limit and --ecn describe the queue of --rate, which is missing")
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
