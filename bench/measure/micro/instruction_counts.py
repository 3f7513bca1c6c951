#!/usr/bin/env python3
"""Counts the instructions per packet of 4 KiB, of both ends together, copies apart.

    instruction_counts.py BUILD/bench/measure/micro/packet_cost [--most N]
    instruction_counts.py BUILD/bench/measure/micro/udp_datagram_cost \
        --counted '*receive_data*' --of datagram
    instruction_counts.py BUILD/bench/measure/micro/message_cost --bytes 8 \
        --counted '*::post_send*' --of isend --few 1000 --many 3000

Runs the program under callgrind with two numbers of packets, and counts only while packets are
moved. The difference of the two runs excludes the start and the first packets, so that the result
is the same on every machine with the same compiler. Exit codes: 0, 1 when it is more than --most or
the program fails, 2 for bad arguments, 77 without valgrind.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Functions that copy, small headers included.
COPIES = re.compile(r"^ *([\d,]+) .*:\S*(?:memcpy|memmove|copy_by_avx2|ordered_copy)", re.MULTILINE)


def count(command_line: list[str], counted_function: str) -> tuple[int, int]:
    """Instructions while the program moves its packets, and the part of them in COPIES."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += ["--collect-atstart=no", f"--toggle-collect={counted_function}"]
        done = subprocess.run([*command, *command_line], capture_output=True, text=True)
        counted = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode != 0 or counted is None:
            sys.exit(f"{command_line} fails under valgrind: {done.stderr.strip()}")
        annotate = ["callgrind_annotate", "--threshold=100", "--auto=no", f"{folder}/out"]
        functions = subprocess.run(annotate, capture_output=True, text=True, check=True).stdout
    copies = sum(int(number.replace(",", "")) for number in COPIES.findall(functions))
    return int(counted.group(1)), copies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path, help="packet_cost")
    parser.add_argument("--most", type=float, help="the most instructions per packet that pass")
    parser.add_argument("--counted", default="pacecar::NicPair::move*", metavar="FUNCTION",
                        help="the function that is counted; default: NicPair::move (nic_pair.h)")
    parser.add_argument("--of", default="packet", help="what the program moves, for the output")
    parser.add_argument("--bytes", help="a second argument of the program: bytes of a message")
    parser.add_argument("--few", type=int, default=4_096, help="packets of the first run")
    parser.add_argument("--many", type=int, default=20_480, help="packets of the second")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("no valgrind: install it to count instructions", file=sys.stderr)
        return 77
    if not arguments.program.exists():
        parser.error(f"there is no {arguments.program}: build it first")
    size = [] if arguments.bytes is None else [arguments.bytes]
    few, many = (
        count([str(arguments.program), str(number), *size], arguments.counted)
        for number in (arguments.few, arguments.many)
    )
    more = arguments.many - arguments.few
    instructions, copies = ((late - early) / more for early, late in zip(few, many))
    per_packet = instructions - copies
    print(f"{per_packet:.0f} instructions per {arguments.of}, and {copies:.0f} in copies")
    if arguments.most is not None and per_packet > arguments.most:
        print(f"more than {arguments.most:.0f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
