"""The flags of `nccl`, which are also the conditions that `predict` simulates."""

import argparse
import pathlib

import nccl_run
import toolkit
from console import add_build, between, new_parser

BUFFER_TIME_S = 0.005
KERNELS_ALGORITHMS = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
EPILOG = """\
Every rank is a host: a network namespace with a veth pair to a bridge, which sends to each host at
--rate, with a FIFO below. The ranks of several jobs share the hosts. NCCL runs on the CPU device.
An operation starts when the last one has ended, and --pause later. Prints {"metrics": ...} of the
time in which all jobs run, without its first fifth. Plans: bench/plans/live_nccl*.toml.

--round-trip and --loss put 'pacecar switch' in place of the bridge; with --ecn its queue takes the
place of the FIFO. It takes processor time from the ranks: use rates up to some 100 Mb/s.
Exit codes: 0 measured, 1 failed, 2 wrong usage, or something is missing: root, ip and tc, sch_htb,
iperf3, NCCL, a build."""


def parse(arguments=None):
    parser = new_parser("bench/measure/live/nccl", "Measures real NCCL through limited links, for "
                        "one network and congestion control.", EPILOG)
    add = parser.add_argument
    add("--arm", type=arm, default="pace", metavar="NAME",
        help="socket:ALGORITHM is NCCL's own network with that congestion control of the kernel; "
             "others are Pacecar's; default pace")
    add("--op", choices=nccl_run.OPERATIONS, default="allreduce",
        help="default allreduce; incast: all send to rank 0")
    add("--bytes", type=size, default=size("4M"), metavar="N",
        help="of the buffer; of alltoall and incast to each peer; default 4M (MiB)")
    add("--ranks", type=between(int, 2, 16), default=2, metavar="N", help="of a job; default 2")
    add("--jobs", type=between(int, 1, 8), default=1, metavar="N", help="default 1")
    add("--pause", type=between(float, 0, 60), default=0, metavar="S",
        help="between two operations; default 0")
    add("--rate", type=rate, default=rate("300M"), metavar="BITS",
        help="towards each host; default 300M")
    add("--line-rate", choices=nccl_run.LINE_RATES, default="right",
        help="PACECAR_LINE_RATE: the real one, ten times that, or not set; default right, which "
             "`fixed` always has")
    add("--mtu", type=between(int, 1280, 9000), default=1500, metavar="BYTES", help="default 1500")
    add("--buffer", type=between(float, 0.05, 100), default=1, metavar="X",
        help=f"of each FIFO: the bytes of X times {BUFFER_TIME_S * 1e3:g} ms; default 1")
    add("--joined", action="store_true",
        help="senders do not cut their data to packets: an order of magnitude less processor time, "
             "but queues hold segments of up to 64 KB")
    add("--beside", type=between(int, 0, 16), default=0, metavar="N",
        help="TCP streams (cubic) of another host to host 0; default 0")
    add("--busy", type=between(int, 0, 64), default=0, metavar="N",
        help="processes that compute, as data loaders do, on all hosts' processors; default 0")
    add("--round-trip", type=between(float, 0, 1), default=0, metavar="S", help="default 0")
    add("--loss", type=between(float, 0, 0.5), default=0, metavar="P",
        help="probability that a packet is lost; default 0")
    add("--ecn", default="", metavar="LOW,HIGH,P", help="marks, as of 'pacecar switch'")
    add("--seconds", type=between(float, 0.5, 3600), default=2, metavar="S", help="default 2")
    add("--preload", type=pathlib.Path, help=argparse.SUPPRESS)  # into the ranks: record_host
    add_build(add)
    options = parser.parse_args(arguments)
    if options.joined and (options.round_trip or options.loss or options.ecn):
        parser.error("--joined: 'pacecar switch' takes packets only: leave it out")
    options.buffer_bytes = int(options.buffer * options.rate * BUFFER_TIME_S / 8)
    options.switch = ((options.round_trip or options.loss or options.ecn)
                      and options.build / "bench/pacecar")
    options.plugin = options.build / "net_plugin/libnccl-net-pacecar.so"
    options.collectives = options.build / "bench/nccl/programs" / toolkit.DRIVER
    options.cpu_device = options.build / "cpu_device"
    options.programs = [options.plugin, options.collectives, options.cpu_device / "libcuda.so.1",
                        *filter(None, [options.switch])]
    return options


def arm(text):
    network, _, algorithm = text.partition(":")
    known = KERNELS_ALGORITHMS.read_text("ascii").split()
    if network == "socket" and algorithm not in known:
        raise argparse.ArgumentTypeError(f"this kernel has no '{algorithm}' for TCP, but "
                                         f"{', '.join(known)}: load the module tcp_{algorithm}")
    return text


def size(text):
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    count = int(text[:-1] if factor > 1 else text) * factor
    if not 4 <= count <= 1 << 30 or count % 4:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of 4 up to 1024M")
    return count


def rate(text):
    factor = {"M": 10**6, "G": 10**9}.get(text[-1:], 1)
    bps = int(float(text[:-1] if factor > 1 else text) * factor)
    if not 10**7 <= bps <= 10**12:
        raise argparse.ArgumentTypeError(f"{text} is not in 10M to 1000G")
    return bps
