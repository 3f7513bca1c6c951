"""NCCL's messages have the count and size that `pacecar predict` assumes."""

import json
import pathlib
import socket
import subprocess
import tempfile

from nccl_job import BUILD, MIB, NEW, Job, ranks_of
import arms
import job
from exchange import wait_until
from limits import ALL, LIMIT_S

RANKS = 4
LEAST = 1000  # bytes; barriers send less
# Columns of an event of the profiler's page (net_plugin/profiler/README.md).
KIND, SENDING, MESSAGES, STOP, BYTES = 1, 5, 7, 11, 14
PROXY_OPERATION = 3


def profile(path):
    """The profiler's page of the process with this state socket; none of a process that is busy."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(5)
        try:
            asked.connect(str(path))
            asked.sendall(b"GET /profile\n")
            return json.loads(b"".join(iter(lambda: asked.recv(1 << 16), b"")))
        except (OSError, ValueError):
            return {"communicators": []}


def sent_to_a_peer(path):
    """{(messages, bytes)} of each operation in which a rank has sent to a peer."""
    return {(event[MESSAGES], event[BYTES])
            for communicator in profile(path)["communicators"]
            for event in communicator["operations"]
            if event[KIND] == PROXY_OPERATION and event[SENDING] and event[STOP]
            and event[BYTES] >= LEAST}


class Predicted(Job):
    def sent(self, operation, algorithm, protocol, size, channels):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "state").mkdir(mode=0o700)
            chosen = {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol, "PACECAR_TUNER": "off",
                      "NCCL_MIN_NCHANNELS": str(channels), "NCCL_MAX_NCHANNELS": str(channels),
                      "PACECAR_STATE_DIR": str(folder / "state")}
            made = ranks_of("../bench/nccl/programs/collectives", NEW, arms.parse("soft:udp:lo"),
                            RANKS, [folder / "id", operation, f"{size}:20", 1, LIMIT_S], folder,
                            **chosen)
            processes, seen = [], set()
            try:
                for rank in made:
                    processes.append(job.Process(rank.prefix, rank.argv, rank.environment))

                def enough():
                    for process in processes:
                        self.assertFalse(process.ended(), process.complaint())
                    seen.update(*map(sent_to_a_peer, (folder / "state").iterdir()))
                    return seen

                self.assertTrue(wait_until(enough, LIMIT_S), "no operation was recorded")
                return seen
            finally:
                for process in processes:
                    process.__exit__()

    def predicted(self, operation, algorithm, protocol, size, channels):
        keys = {"topology.hosts": RANKS, "host.gpus": 1, "host.nics": "400G",
                "collective.op": operation, "collective.algorithm": algorithm.lower(),
                "collective.protocol": protocol, "collective.sizes": f"{size // 1024}K",
                "collective.channels": channels}
        asked = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        answer = subprocess.run([BUILD / "bench/pacecar", "predict", "--json=-", *asked],
                                capture_output=True, text=True, timeout=LIMIT_S, check=True)
        [found] = json.loads(answer.stdout)["results"]
        return {(found["messages"], found["messages"] * found["message_bytes"])}

    def test_messages_of_rings_trees_and_chains(self):
        # NCCL 2.29.7 does not show broadcasts to a profiler.
        choices = [("allreduce", "Ring", "Simple", 16 * MIB),
                   ("allreduce", "Tree", "Simple", 8 * MIB), ("allreduce", "Ring", "LL", MIB)]
        if ALL:
            choices += [("allgather", "Ring", "Simple", 16 * MIB),
                        ("reducescatter", "Ring", "Simple", MIB),
                        ("reduce", "Ring", "LL", MIB), ("allreduce", "Tree", "LL", MIB)]
        for choice in choices:
            with self.subTest(choice=choice):
                # Each of NCCL's channels is one of two trees; a predicted channel has both.
                trees = choice[1] == "Tree"
                self.assertEqual(self.sent(*choice, 2), self.predicted(*choice, 1 if trees else 2))
