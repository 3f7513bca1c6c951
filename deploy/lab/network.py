"""Connects the guests, sets their addresses, and makes the queueing disciplines of their eth0.

A guest's NIC is one end of a pair of local stream sockets, over which the emulator writes frames,
each after its length (4 bytes, big endian). Two guests have the two ends of one pair: nothing is
lost between them. More guests are connected by a switch in this process, which learns addresses and
has a queue of limited size for each port. No port, file or interface of the host is used, so that
runs cannot disturb each other.
"""

import collections
import selectors
import socket
import struct

MTU = 9000  # bytes of a guest's NIC: jumbo frames, and room for an RDMA MTU of 4096
QUEUE_BYTES = 4 << 20  # limit of a switch port's queue
READ_BYTES = 1 << 20
ADDRESS_BYTES = 6
LENGTH = struct.Struct("!I")
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


def join(guests, selector):
    """One socket for each guest's NIC; None for a single guest."""
    if guests == 1:
        return [None]
    if guests == 2:
        return list(socket.socketpair())
    pairs = [socket.socketpair() for _ in range(guests)]
    Switch([ours for ours, _ in pairs], selector)
    return [theirs for _, theirs in pairs]


class Port:
    def __init__(self, sock):
        self.socket = sock
        self.received = bytearray()  # the beginning of a frame that is not complete yet
        self.queue = collections.deque()
        self.queued_bytes = 0

    def read(self):
        """Complete frames, each with its length before it; None when the guest has ended."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not data:
            return None
        self.received += data
        frames, start = [], 0
        while len(self.received) - start >= LENGTH.size:
            end = start + LENGTH.size + LENGTH.unpack_from(self.received, start)[0]
            if end > len(self.received):
                break
            frames.append(bytes(self.received[start:end]))
            start = end
        del self.received[:start]
        return frames

    def push(self, frame):
        if self.queued_bytes + len(frame) <= QUEUE_BYTES:
            self.queue.append(frame)
            self.queued_bytes += len(frame)

    def write(self):
        while self.queue:
            try:
                sent = self.socket.send(self.queue[0])
            except (BlockingIOError, ConnectionError):
                return  # read() notices a guest that has ended
            self.queued_bytes -= sent
            if sent < len(self.queue[0]):
                self.queue[0] = self.queue[0][sent:]
                return
            self.queue.popleft()


class Switch:
    """A learning Ethernet switch between sockets, run by the owner's selector."""

    def __init__(self, sockets, selector):
        self._selector = selector
        self._ports = [Port(sock) for sock in sockets]
        self._port_of = {}  # Ethernet address -> port
        for port in self._ports:
            port.socket.setblocking(False)
            selector.register(port.socket, selectors.EVENT_READ, self._handler(port))

    def _handler(self, port):
        def handle(events):
            if events & selectors.EVENT_READ:
                self._forward(port)
            self._flush()
        return handle

    def _forward(self, port):
        frames = port.read()
        if frames is None:
            self._remove(port)
            return
        for frame in frames:
            target = bytes(frame[LENGTH.size:][:ADDRESS_BYTES])
            source = bytes(frame[LENGTH.size:][ADDRESS_BYTES:2 * ADDRESS_BYTES])
            self._port_of[source] = port
            known = self._port_of.get(target)
            for other in [known] if known else self._ports:
                if other is not port:
                    other.push(frame)

    def _remove(self, port):
        self._selector.unregister(port.socket)
        self._ports.remove(port)
        self._port_of = {address: owner for address, owner in self._port_of.items()
                         if owner is not port}
        port.socket.close()

    def _flush(self):
        for port in self._ports:
            port.write()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if port.queue else 0)
            key = self._selector.get_key(port.socket)
            if key.events != wanted:
                self._selector.modify(port.socket, wanted, key.data)


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
