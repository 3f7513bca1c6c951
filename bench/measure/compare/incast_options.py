"""The flags of bench/measure/compare/incast, and the checks across them."""

import argparse
import os

import incast_arms
from console import add_build, between, new_parser, writable

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
NO_LIMIT = 0  # as a rate
QUEUE_BYTES, POLICER_BYTES = 2_000_000, 60_000
EPILOG = """\
An arm is the value of PACECAR_CC, or tcp:NAME for TCP with that congestion control of the kernel.
Each round runs every arm once, in turn. Senders, receiver and a prober are joined by veth pairs and
a bridge; HTB limits the rate towards the receiver, with a FIFO below. The queueing delay is the
time of a small probe through this queue less its time on the idle path. The queue in bytes is what
the link carries in that time. "noise" is the delay over a path without a queue. "start" is the
warm-up, from the first packet on.

Shapes: incast: N hosts send to one process. fan-in: N hosts send to N processes of one host.
pairs: N processes of one host send to N of another.

Thresholds, on medians over the rounds, for the arm that --judge names, if it is among the arms:
  its goodput is at least --least-share of what the link can carry (--rate max: of the best arm's);
  its p99 queue is at most --most-delay of every other arm's, taken within a round; with --switch
  that is the switch's own queue.

Examples, as root, in bench/measure/compare:
  incast                                      tcp:cubic, swift and pace; a minute
  incast --arms swift,nscc --rate 200M        others; no threshold
  incast --told 10G                           Pacecar is configured with a wrong rate
  incast --shape pairs --told none            4 processes share a NIC of unknown rate
  incast --shape pairs --beside tcp:cubic     one process next to a TCP stream
  incast --change 500M:100M:500M --policer    other links
  incast --switch --arms swift,dcqcn,fixed,pace  a switch that marks
Every peer gets the PACECAR_* variables of the environment. PACECAR_PROGRESS=thread and
PACECAR_SPIN=0s are the defaults here; PACECAR_LINE_RATE is set by --told only.
Exit codes: 0 all ran and the thresholds are met, 1 a run failed or a threshold is missed, 2 wrong
usage, or something is missing: root, ip and tc, sch_htb, a build."""


def parse(description):
    parser = new_parser("bench/measure/compare/incast", description, EPILOG)
    add = parser.add_argument
    add("--arms", type=lambda text: text.split(","), metavar="LIST",
        help="default tcp:cubic,swift,pace")
    add("--metrics", action="store_true",
        help="one round of the arm that PACECAR_CC names, as a line for 'pacecar ab'")
    add_shape(add)
    add("--mtu", type=between(int, 576, 9000), default=4200, metavar="BYTES",
        help="default 4200, which lets Pacecar's packets carry 4096 bytes")
    add("--seconds", type=between(float, 0.1, 3600), default=5, metavar="S",
        help="length of the window; default 5")
    add("--warm-up", type=between(float, 0.1, 60), default=1, metavar="S", help="default 1")
    add("--rounds", type=between(int, 1, 1000), default=3, metavar="N", help="default 3")
    add("--message", type=between(int, 1, 1 << 30), default=1 << 17, metavar="BYTES",
        help="size of Pacecar's messages; default 131072")
    add("--in-flight", type=between(int, 1, 32), default=8, metavar="N",
        help="messages per sender; default 8")
    add("--probe-rate", type=between(float, 10, 10_000), default=500, metavar="HZ",
        help="default 500")
    add("--judge", default="pace", metavar="ARM", help="the arm with thresholds; default pace")
    add("--least-share", type=between(float, 0, 1), default=0.95, metavar="X", help="default 0.95")
    add("--most-delay", type=between(float, 0, 1e6), default=0.25, metavar="X", help="default 0.25")
    add_build(add)
    add("--json", type=writable, metavar="FILE",
        help="write every figure, and what it was measured on, to this file")
    options = parser.parse_args()
    if options.metrics:
        if options.arms:
            parser.error("--metrics takes its one arm from PACECAR_CC: leave out --arms")
        options.arms, options.rounds = [os.environ.get("PACECAR_CC", "pace")], 1
    options.arms = options.arms or ["tcp:cubic", "swift", "pace"]
    folder = options.build / "bench/measure/compare"
    options.incast_peer, options.queue_probe = folder / "incast_peer", folder / "queue_probe"
    combine(parser, options)
    return options


