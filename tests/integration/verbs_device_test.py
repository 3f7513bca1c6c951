"""Runs programs of libibverbs over the verbs device: verbs_device_test.py PROGRAM [flags].

PROGRAM is pacecar. The programs are those of Debian's ibverbs-utils, perftest and rdmacm-utils;
tests of programs that are not installed are skipped. Both ends run on this machine: over the
loopback, and in two network namespaces where this user may make them.
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

from limits import LIMIT_S, draws, further

PATIENT = ("-u", "20")  # perftest's queue pairs wait 4 s, 8 times: a busy peer answers late
PROGRAM = ""

# As root of two namespaces that a veth pair joins, runs one end, then the other.
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
    """A port outside of the ephemeral range: one of that range could be in TIME_WAIT, where no
    program can listen."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(20000, 32000)))
                return str(probe.getsockname()[1])
            except OSError:
                continue


def until_server_listens(server, name):
    """Waits until the server reads its first event, and so listens. A client of many connections
    that starts earlier is refused some of them and waits for ever for the others."""
    proc = pathlib.Path(f"/proc/{server.pid}")
    deadline = time.monotonic() + LIMIT_S
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            program = (proc / "comm").read_text("ascii").strip()
            if program == name and (proc / "syscall").read_text("ascii").startswith("0 "):
                return


