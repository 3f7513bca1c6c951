"""Real jobs on networks of random_networks.py: drawn by seeds, and chosen ones."""

import os
import pathlib
import tempfile
import threading
from concurrent import futures

import arms
import job
import namespaces
import outages
import random_networks
from exchange import Failed, wait_until
from limits import ALL, LIMIT_S
from nccl_job import BUILD, IN_GPU_MEMORY, Job


class RandomNetworks(Job):
    """Hosts, addresses, cables, MTUs, NICs and firewalls by a seed."""

    def test_seeds(self):
        """All 200 take a quarter of an hour: each shard has its part."""
        shards, shard = (int(os.environ.get(f"GTEST_{what}", default)) for what, default in
                         (("TOTAL_SHARDS", 1), ("SHARD_INDEX", 0)))
        for seed in range(1 + shard, 1 + (200 if ALL else 6), shards):
            network = random_networks.draw(seed)
            with self.subTest(network=str(network)):
                outcome = self.outcome(network, 20)
                if network.fault in random_networks.HARMLESS:
                    self.assertTrue(outcome.worked, outcome.warnings)

    def outcome(self, network, patience_s=LIMIT_S):
        try:
            return random_networks.run(network, LIMIT_S, patience_s)
        except namespaces.Unavailable as why:
            self.skipTest(str(why))
        except Failed as reason:
            self.fail(str(reason))


class ChosenNetworks(RandomNetworks):
    """Networks that each show one thing."""

    test_seeds = None

    def outcome_of(self, **what):
        return self.outcome(random_networks.Network(
            **{"seed": 1, "hosts": 2, "layout": "flat", "nics": 1, "joined": ",", "family": 4,
               "mtus": [1500] * 3, "fault": "none", **what}))

    def test_what_works_without_help(self):
        ring = {"hosts": 3, "layout": "cables", "nics": 2}
        for what in (ring, {**ring, "joined": "+"}, {"fault": "ports"},
                     {"joined": "", "fault": "containers"}, {"family": 6, "fault": "deprecated"},
                     {"family": 6, "fault": "only link-local"},
                     {"family": 6, "fault": "only link-local", "kind": "ofi:tcp"}):
            with self.subTest(**what):
                outcome = self.outcome_of(**what)
                self.assertTrue(outcome.worked, outcome.warnings)

    def test_nics_of_one_subnet_work_with_advice_and_those_of_rails_without(self):
        for layout, family in (("flat", 4), ("flat", 6), ("rails", 4)):
            with self.subTest(layout=layout, family=family):
                outcome = self.outcome_of(layout=layout, family=family, nics=2)
                self.assertTrue(outcome.worked, outcome.warnings)
                self.assertEqual(outcome.advised, layout == "flat")

    def test_a_cable_between_two_hosts_goes_before_the_hosts_that_forward(self):
        for joined in ",+":
            with self.subTest(joined=joined):
                outcome = self.outcome_of(hosts=3, layout="cables", nics=2, joined=joined,
                                          fault="forwarding")
                self.assertTrue(outcome.worked, outcome.warnings)
                self.assertEqual(outcome.forwarded, 0)

    def test_hosts_without_a_cable_between_them_are_reached_through_those_that_forward(self):
        outcome = self.outcome_of(hosts=4, layout="ring", nics=2, fault="forwarding")
        self.assertTrue(outcome.worked, outcome.warnings)
        self.assertGreater(outcome.forwarded, 0)

    def test_hosts_without_a_way_between_them_are_refused_with_their_addresses_and_a_cure(self):
        for fault in ("none", "default route"):
            with self.subTest(fault=fault):
                # Without the refusal they would be tried for an hour.
                outcome = self.outcome_of(hosts=4, layout="ring", nics=2, fault=fault,
                                          settings={"PACECAR_CONNECT_TIMEOUT": "3600s"})
                self.assertFalse(outcome.worked)
                nic = r"net\d \(.*198\.19\.\d\.\d/30\)"
                for warning in outcome.warnings[0], outcome.warnings[2]:
                    self.assertRegex(warning, r"no packets reach the peer's 198\.19\.\d\.\d: "
                                              f".*{nic}.*{nic}.*PACECAR_NICS.*ip_forward=1")
                self.assertEqual(outcome.advice, ("",) * 4)

    def test_routed_networks_work_by_their_routers(self):
        for nics in 1, 2:
            outcome = self.outcome_of(hosts=3, layout="routed", nics=nics)
            self.assertTrue(outcome.worked, outcome.warnings)
            self.assertFalse(any(outcome.advice), outcome.advice)

    def test_puts_keep_the_route_of_their_nic(self):
        # Another NIC has a subnet in common with all peers, but windows are of one NIC.
        outcome = self.outcome_of(layout="routed", program="gin_rank", settings={
            **IN_GPU_MEMORY, "NCCL_CUMEM_ENABLE": "1", "PACECAR_NICS": "soft:udp:net0,soft:udp:lan",
            "NCCL_GIN_PLUGIN": str(BUILD / "net_plugin" / arms.PLUGIN_NAME)})
        self.assertTrue(outcome.worked, outcome.warnings)

    def test_a_nic_without_routes_gets_advice_that_reaches_its_peers(self):
        outcome = self.outcome_of(layout="routed", nics=2, fault="one table")
        self.assertTrue(outcome.worked, outcome.warnings)
        for number, text in enumerate(outcome.advice):
            self.assertRegex(text, f"give net1 a rule .*from 198.18.{16 * number + 1}.2 table "
                                   r"(?!100;)(\d+); ip route add default via ROUTER dev net1 "
                                   r"table \1")  # each NIC has its own table

    def test_a_host_that_refuses_its_own_packets_accuses_itself(self):
        outcome = self.outcome_of(fault="own rule")
        self.assertFalse(outcome.worked)
        self.assertRegex(outcome.warnings[0], "this host's kernel refuses packets")
        self.assertRegex(outcome.warnings[1], "no answer comes from 198.18.0.1")

    def test_what_a_firewall_drops_is_said_on_both_sides(self):
        addresses = r"198\.18\.0\.1.*198\.18\.0\.2|198\.18\.0\.2.*198\.18\.0\.1"
        tcp = (f"no connection from ({addresses}).*firewall|"
               "no peer has connected at .*\\(TCP\\).*firewall")
        for fault, said in (("no UDP", f"no answer comes from ({addresses}).*firewall"),
                            ("no TCP", tcp), ("TCP rejected", tcp)):
            with self.subTest(fault=fault):
                outcome = self.outcome_of(fault=fault)
                self.assertFalse(outcome.worked)
                for warning in outcome.warnings:
                    self.assertRegex(warning, said)


