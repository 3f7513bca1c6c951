"""Links that are down for a while under programs: outages_test.py BUILD [unittest flags]. NCCL:
Outages of tests/nccl/network_cases.py."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import unittest
from concurrent import futures

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/measure/mpi"), str(ROOT / "bench/measure/compare")]

import bridged
import exchange
import job as mpi
import namespaces
import outages
from exchange import wait_until
from limits import ALL, LIMIT_S, further

BUILD = PACECAR = pathlib.Path()


class Outages(unittest.TestCase):
    def survive(self, run, seconds=5):
        """run(place, seconds) lasts `seconds`, in which links fail; the last one returns."""
        lengths = []
        try:
            while len(lengths) < (50 if ALL else 2):
                with bridged.hosts(2, 9000) as place, futures.ThreadPoolExecutor() as beside:
                    over = threading.Event()
                    disturbing = beside.submit(self.disturb, place, over, len(lengths))
                    try:
                        run(place, 120 if ALL else seconds)
                    finally:
                        over.set()
                    lengths += disturbing.result()
        except namespaces.Unavailable as why:
            self.skipTest(str(why))
        print(f"{self.id()}: {len(lengths)} outages of {min(lengths)} to {max(lengths)} s")

    def flows(self, place):
        """Whether data flow: then all is connected."""
        counted = subprocess.run(
            [*place.prefix(0), "cat", f"/sys/class/net/{place.interface}/statistics/rx_bytes"],
            capture_output=True, text=True, check=True)
        return int(counted.stdout) > 10_000_000

    def disturb(self, place, over, seed):
        wait_until(lambda: over.is_set() or self.flows(place), LIMIT_S)
        return outages.disturb(place.members, [(place.interface,)], over, seed)

    def pair(self, program, *flags, of_server=(), nic="soft:udp", meet=bridged.Hosts.address):
        """The two ends of perftest's programs, or of ours, which take the same flags. They meet
        over TCP at the address meet(place, 0)."""
        def run(place, seconds):
            port, address = exchange.free_port(), meet(place, 0)
            environment = {**os.environ, "PACECAR_NICS": f"{nic}:{place.interface}"}
            command = [PACECAR, *program, "-p", port]
            test = ["-D", seconds, *flags]
            with exchange.Process(place.prefix(0), [*command, *of_server(test)],
                                  environment) as server:
                server.wait_for_port(port)
                with exchange.Process(place.prefix(1), [*command, *test, address],
                                      environment) as client:
                    self.assertTrue(client.ends_well(LIMIT_S), client.complaint())
                self.assertTrue(server.ends_well(LIMIT_S), server.complaint())
        self.survive(run)

    def test_1_and_64_connections(self):
        for connections in (1, 64):
            for nic in ("soft:udp", *further("soft:raw")):
                with self.subTest(connections=connections, nic=nic):
                    self.pair(["bw"], "-q", connections, "-b", nic=nic,
                              of_server=lambda _: ["--bind", "*"])

    # perftest expects that one read() of TCP returns a whole message. Linux sends segments of 36
    # bytes while the route is down.
    def test_verbs_device_and_tcp_over_another_link(self):
        self.pair(["run", "--quiet", "--", "ib_write_bw"], "-F", "-u", "21", of_server=list,
                  meet=self.address_on_another_link)

    def address_on_another_link(self, place, number):
        namespaces.pair(place.members[0], "tcp0", place.members[1], "tcp0", 9000)
        for each, member in enumerate(place.members):
            namespaces.give_address(member, "tcp0", f"198.51.100.{each + 1}/24")
        return f"198.51.100.{number + 1}"

    def test_provider(self):
        def run(place, seconds):
            # A collective of 600 kB takes about 3 ms.
            program = [mpi.COLLECTIVES, "--sizes", "600000:600000:2", "--iterations",
                       seconds * 20]
            output = mpi.run(mpi.place_of(place), 2, "pacecar", BUILD / "net_plugin/libfabric",
                             program)
            self.assertTrue(all(one["right"] for one in json.loads(output)["results"]))
        self.survive(run)

    def test_a_host_that_gets_another_address_says_so_and_both_ends_fail(self):
        try:
            with bridged.hosts(2, 9000) as place:
                port = exchange.free_port()
                environment = {**os.environ, "PACECAR_NICS": f"soft:udp:{place.interface}",
                               "PACECAR_TIMEOUT": "8s"}
                command = [PACECAR, "bw", "-p", port]
                with exchange.Process(place.prefix(0), [*command, "--bind", "*"],
                                      environment) as server:
                    server.wait_for_port(port)
                    with exchange.Process(place.prefix(1),
                                          [*command, "-D", LIMIT_S, place.address(0)],
                                          environment) as client:
                        self.assertTrue(wait_until(lambda: self.flows(place), LIMIT_S))
                        for change in ("del", "192.0.2.2/24"), ("add", "192.0.2.77/24"):
                            namespaces.command("ip", "-n", place.members[1], "address", *change,
                                               "dev", place.interface)
                        self.assertFalse(client.ends_well(LIMIT_S))
                        self.assertIn("has lost its address 192.0.2.2", client.errors())
                    self.assertFalse(server.ends_well(LIMIT_S))
                    self.assertIn("still has that address", server.errors())
        except namespaces.Unavailable as why:
            self.skipTest(str(why))


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    PACECAR = BUILD / "bench/pacecar"
    unittest.main(verbosity=2)
