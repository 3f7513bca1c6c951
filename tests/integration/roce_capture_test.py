"""Wireshark's dissector of RoCE v2 understands what the software NIC sends: nothing in a capture is
malformed, and every kind of packet is there. Without tshark the test is skipped.

Usage: roce_capture_test.py ROCE_CAPTURE"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

# RC: sends, writes, reads, acknowledgement, sends with invalidation; UC: sends and writes; and the
# CNP, an opcode that has no name in tshark.
OPCODES = {0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 0x16, 0x17,
           *range(0x20, 0x2C), 0x81}
SKIPPED = 77


def main():
    if shutil.which("tshark") is None:
        print("tshark is not installed (deploy/install-deps test)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        capture = pathlib.Path(folder) / "roce.pcap"
        subprocess.run([sys.argv[1], capture], check=True)
        fields = ["-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed"]
        lines = subprocess.run(["tshark", "-r", capture, *fields], check=True,
                               capture_output=True, text=True).stdout.splitlines()
    packets = [line.split("\t") for line in lines]
    malformed = [number for number, (opcode, flaw) in enumerate(packets, 1) if flaw or not opcode]
    missing = OPCODES - {int(opcode) for opcode, _ in packets if opcode}
    for number in malformed:
        print("not understood: packet", number)
    for opcode in sorted(missing):
        print(f"missing: opcode {opcode:#04x}")
    print(f"{len(packets)} packets")
    return 1 if malformed or missing else 0


sys.exit(main())
