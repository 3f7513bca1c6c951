"""Makes queueing disciplines of eth0 from --delay, --loss, --rate, --limit and --ecn.

The NIC has no offloads, so each packet here is one frame on the wire, never a batch of frames.
"""

BURST_BYTES = 10000  # the least that lets a jumbo frame pass
DELAYED_PACKETS = 100000  # limit of --delay: never the bottleneck


def tc_batch(options):
    """Input of `tc -batch`: the disciplines form a chain, a packet enters the first one."""
    stages = []
    if options.delay or options.loss:
        fate = [f"delay {options.delay}"] if options.delay else []
        fate += [f"loss {options.loss}"] if options.loss else []
        stages.append(f"netem limit {DELAYED_PACKETS} {' '.join(fate)}")
    if options.rate:
        stages.append(f"tbf rate {options.rate} burst {BURST_BYTES} limit {options.limit}kb")
    if options.ecn:
        stages.append(red(options.limit * 1024, options.rate))
    lines, parent = [], "root"
    for number, stage in enumerate(stages, 1):
        lines.append(f"qdisc add dev eth0 {parent} handle {number}: {stage}\n")
        parent = f"parent {number}:1"
    return "".join(lines)


def red(limit, rate):
    low, high, packet = limit // 8, limit // 4, 1000
    burst = low // packet + 1  # the least that RED accepts: its average follows closely
    return (f"red limit {limit} min {low} max {high} avpkt {packet} burst {burst} "
            f"bandwidth {rate} probability 1 ecn")