def pair(*command, client=("127.0.0.1",), server=(), port="-p", fault=""):
    """Runs both ends of a program over the loopback; (exit code, output) of server and client."""
    if shutil.which(command[0]) is None:
        raise unittest.SkipTest(f"{command[0]} is not installed")
    own = [PROGRAM, "run", "--quiet", "--", *command]
    own += [port, free_port()] if port else []
    ask = [*own, *client]
    server = subprocess.Popen([*own, *server], env=environment("lo", fault), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + LIMIT_S
    if command[0] in ("ucmatose", "udaddy"):
        until_server_listens(server, command[0])
    try:
        while True:  # the server may not listen yet
            client = subprocess.run(ask, env=environment("lo", fault), text=True,
                                    capture_output=True, timeout=LIMIT_S, check=False)
            early = re.search("onnect|REJECTED", client.stdout + client.stderr) and \
                server.poll() is None
            if client.returncode == 0 or not early or time.monotonic() > deadline:
                break
            time.sleep(0.05)
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

    def test_the_device_is_listed(self):
        if shutil.which("ibv_devices") is None:
            self.skipTest("ibv_devices is not installed")
        listed = subprocess.run([PROGRAM, "run", "--quiet", "--", "ibv_devices"], text=True,
                                env=environment("lo"), capture_output=True, check=True)
        self.assertIn("pacecar_lo", listed.stdout)
        shown = subprocess.run([PROGRAM, "run", "--quiet", "--", "ibv_devinfo", "-v"], text=True,
                              env=environment("lo"), capture_output=True, check=True)
        for line in ("PORT_ACTIVE", "Ethernet", "::ffff:127.0.0.1", "RoCE v2", "ATOMIC_HCA"):
            self.assertIn(line, shown.stdout)

    def test_encrypt_is_refused(self):
        shown = subprocess.run([PROGRAM, "run", "--nic", "soft:udp:lo", "--", "ibv_devinfo"],
                               env=environment("lo") | {"PACECAR_SECURITY": "encrypt"},
                               capture_output=True, text=True, timeout=LIMIT_S)
        self.assertNotEqual(shown.returncode, 0)
        self.assertIn("PACECAR_SECURITY=encrypt does not allow: choose", shown.stderr)

    def test_a_cluster_key_that_has_no_effect_is_named(self):
        shown = subprocess.run([PROGRAM, "run", "--nic", "soft:udp:lo", "--", "ibv_devinfo"],
                               env=environment("lo") | {"PACECAR_KEY_FILE": "/etc/pacecar.key"},
                               capture_output=True, text=True, timeout=LIMIT_S)
        self.assertIn("PACECAR_KEY_FILE has no effect on verbs programs", shown.stderr)

    def test_rc_ping_pong_checks_the_payload(self):
        for flags in ((), ("-e",), ("-s", "65536", "-m", "4096"), *further(("-s", "1"))):
            with self.subTest(flags):
                self.good("ibv_rc_pingpong", "-g", "0", "-c", "-n", "200", *flags)

    def test_ud_ping_pong_checks_the_payload(self):
        for flags in ((), ("-e",)):
            with self.subTest(flags):
                self.good("ibv_ud_pingpong", "-g", "0", "-c", "-n", "200", *flags)

    def test_uc_ping_pong_checks_the_payload(self):
        self.good("ibv_uc_pingpong", "-g", "0", "-c", "-n", "200")

    def test_srq_ping_pong_checks_the_payload(self):
        self.good("ibv_srq_pingpong", "-g", "0", "-c", "-n", "200", "-q", "4")

    def test_perftest_programs_succeed(self):
        # Both ends of most spin: on a busy machine each turn around takes a turn of the scheduler.
        # With -a they take 0.2 s for each size before the first byte.
        for command in (("ib_write_bw", "-s", "8388608", "-n", "10"), ("ib_read_bw", "-n", "100"),
                        ("ib_send_bw", "-s", "65537", "-n", "100"),
                        ("ib_send_bw", "-e", "-n", "200"),
                        ("ib_send_bw", "-c", "UD", "-n", "100", "-x", "3"),
                        # All messages fit into the socket's buffer: UC retransmits nothing, and
                        # perftest waits for each message.
                        ("ib_send_bw", "-c", "UC", "-s", "1024", "-n", "100"),
                        ("ib_write_lat", "-c", "UC", "-n", "20"), ("ib_atomic_bw", "-n", "100"),
                        ("ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "100"),
                        ("ib_write_bw", "-q", "4", "-n", "100", "-x", "3"),
                        ("ib_send_lat", "-n", "20"),
                        *further(
                            ("ib_write_bw", "-a", "-n", "100"), ("ib_send_bw", "-a", "-n", "100"),
                            ("ib_write_lat", "-n", "200"), ("ib_send_lat", "-n", "200"),
                            ("ib_send_lat", "-c", "UD", "-n", "200"),
                            ("ib_read_lat", "-n", "200"), ("ib_atomic_lat", "-n", "200"))):
            with self.subTest(command):
                self.good(*command, "-F", *PATIENT)

    def test_rdma_cm_programs_succeed(self):
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

    def test_many_connections_find_the_second_process_of_an_address(self):
        """Each asks all processes of the address, and the datagrams for all do not fit at once."""
        if shutil.which("ucmatose") is None:
            self.skipTest("ucmatose is not installed")
        first = subprocess.Popen([PROGRAM, "run", "--quiet", "--", "ucmatose", "-p", free_port()],
                                 env=environment("lo"), stdout=subprocess.DEVNULL)
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        until_server_listens(first, "ucmatose")
        self.good("ucmatose", "-c", "60", "-C", "2", client=("-s", "127.0.0.1"))

    def test_an_event_channel_may_be_destroyed_while_a_thread_waits(self):
        for _ in range(draws(15)):  # rping does so; one run in ten used to crash
            self.good("rping", "-C", "2", client=("-c", "-a", "127.0.0.1"), server=("-s",))

    def test_both_ends_notice_a_disconnect_through_loss(self):
        """The client exits right after the disconnect, while a lost last message is repeated."""
        for seed in range(draws(15)):
            with self.subTest(seed):
                self.good("rping", "-C", "2", client=("-c", "-a", "127.0.0.1"), server=("-s",),
                          fault=f"loss=0.1,seed={seed}")

    def test_rdma_create_ep_programs_succeed(self):
        """With rdma_create_ep, calls wait for their events."""
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

    def test_perftest_programs_succeed_over_rdma_cm(self):
        for command in (("ib_write_bw", "-n", "100"), ("ib_read_lat", "-n", "20"),
                        ("ib_send_lat", "-n", "20", "-c", "UD"),
                        ("ib_send_bw", "-q", "4", "-n", "100")):
            with self.subTest(command):
                self.good(*command, "-F", "-R")

    def test_a_connect_without_a_listener_is_rejected(self):
        if shutil.which("rping") is None:
            self.skipTest("rping is not installed")
        asked = subprocess.run([PROGRAM, "run", "--quiet", "--", "rping", "-c", "-a", "127.0.0.1",
                                "-p", free_port()], env=environment("lo"), text=True,
                               capture_output=True, timeout=LIMIT_S, check=False)
        self.assertNotEqual(asked.returncode, 0)
        self.assertIn("RDMA_CM_EVENT_REJECTED, error 8", asked.stdout + asked.stderr)

    def test_a_connect_with_a_larger_mtu_is_rejected(self):
        """No answer could tell the client of the server's MTU: its first long message would end the
        connection."""
        if shutil.which("rping") is None:
            self.skipTest("rping is not installed")
        run = [PROGRAM, "run", "--quiet", "--", "rping", "-a", "127.0.0.1", "-p", free_port()]
        server = subprocess.Popen([*run, "-s"], env=environment("lo") | {"PACECAR_MTU": "1K"},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for mtu, refused in (("4K", True), ("512", False)):
            output = "error 8"
            while "error 8" in output:  # the server does not listen yet
                asked = subprocess.run([*run, "-c", "-C", "2"], text=True, timeout=LIMIT_S,
                                       env=environment("lo") | {"PACECAR_MTU": mtu},
                                       capture_output=True, check=False)
                output = asked.stdout + asked.stderr
            self.assertEqual("RDMA_CM_EVENT_REJECTED, error 26" in output, refused, output)
            self.assertEqual(asked.returncode != 0, refused, output)


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

    def test_programs_succeed_between_two_namespaces(self):
        ping_pong = ("-g", "0", "-c", "-n", "200")
        for mtu, command in ((1500, ("ibv_rc_pingpong", *ping_pong)),
                             (1500, ("ibv_ud_pingpong", *ping_pong, "-s", "1024")),
                             (9000, ("ib_write_bw", "-a", "-n", "10", "-F", *PATIENT)),
                             *further((9000, ("ibv_rc_pingpong", *ping_pong, "-m", "4096")),
                                      (9000, ("ib_write_bw", "-a", "-n", "100", "-F", *PATIENT)),
                                      (1500, ("ib_read_bw", "-n", "100", "-F")))):
            with self.subTest((mtu, command)):
                self.run_on(mtu, *command)


if __name__ == "__main__":
    PROGRAM = os.path.realpath(sys.argv.pop(1))
    unittest.main()
