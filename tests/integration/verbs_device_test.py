"""Runs programs of libibverbs over the verbs device: verbs_device_test.py PROGRAM [flags].

PROGRAM is pacecar. The programs are those of Debian's ibverbs-utils, perftest and rdmacm-utils;
what is not installed is skipped. Both ends run on this machine: over the loopback, and over two
network namespaces where this user may make them.
"""

import contextlib
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest

PROGRAM = ""
LIMIT_S = 60

# Becomes root of two namespaces joined by a wire, and runs the one end, then the other.
TWO_HOSTS = r"""
set -e
ip link set lo up
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip netns add peer
ip link add here mtu "$MTU" type veth peer name there mtu "$MTU" netns peer
ip addr add $NET.1/24 dev here; ip link set here up
ip -n peer addr add $NET.2/24 dev there; ip -n peer link set there up; ip -n peer link set lo up
ip netns exec peer sh -c "$PEER" & first=$!
until ip netns exec peer ss -Hltn | grep -q ':18515 '; do kill -0 $first; sleep 0.05; done
sh -c "$SELF"
wait $first
"""


def environment(nic, fault=""):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return clean | {"PACECAR_NICS": f"soft:udp:{nic}", "PACECAR_FAULT": fault}


def free_port():
    """Not one that callers are given: it could stay in TIME_WAIT, where no program can listen."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(20000, 32000)))
                return str(probe.getsockname()[1])
            except OSError:
                continue


def until_it_waits_for_callers(server, name):
    """A client of many connections that comes too early is refused some of them, and waits for
    ever for the others. The server listens when it reads its first event."""
    proc = pathlib.Path(f"/proc/{server.pid}")
    deadline = time.monotonic() + LIMIT_S
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            program = (proc / "comm").read_text("ascii").strip()
            if program == name and (proc / "syscall").read_text("ascii").startswith("0 "):
                return


def pair(*command, client=("127.0.0.1",), server=(), port="-p", fault=""):
    """The two ends of a program that talks to itself over the loopback; their outputs."""
    if shutil.which(command[0]) is None:
        raise unittest.SkipTest(f"{command[0]} is not installed")
    own = [PROGRAM, "run", "--quiet", "--", *command]
    own += [port, free_port()] if port else []
    ask = [*own, *client]
    server = subprocess.Popen([*own, *server], env=environment("lo", fault), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + LIMIT_S
    if command[0] in ("ucmatose", "udaddy"):
        until_it_waits_for_callers(server, command[0])
    try:
        while True:  # the server may not listen yet
            client = subprocess.run(ask, env=environment("lo", fault), text=True,
                                    capture_output=True, timeout=LIMIT_S, check=False)
            early = re.search("onnect|REJECTED", client.stdout + client.stderr) and \
                server.poll() is None
            if client.returncode == 0 or not early or time.monotonic() > deadline:
                break
        output, _ = server.communicate(timeout=LIMIT_S)
    finally:
        if server.poll() is None:
            server.kill()
    return (server.returncode, output), (client.returncode, client.stdout + client.stderr)


class Programs(unittest.TestCase):
    def good(self, *command, **ends):
        for code, output in pair(*command, **ends):
            self.assertEqual(code, 0, output)
        return output

    def test_devices_are_listed_beside_others(self):
        if shutil.which("ibv_devices") is None:
            self.skipTest("ibv_devices is not installed")
        listed = subprocess.run([PROGRAM, "run", "--quiet", "--", "ibv_devices"], text=True,
                                env=environment("lo"), capture_output=True, check=True)
        self.assertIn("pacecar_lo", listed.stdout)
        told = subprocess.run([PROGRAM, "run", "--quiet", "--", "ibv_devinfo", "-v"], text=True,
                              env=environment("lo"), capture_output=True, check=True)
        for line in ("PORT_ACTIVE", "Ethernet", "::ffff:127.0.0.1", "RoCE v2", "ATOMIC_HCA"):
            self.assertIn(line, told.stdout)

    def test_what_must_be_encrypted_is_not_sent(self):
        shown = subprocess.run([PROGRAM, "run", "--nic", "soft:udp:lo", "--", "ibv_devinfo"],
                               env=environment("lo") | {"PACECAR_SECURITY": "encrypt"},
                               capture_output=True, text=True, timeout=LIMIT_S)
        self.assertNotEqual(shown.returncode, 0)
        self.assertIn("PACECAR_SECURITY=encrypt does not allow: choose", shown.stderr)

    def test_ping_pong_of_connections_with_values_checked(self):
        for flags in ((), ("-e",), ("-s", "65536", "-n", "200", "-m", "4096"), ("-s", "1")):
            with self.subTest(flags):
                self.good("ibv_rc_pingpong", "-g", "0", "-c", *flags)

    def test_ping_pong_of_datagrams(self):
        for flags in ((), ("-e",)):
            with self.subTest(flags):
                self.good("ibv_ud_pingpong", "-g", "0", "-c", *flags)

    def test_ping_pong_over_unreliable_connections(self):
        self.good("ibv_uc_pingpong", "-g", "0", "-c")

    def test_ping_pong_over_shared_receives(self):
        self.good("ibv_srq_pingpong", "-g", "0", "-c", "-q", "4")

    def test_perftest(self):
        for command in (("ib_write_bw", "-a", "-n", "100"), ("ib_read_bw", "-n", "200"),
                        ("ib_send_bw", "-a", "-n", "100"), ("ib_send_bw", "-e", "-n", "200"),
                        ("ib_send_bw", "-c", "UD", "-n", "200"),
                        # All of it fits into the socket's buffer: UC repeats nothing, and perftest
                        # waits for each message.
                        ("ib_send_bw", "-c", "UC", "-s", "1024", "-n", "100"),
                        ("ib_write_lat", "-c", "UC", "-n", "200"), ("ib_atomic_bw", "-n", "200"),
                        ("ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "200"),
                        ("ib_write_bw", "-q", "4", "-n", "200"), ("ib_write_lat", "-n", "200"),
                        ("ib_send_lat", "-n", "200"), ("ib_send_lat", "-c", "UD", "-n", "200"),
                        ("ib_read_lat", "-n", "200"), ("ib_atomic_lat", "-n", "200")):
            with self.subTest(command):
                self.good(*command, "-F")


    def test_connections_by_address(self):
        there = ("-s", "127.0.0.1")
        for command, client, server, port in (
                (("rping", "-C", "20", "-v"), ("-c", "-a", "127.0.0.1"), ("-s",), "-p"),
                (("rping", "-C", "5", "-S", "60000"), ("-c", "-a", "127.0.0.1"),
                 ("-s", "-a", "127.0.0.1"), "-p"),
                (("rping", "-C", "5", "-q"), ("-c", "-a", "127.0.0.1"), ("-s",), "-p"),
                (("ucmatose", "-c", "10", "-C", "10"), there, (), "-p"),
                (("udaddy", "-c", "5"), there, (), None)):
            with self.subTest((command, client)):
                self.good(*command, client=client, server=server, port=port)

    def test_an_event_channel_goes_while_a_thread_waits_at_it(self):
        for _ in range(15):  # as rping's does, and crashed one time in ten
            self.good("rping", "-C", "2", client=("-c", "-a", "127.0.0.1"), server=("-s",))

    def test_the_end_of_a_connection_is_noticed_whatever_is_lost(self):
        """The client exits at once, so a lost message at the end is repeated while it does."""
        for seed in range(15):
            with self.subTest(seed):
                self.good("rping", "-C", "2", client=("-c", "-a", "127.0.0.1"), server=("-s",),
                          fault=f"loss=0.1,seed={seed}")

    def test_endpoints(self):
        """rdma_create_ep, where calls wait for their events."""
        if shutil.which("rdma_server") is None:
            self.skipTest("rdma_server is not installed")
        run, port = [PROGRAM, "run", "--quiet", "--"], free_port()
        with subprocess.Popen([*run, "rdma_server", "-p", port], env=environment("lo"),
                              text=True, stdout=subprocess.PIPE) as server:
            deadline = time.monotonic() + LIMIT_S
            while True:
                client = subprocess.run([*run, "rdma_client", "-s", "127.0.0.1", "-p", port],
                                        env=environment("lo"), capture_output=True, text=True,
                                        timeout=LIMIT_S, check=False)
                if client.returncode == 0 or time.monotonic() > deadline:
                    break
            self.assertEqual(client.returncode, 0, client.stderr)
            self.assertEqual(server.wait(LIMIT_S), 0, server.stdout.read())

    def test_perftest_by_address(self):
        for command in (("ib_write_bw", "-n", "200"), ("ib_read_lat", "-n", "100"),
                        ("ib_send_lat", "-n", "100", "-c", "UD"),
                        ("ib_send_bw", "-q", "4", "-n", "200")):
            with self.subTest(command):
                self.good(*command, "-F", "-R")

    def test_nobody_listens(self):
        if shutil.which("rping") is None:
            self.skipTest("rping is not installed")
        asked = subprocess.run([PROGRAM, "run", "--quiet", "--", "rping", "-c", "-a", "127.0.0.1",
                                "-p", free_port()], env=environment("lo"), text=True,
                               capture_output=True, timeout=LIMIT_S, check=False)
        self.assertNotEqual(asked.returncode, 0)
        self.assertIn("RDMA_CM_EVENT_REJECTED, error 8", asked.stdout + asked.stderr)


class TwoHosts(unittest.TestCase):
    def run_on(self, mtu, *command):
        if shutil.which(command[0]) is None:
            self.skipTest(f"{command[0]} is not installed")
        alone = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork",
                 "--kill-child"]
        if os.geteuid() == 0:
            alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no network namespaces here")
        words = " ".join(command)
        end = f"exec {PROGRAM} run --quiet -- {words}"
        done = subprocess.run(
            [*alone, "sh", "-c", TWO_HOSTS],
            env=environment("x") | {"MTU": str(mtu), "NET": "192.168.77",
                                    "PEER": f"PACECAR_NICS=soft:udp:there {end}",
                                    "SELF": f"PACECAR_NICS=soft:udp:here {end} 192.168.77.2"},
            text=True, capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_programs_between_two_namespaces(self):
        for mtu, command in ((1500, ("ibv_rc_pingpong", "-g", "0", "-c")),
                             (9000, ("ibv_rc_pingpong", "-g", "0", "-c", "-m", "4096")),
                             (1500, ("ibv_ud_pingpong", "-g", "0", "-c", "-s", "1024")),
                             (9000, ("ib_write_bw", "-a", "-n", "100", "-F")),
                             (1500, ("ib_read_bw", "-n", "100", "-F"))):
            with self.subTest((mtu, command)):
                self.run_on(mtu, *command)


if __name__ == "__main__":
    PROGRAM = os.path.realpath(sys.argv.pop(1))
    unittest.main()
