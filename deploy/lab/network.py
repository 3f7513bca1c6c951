"""Connects the guests, sets their addresses, and makes the queueing disciplines of their eth0.

Guests are connected by pairs of local stream sockets, over which their emulators write frames:
nothing is lost between two guests. With more than two, the emulator of guest 0 passes each frame
to all others, and drops a frame for which a guest has no room. No port, file or interface of the
host is used, so that runs cannot disturb each other.
"""

import socket

MTU = 9000  # bytes of a guest's NIC: jumbo frames, and room for an RDMA MTU of 4096
BURST_BYTES = 10000  # of --rate: the least that lets a jumbo frame pass
DELAYED_PACKETS = 100000  # limit of --delay: never the bottleneck


def ipv4(rank):
    return f"10.77.0.{rank + 1}"


def ipv6(rank):
    return f"fd77::{rank + 1:x}"


def link_local(rank):
    """The address that the kernel derives from mac(rank)."""
    return f"fe80::5054:ff:fe77:{rank + 1:x}"


def mac(rank):
    return f"52:54:00:77:00:{rank + 1:02x}"


def join(guests):
    """The sockets of each guest's emulator; that of guest 0 connects the others."""
    pairs = [socket.socketpair() for _ in range(guests - 1)]
    return [[ours for ours, _ in pairs], *([theirs] for _, theirs in pairs)]


def flags(sockets):
    """The emulator's flags for a network `net` of these sockets, joined by a hub if there are
    several."""
    streams = [f"stream,server=off,addr.type=fd,addr.str={sock.fileno()}" for sock in sockets]
    if len(streams) == 1:
        return ["-netdev", f"{streams[0]},id=net"]
    found = ["-netdev", "hubport,id=net,hubid=0"]
    for number, stream in enumerate(streams):
        found += ["-netdev", f"{stream},id=peer{number}",
                  "-netdev", f"hubport,id=port{number},hubid=0,netdev=peer{number}"]
    return found


def ip_batch(rank, guests):
    """Input of `ip -batch`. The neighbour table is filled: a lost ARP request is repeated after a
    second, and a queue pair does not wait longer for its peer's Ethernet address."""
    lines = ["link set lo up", "link set eth0 up", f"address add {ipv4(rank)}/24 dev eth0",
             f"address add {ipv6(rank)}/64 dev eth0 nodad"]
    for peer in set(range(guests)) - {rank}:
        lines += [f"neighbour replace {address} lladdr {mac(peer)} dev eth0 nud permanent"
                  for address in [ipv4(peer), ipv6(peer), link_local(peer)]]
    return "\n".join([*lines, ""])


def hosts_file(guests):
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{ipv4(rank)} guest{rank}" for rank in range(guests)]
    lines += [f"{ipv6(rank)} guest{rank}" for rank in range(guests)]
    return "\n".join(lines) + "\n"


def tc_batch(options):
    """Input of `tc -batch` for --delay, --loss, --rate, --limit and --ecn: the disciplines form a
    chain, a packet enters the first one. The NIC has no offloads, so each packet here is one frame
    on the wire, never a batch of frames."""
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
