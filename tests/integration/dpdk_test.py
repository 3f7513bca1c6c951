"""`pacecar bw` over DPDK devices whose peer dies, hangs or restarts, and with huge pages:
dpdk_test.py PROGRAM CONFORMANCE [CLASS].

Run where port 18515 is free (tests/support/with_nics 0). CONFORMANCE: the packet I/O's test.
Exit status 77: skipped.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from limits import ALL, LIMIT_S

PROGRAM = ""
CONFORMANCE = ""
SLOWER = int(os.environ.get("TESTS_SLOWER", "1"))  # a sanitizer's build
FLOWING_BYTES = 1 << 20
HUGE_PAGES = pathlib.Path("/proc/sys/vm/nr_hugepages")


class Device(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        host = f"soft:dpdk:net_vhost0,iface={self.root}/socket,client=1"
        guest = f"soft:dpdk:net_virtio_user0,path={self.root}/socket,server=1,mtu=4300"
        shared = "soft:dpdk:net_af_packet0,iface=lo"
        self.kinds = {"virtio": (host, guest), "af_packet": (shared, shared)}

    def start_client(self, nic, *arguments, **changes):
        (self.root / "socket").unlink(missing_ok=True)  # of a virtio NIC whose process was killed
        return self.start(nic, *arguments, "127.0.0.1", **changes)

    def start(self, nic, *arguments, **changes):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
        process = subprocess.Popen(
            [PROGRAM, "bw", *arguments], env={**clean, "PACECAR_NICS": nic,
                                              "PACECAR_TIMEOUT": f"{5 * SLOWER}s", **changes},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()

    def serve(self, nic, *arguments):
        """Starts a server and waits until it listens."""
        server = self.start(nic, *arguments)
        self.wait_until_it_listens(server)
        return server

    def wait_until_it_listens(self, server):
        """Returns what the server prints until then."""
        printed = ""
        while "waiting for a client" not in printed:
            self.assertTrue(line := server.stdout.readline(), f"the server ended: {printed}")
            printed += line
        return printed

    def stream(self, nic):
        """Starts a client and waits until its messages flow."""
        capture = self.root / "capture.pcap"
        capture.unlink(missing_ok=True)
        client = self.start_client(nic, "-D", "600", PACECAR_PCAP=str(capture))
        give_up = time.monotonic() + LIMIT_S
        while not capture.exists() or capture.stat().st_size < FLOWING_BYTES:
            if client.poll() is not None:
                self.fail(f"the client ended: {client.stdout.read()}")
            self.assertLess(time.monotonic(), give_up, "nothing flows")
            time.sleep(0.01)
        return client

    def assert_good_session(self, nic):
        client = self.start_client(nic, "-n", "5")
        output, _ = client.communicate(timeout=LIMIT_S)
        self.assertEqual(client.returncode, 0, output)


class Ends(Device):
    def assert_fails(self, process):
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1, output)
        self.assertRegex(output, r"error: .*127\.0\.0\.1")

    def test_client_names_a_server_that_dies_or_hangs_and_finds_its_successor(self):
        for kind, (ours, theirs) in self.kinds.items():
            # A virtio NIC is closed only when its host answers, or has ended.
            signals = (signal.SIGKILL,) if kind == "virtio" else (signal.SIGKILL, signal.SIGSTOP)
            for number in signals:
                with self.subTest(kind=kind, signal=number):
                    server = self.serve(ours)
                    client = self.stream(theirs)
                    server.send_signal(number)
                    self.assert_fails(client)
                    server.kill()
                    server.wait()
                    successor = self.serve(ours)
                    self.assert_good_session(theirs)
                    self.assertEqual(successor.wait(LIMIT_S), 0)

    def test_both_ends_close_at_the_same_time(self):
        ours, theirs = self.kinds["virtio"]
        self.serve(ours, "--run_infinitely")
        for _ in range(3 if ALL else 0):  # the threads of both ends wait for a processor
            self.addCleanup(self.end, subprocess.Popen(
                [sys.executable, "-c", "while True: pass"], stdout=subprocess.PIPE))
        for _ in range(40 if ALL else 5):
            self.assert_good_session(theirs)

    def test_several_engines_are_refused_with_a_sentence(self):
        server = self.start(self.kinds["virtio"][0], PACECAR_ENGINES="2")
        printed = self.wait_until_it_listens(server)
        self.assertIn("net_vhost0: one engine, not PACECAR_ENGINES=2: several are for", printed)

    def test_server_names_a_client_that_dies_or_hangs_and_serves_the_next(self):
        for kind, (ours, theirs) in self.kinds.items():
            for number in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(kind=kind, signal=number):
                    server = self.serve(ours, "--run_infinitely")
                    client = self.stream(theirs)
                    client.send_signal(number)
                    printed = self.wait_until_it_listens(server)
                    self.assertRegex(printed, r"127\.0\.0\.1.*(went away|answer)")
                    client.kill()
                    client.wait()
                    self.assert_good_session(theirs)
                    server.kill()
                    server.wait()


class HugePages(Device):
    def reserve(self, mebibytes):
        """Reserves so many MiB of further huge pages until the end of the test."""
        before = HUGE_PAGES.read_text(encoding="ascii")
        wanted = int(before) + mebibytes * 1024 // self.number("Hugepagesize")
        try:
            HUGE_PAGES.write_text(str(wanted), encoding="ascii")
        except OSError as error:
            self.skipTest(f"huge pages cannot be reserved: {error}")
        self.addCleanup(HUGE_PAGES.write_text, before, encoding="ascii")
        if int(HUGE_PAGES.read_text(encoding="ascii")) < wanted:
            self.skipTest(f"the kernel has not enough memory in one piece for {wanted} huge pages")

    @staticmethod
    def number(what, file="/proc/meminfo"):
        lines = pathlib.Path(file).read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(what))

    def huge_kib_of_a_stream(self):
        ours, theirs = self.kinds["virtio"]
        server = self.serve(ours)
        client = self.stream(theirs)
        kib = self.number("Private_Hugetlb", f"/proc/{client.pid}/smaps_rollup")
        self.end(client)
        self.end(server)
        return kib

    def test_huge_pages_are_used_when_enough_are_free(self):
        self.reserve(512)
        self.assertGreater(self.huge_kib_of_a_stream(), 0)
        # Without the tests of virtio, which have both ends of vhost-user in one process: when
        # memory is freed, one end asks the other with EAL's lock held, and the other waits for this
        # lock (DPDK 22.11).
        kinds = "--gtest_filter=-*/virtio*:DpdkIo.DeviceIsExclusive*"
        subprocess.run([CONFORMANCE, "--gtest_brief=1", kinds], check=True, timeout=LIMIT_S)

    def test_too_few_huge_pages_are_not_used(self):
        self.reserve(4)
        free_kib = self.number("HugePages_Free") * self.number("Hugepagesize")
        if free_kib >= 128 * 1024:
            self.skipTest("many are free already")
        self.assertEqual(self.huge_kib_of_a_stream(), 0)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    CONFORMANCE = sys.argv.pop(1)
    result = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
