"""What --delay, --loss, --rate, --limit and --ecn mean, as queueing disciplines of eth0."""

SEGMENT_BURST = 10000  # bytes: one jumbo frame, but no batch of segments


def tc_batch(options):
    """Input of `tc -batch`: the disciplines form a chain, a packet enters the first one."""
    stages = []
    if options.delay or options.loss:
        # The token bucket is too fast to delay anything; what it does is to cut batches (GSO)
        # into packets, so that each packet meets its own fate behind it.
        stages.append(f"tbf rate 100gbit burst {SEGMENT_BURST} limit 64mb")
        fate = [f"delay {options.delay}"] if options.delay else []
        fate += [f"loss {options.loss}"] if options.loss else []
        stages.append(f"netem limit 100000 {' '.join(fate)}")
    if options.rate:
        stages.append(f"tbf rate {options.rate} burst {SEGMENT_BURST} limit {options.limit}kb")
    if options.ecn:
        stages.append(red(options.limit * 1024, options.rate))
    lines, parent = [], "root"
    for number, stage in enumerate(stages, 1):
        lines.append(f"qdisc add dev eth0 {parent} handle {number}: {stage}\n")
        parent = f"parent {number}:1"
    return "".join(lines)


def red(limit, rate):
    low, high, packet = limit // 8, limit // 4, 1000
    burst = low // packet + 1  # the smallest that RED accepts: its average follows the queue closely
    return (f"red limit {limit} min {low} max {high} avpkt {packet} burst {burst} "
            f"bandwidth {rate} probability 1 ecn")