def add_shape(add):
    """Flags of the hosts and the link."""
    add("--shape", choices=[incast_arms.INCAST, incast_arms.PAIRS, incast_arms.FAN_IN],
        default=incast_arms.INCAST, help="default incast")
    add("--senders", type=between(int, 1, 64), metavar="N",
        help="processes that send; default 4, with --beside 1")
    add("--rate", type=rate, metavar="BITS",
        help="rate of the limited link, or max for none; default 500M, which two processors carry")
    add("--change", type=rates, default=(), metavar="A:B:...",
        help="rates of the link, each for an equal part of the window")
    add("--told", default="right", metavar="WHAT",
        help="the link rate that Pacecar is given: right, none, double, half, or a rate such as "
             "10G; default right")
    add("--share", choices=["auto", "off"], help="PACECAR_SHARE; default: the environment's")
    add("--beside", metavar="ARM", help="a neighbour: one process of this arm from its own host")
    add("--queue", type=between(int, 10_000, 1 << 30), metavar="BYTES",
        help=f"size of the FIFO; default {QUEUE_BYTES}")
    add("--policer", action="store_true", help=f"--queue {POLICER_BYTES}")
    add("--switch", action="store_true",
        help="through 'pacecar switch' instead of a bridge and HTB")
    add("--ecn", metavar="LOW,HIGH,P", default="50K,200K,0.2",
        help="marking thresholds of --switch; default 50K,200K,0.2; '' for no marks")


def combine(parser, options):
    """Fills in what depends on several flags, and refuses contradictions."""
    if options.change and options.rate is not None:
        parser.error("--change names all rates of the link: leave out --rate")
    if options.change:
        options.rate = options.change[0]
    if options.rate is None:
        options.rate = rate("500M")
    if options.switch and (options.change or options.rate == NO_LIMIT):
        parser.error("'pacecar switch' has one rate: leave out --switch, or --change and "
                     "--rate max")
    if options.policer and options.queue:
        parser.error("--policer is a --queue of its own: name one of them")
    options.queue = options.queue or (POLICER_BYTES if options.policer else QUEUE_BYTES)
    options.senders = options.senders or (1 if options.beside else 4)
    options.told_bps = told_bps(parser, options)


def told_bps(parser, options):
    """PACECAR_LINE_RATE of the peers; None: not set."""
    true_bps = max(options.change, default=options.rate)
    if options.told == "none":
        return None
    factors = {"right": 1, "double": 2, "half": 0.5}
    if options.told in factors:
        if true_bps == NO_LIMIT:
            parser.error(f"--told {options.told}: with --rate max the link has no rate: give "
                         "none, or a rate such as 10G")
        return int(true_bps * factors[options.told])
    try:
        return rate(options.told)
    except (ValueError, argparse.ArgumentTypeError):
        parser.error(f"--told: '{options.told}' is none of right, none, double, half, or a rate "
                     "such as 10G")


def sentence(options):
    """Describes the hosts and the link."""
    people = {incast_arms.INCAST: "hosts into one process", incast_arms.PAIRS: "pairs of processes",
              incast_arms.FAN_IN: "hosts into as many processes"}[options.shape]
    link = "as fast as it goes"
    if options.rate != NO_LIMIT:
        link = " then ".join(f"{bps / 1e9:g}" for bps in options.change or [options.rate]) + " Gb/s"
    told = "nothing" if options.told_bps is None else f"{options.told_bps / 1e9:g} Gb/s"
    beside = f", beside {options.beside}" if options.beside else ""
    return (f"{options.senders} {people}{beside}, {link}, told {told}, MTU {options.mtu}, "
            f"FIFO of {options.queue / 1e6:g} MB")


def rates(text):
    every = tuple(rate(one) for one in text.split(":"))
    if len(every) < 2 or NO_LIMIT in every:
        raise argparse.ArgumentTypeError(f"{text} is no list such as 500M:100M:500M")
    return every


def rate(text):
    if text == "max":
        return NO_LIMIT
    factor = UNITS.get(text[-1:].upper(), 1)
    bps = int(float(text[:-1] if factor > 1 else text) * factor)
    if not 10**7 <= bps <= 10**13:
        raise argparse.ArgumentTypeError(f"{text} is not in 10M to 10T")
    return bps
