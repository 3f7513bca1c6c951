"""Runs the ranks of bench/nccl/run one by one: nccl_ranks_test.py BUILD [unittest flags]."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import unittest

from limits import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ""


def command(*flags):
    return list(map(str, [ROOT / "bench/nccl/run", "--cpu", "--build", BUILD, *flags]))


def run(*flags):
    return subprocess.run(command(*flags), capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, env={**os.environ, "PACECAR_NICS": "soft:udp:lo"})


class OneByOne(unittest.TestCase):
    """Ranks that are started by others, as on several hosts."""

    def start(self, rank, port, *flags):
        process = subprocess.Popen(
            command("--rank", rank, "--ranks", 3, "--master", f"127.0.0.1:{port}", "--ops",
                    "allreduce,alltoall", "--sizes", "12,64K", "-n", "2", *flags),
            env={**os.environ, "PACECAR_NICS": "soft:udp:lo"}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_they_find_each_other_and_strangers_do_not_disturb_them(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        ranks = [self.start(0, port, "--seconds", "0.5")]
        strangers = []
        while len(strangers) < 4:
            with contextlib.suppress(ConnectionRefusedError):
                strangers.append(socket.create_connection(("127.0.0.1", port), LIMIT_S))
                strangers[-1].sendall([b"", b"\xff\n", b"GET / HTTP/1.1\r\n", b"9\n"]
                                      [len(strangers) - 1])
            self.assertIsNone(ranks[0].poll())
        ranks += [self.start(rank, port, "--seconds", "0.5") for rank in (2, 1)]
        for process in ranks:
            output, errors = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 0, errors)
            rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
            self.assertEqual({(row["op"], row["bytes"]) for row in rows},
                             {(op, size) for op in ("allreduce", "alltoall")
                              for size in (12, 65536)})
            self.assertGreater(len(rows), 4)  # again and again
            self.assertEqual({row["wrong"] for row in rows}, {0})
        for stranger in strangers:
            stranger.close()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()

    def test_an_address_of_another_host_is_an_error(self):
        done = run("--rank", "0", "--master", "192.0.2.7:20000")
        self.assertEqual(done.returncode, 2)
        self.assertIn("rank 0 cannot listen at 192.0.2.7:20000", done.stderr)

    def test_wrong_usage_is_refused_in_a_sentence(self):
        for flags, sentence in ((["--rank", "0"], "with --master HOST:PORT"),
                                (["--rank", "2", "--master", "n:1"], "above N"),
                                (["--rank", "0", "--master", "n:1", "--arms", "socket,ib"],
                                 "one arm"),
                                (["--seconds", "1"], "belong to --rank")):
            with self.subTest(flags=flags):
                done = run(*flags)
                self.assertEqual(done.returncode, 2)
                self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    if subprocess.run([ROOT / "bench/nccl/cpu_device/get_nccl", "2.29.7"], check=False,
                      stdout=subprocess.DEVNULL).returncode:
        sys.exit(77)
    unittest.main()
