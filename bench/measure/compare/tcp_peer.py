#!/usr/bin/env python3
"""One end of an N-to-1 measurement over the kernel's TCP, with incast_peer's flags and output.

tcp_peer.py receive|send --congestion NAME --address RECEIVER --handle-file FILE --seconds S
                         --warm-up S [--senders N --start-file FILE]
"""

import argparse
import json
import pathlib
import selectors
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True

from exchange import wait_until, write_whole

LIMIT_S = 20
MARGIN_S = 0.3  # how long senders continue after the window, so that none stops within it
CHUNK_BYTES = 1 << 18
OVERHEAD_BYTES = 38 + 20 + 20 + 12  # Ethernet, IPv4, TCP, its time stamps
TOTAL_RETRANSMITTED = 100           # offset of tcpi_total_retrans in struct tcp_info
GO = b"g"                           # the receiver sends it to start the senders


def main():
    options = parse()
    print(json.dumps(receive(options) if options.role == "receive" else send(options)))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["receive", "send"])
    parser.add_argument("--congestion", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--handle-file", type=pathlib.Path, required=True)
    parser.add_argument("--start-file", type=pathlib.Path)
    parser.add_argument("--senders", type=int)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    return parser.parse_args()


def wait_for(file):
    if not wait_until(file.exists, LIMIT_S, pause_s=0.001):
        sys.exit(f"tcp_peer.py: {file} was not written")
    return file.read_text("ascii")


def make_socket(options):
    made = socket.socket()
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion.encode())
    except OSError as error:
        sys.exit(f"tcp_peer.py: the kernel has no congestion control '{options.congestion}' "
                 f"({error.strerror}): load its module, or choose another")
    return made


def receive(options):
    listener = make_socket(options)
    listener.settimeout(LIMIT_S)
    listener.bind((options.address, 0))
    listener.listen(options.senders)
    write_whole(options.handle_file, str(listener.getsockname()[1]))
    streams = [listener.accept()[0] for _ in range(options.senders)]
    options.handle_file.with_name(options.handle_file.name + ".joined").touch()
    start_s = float(wait_for(options.start_file))
    time.sleep(max(0, start_s - time.monotonic()))
    begin_s = start_s + options.warm_up
    for stream in streams:
        stream.sendall(GO)
    counts = read_all(streams, begin_s, begin_s + options.seconds)
    segment = streams[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return {"packet_payload_bytes": segment, "packet_overhead_bytes": OVERHEAD_BYTES,
            "senders_gbps": [count * 8e-9 / options.seconds for count in counts]}


def read_all(streams, begin_s, end_s):
    """Bytes of each stream within the window."""
    counts, buffer = [0] * len(streams), bytearray(1 << 20)
    with selectors.DefaultSelector() as selector:
        for number, stream in enumerate(streams):
            selector.register(stream, selectors.EVENT_READ, number)
        while selector.get_map():
            for key, _ in selector.select():
                got = key.fileobj.recv_into(buffer)
                if got == 0:
                    selector.unregister(key.fileobj)
                elif begin_s <= time.monotonic() < end_s:
                    counts[key.data] += got
    return counts


def send(options):
    stream = make_socket(options)
    stream.settimeout(LIMIT_S + options.seconds)
    stream.connect((options.address, int(wait_for(options.handle_file))))
    if stream.recv(1) != GO:
        sys.exit("tcp_peer.py: the receiver has ended")
    stop_s = time.monotonic() + options.warm_up + options.seconds + MARGIN_S
    data = bytes(CHUNK_BYTES)
    while time.monotonic() < stop_s:
        stream.sendall(data)
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    stream.close()
    return {"packets_retransmitted": struct.unpack_from("I", info, TOTAL_RETRANSMITTED)[0]}


if __name__ == "__main__":
    main()