class Outages(Job):
    """Links that are down for a while, in which NCCL's threads spin, as on a GPU's host."""

    def survive(self, choices=(("net0",),), **what):
        network = random_networks.Network(
            **{"seed": 1, "hosts": 2, "layout": "flat", "nics": 1, "joined": "+", "family": 4,
               "mtus": [9000] * 2, "fault": "none", **what})
        wanted, lengths = (50 if ALL else 3), []
        while len(lengths) < wanted:
            lengths += self.outages(network, choices, len(lengths))
        print(f"{network.kind}, IPv{network.family}, {network.nics} NICs: {len(lengths)} outages "
              f"of {min(lengths)} to {max(lengths)} s", flush=True)

    def outages(self, network, choices, seed):
        built = random_networks.Built(network)
        try:
            with namespaces.made([built.hub, *built.members]), \
                    tempfile.TemporaryDirectory() as name, \
                    futures.ThreadPoolExecutor() as beside:
                built.build()
                folder = pathlib.Path(name)
                made = random_networks.ranks_on(
                    built, "lives_rank", [folder, "disturbed", 120 if ALL else 5], folder,
                    NCCL_ALGO="Ring",  # all that is used is connected before the first outage
                    CPU_GPU_SPIN="1")
                at_work, over = folder / "warm.1", threading.Event()
                addresses = [[f"fd00::{place + 1}/64"] for place in range(network.hosts)]

                def disturb():
                    wait_until(lambda: at_work.exists() or over.is_set(), LIMIT_S)
                    return outages.disturb(built.members, choices, over, seed,
                                           addresses if network.family == 6 else None)

                disturbing = beside.submit(disturb)
                try:
                    job.run(made, LIMIT_S)
                finally:
                    over.set()
                return disturbing.result()
        except namespaces.Unavailable as why:
            self.skipTest(str(why))
        except Failed as reason:
            self.fail(str(reason))

    def test_udp(self):
        self.survive()

    def test_raw_sockets(self):
        self.survive(kind="soft:raw")

    def test_ipv6_whose_address_comes_back_later(self):
        self.survive(family=6)

    def test_one_link_of_a_bond_and_both(self):
        self.survive((("net0",), ("net1",), ("net0", "net1")), layout="rails", nics=2)
