"""The software NIC on DPDK devices of two hosts with a router in between: dpdk_router_test.py
BUILD_FOLDER [unittest flags]. Skipped where namespaces cannot be made.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

WITH_ROUTER = pathlib.Path(__file__).resolve().parents[1] / "support/with_router"
SKIPPED = 77
PROGRAM = ""

# Host 1 runs the server; host 2 starts its client once the server listens. TO: the server's address
# for TCP.
PAIR = """
export PACECAR_NICS=$(eval echo "\\"$NIC\\"")
if [ "$ROUTER_HOST" = 1 ]; then
  "$PACECAR" bw & server=$!
  until ss -Hltn | grep -q :18515 || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
  touch "$FOLDER/begun"
  wait $server
else
  until [ -e "$FOLDER/begun" ]; do sleep 0.05; done
  exec "$PACECAR" bw "$TO" -s 100000 -n 50 --data_validation
fi
"""


def transfer(nic, to, **environment):
    """Runs a transfer and returns it; `nic` may contain $ROUTER_HOST."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([WITH_ROUTER, "timeout", str(LIMIT_S), "sh", "-c", PAIR],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, **environment, "PACECAR": PROGRAM, "NIC": nic,
                                   "TO": to, "FOLDER": folder})
    if done.returncode == SKIPPED:
        raise unittest.SkipTest(done.stderr.strip())
    return done


def skip_without_flower():
    """net_tap implements its flow rules by flower filters of the kernel's traffic control."""
    probe = "tc qdisc add dev net0 ingress && tc filter add dev net0 ingress flower"
    done = subprocess.run([WITH_ROUTER, "sh", "-c", probe], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(f"this kernel has no flower rules: {done.stderr.strip()}")


class Routed(unittest.TestCase):
    def assert_arrives(self, *arguments, **environment):
        done = transfer(*arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("100000", done.stdout)

    def test_gateway_from_the_kernels_routes(self):
        self.assert_arrives("soft:dpdk:net_af_packet0,iface=net0", "192.0.2.1")

    def test_gateway_from_the_kernels_routes_ipv6(self):
        self.assert_arrives(
            "soft:dpdk:net_af_packet0,iface=net0,address=2001:db8:$ROUTER_HOST::1", "192.0.2.1")

    def test_configured_gateway_is_used(self):
        # Addresses and networks that the kernel does not know.
        self.assert_arrives("soft:dpdk:net_af_packet0,iface=net0,bootstrap=direct0,"
                            "address=10.0.$ROUTER_HOST.7/24,gateway=10.0.$ROUTER_HOST.254",
                            "203.0.113.1")

    def test_shared_device_is_steered(self):
        # Connections, ARP and neighbour discovery stay with the kernel, on the same interface.
        skip_without_flower()
        for family, nic in (("IPv4", "soft:dpdk:net_tap0,remote=net0"),
                            ("IPv6", "soft:dpdk:net_tap0,remote=net0,"
                                     "address=2001:db8:$ROUTER_HOST::1")):
            with self.subTest(family=family):
                self.assert_arrives(nic, "192.0.2.1")


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1), "bench/pacecar").resolve())
    unittest.main()
