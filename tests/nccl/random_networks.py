"""Networks of hosts drawn by a seed: addresses, cables, MTUs, NICs and firewalls; and real jobs on
them. A job whose network has no fault must succeed; any other succeeds, or names the fault."""

import contextlib
import dataclasses
import itertools
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

import arms
import job
import namespaces
from exchange import Failed, Process, wait_until
from nccl_job import NEW, ranks_of

LOCAL = "lan"  # NCCL's own bootstrap; every host has it
MTUS = (1280, 1500, 4096, 9000)
PORTS = "40000-40063"
ADVICE = "routes by destination"
# With these faults every drawn network recovers; other faults may also end the job with a message.
HARMLESS = ("none", "containers", "link-local", "ports", "dark", "black hole", "deprecated",
            "only link-local")
FAULTS = (*HARMLESS, "no UDP", "own rule", "no TCP", "TCP rejected", "no NIC", "security",
          "link down", "other plugin")


@dataclasses.dataclass
class Network:
    seed: int
    hosts: int
    layout: str  # flat, rails, routed, cables between all hosts, ring of cables
    nics: int  # of each host in addition to LOCAL
    joined: str  # between the NICs' names in PACECAR_NICS: "," or "+"; "": PACECAR_NICS is unset
    family: int  # 4 or 6
    mtus: list  # of each host
    fault: str
    kind: str = "soft:udp"  # of the NICs
    settings: dict = dataclasses.field(default_factory=dict)  # of all ranks
    program: str = "checked_rank"

    def __str__(self):
        return (f"seed {self.seed}: {self.hosts} hosts, {self.layout} of {self.nics}, "
                f"NICs '{self.joined}', IPv{self.family}, MTU {self.mtus}, {self.fault}")


def draw(seed):
    rng = random.Random(seed)
    hosts = rng.choice((2, 2, 3))
    layout = rng.choice(("flat", "rails", "cables"))
    nics = hosts - 1 if layout == "cables" else rng.randint(1, 3)
    mtus = [rng.choice(MTUS)] * hosts if rng.random() < 0.7 else rng.choices(MTUS, k=hosts)
    return Network(seed=seed, hosts=hosts, layout=layout, nics=nics,
                   joined=rng.choice((",", "+", ",", "")),
                   family=6 if layout == "flat" and rng.random() < 0.3 else 4,
                   mtus=mtus if layout == "flat" else [mtus[0]] * hosts,
                   fault=rng.choice(FAULTS[:1] * 6 + FAULTS[1:]))


class Built:
    def __init__(self, network):
        self.network = network
        self.hub = f"pacecar-{os.getpid()}-hub"
        self.members = [f"pacecar-{os.getpid()}-host{number}" for number in range(network.hosts)]
        self.names = [f"net{index}" for index in range(network.nics)]
        self.routes = {}  # of each cable, by the beginning of its addresses: its ends' by host

    def build(self):
        network = self.network
        self.bridge("lan")
        for number, member in enumerate(self.members):
            self.plug(number, LOCAL, "lan", f"192.0.2.{number + 1}/24", 1500)
            if network.family == 6:
                settings = ["all.disable_ipv6=0", "default.disable_ipv6=0"]
                if network.kind != "soft:udp":  # libfabric does not wait for a tentative address
                    settings.append("default.accept_dad=0")
                for setting in settings:
                    namespaces.command(*namespaces.prefix(member), "sysctl", "-qw",
                                       f"net.ipv6.conf.{setting}")
        only_link_local = network.family == 6 and network.fault == "only link-local"
        if only_link_local:  # the hosts number their interfaces differently
            self.inside(0, "ip", "link", "add", "extra0", "type", "bridge")
        if network.layout in ("cables", "ring"):
            self.cables()
            return
        if network.layout == "routed":
            self.routed()
            return
        for index, name in enumerate(self.names):
            rail = index if network.layout == "rails" else 0
            if index == 0 or rail > 0:
                self.bridge(f"rail{rail}")
            for number in range(network.hosts):
                place = 16 * (index if rail == 0 else 0) + number + 1
                address = (f"fd00::{place:x}/64" if network.family == 6
                           else f"198.18.{rail}.{place}/24")
                if only_link_local:
                    address = ""
                self.plug(number, name, f"rail{rail}", address, network.mtus[number])

    def bridge(self, name):
        namespaces.command("ip", "-n", self.hub, "link", "add", name, "type", "bridge")
        namespaces.command("ip", "-n", self.hub, "link", "set", name, "mtu", "9000", "up")

    def plug(self, number, name, bridge, address, mtu):
        port = f"{name}-{number}"
        namespaces.pair(self.members[number], name, self.hub, port, mtu)
        namespaces.command("ip", "-n", self.hub, "link", "set", port, "mtu", "9000", "master",
                           bridge)
        if not address:
            return
        further = ("nodad",) if ":" in address else ()
        namespaces.command("ip", "-n", self.members[number], "address", "add", address, "dev", name,
                           *further)

    def cables(self):
        """One between each two hosts, or to the next host of the ring; each a subnet of its own, at
        the next free NIC of both."""
        free = [iter(self.names) for _ in self.members]
        ring = self.network.layout == "ring"
        for pair in itertools.combinations(range(len(self.members)), 2):
            if ring and pair[1] - pair[0] not in (1, len(self.members) - 1):
                continue
            ends = [next(free[number]) for number in pair]
            namespaces.pair(self.members[pair[0]], ends[0], self.members[pair[1]], ends[1],
                            self.network.mtus[0])
            cable = f"198.19.{len(self.routes)}"
            self.routes[cable] = {number: f"{cable}.{place + ring}"
                                  for place, number in enumerate(pair)}
            for number, name in zip(pair, ends):
                namespaces.give_address(self.members[number], name, self.routes[cable][number] +
                                        ("/30" if ring else "/31"))

    def routed(self):
        """Each NIC has a subnet of its own, whose router is the hub. Without a fault each NIC has a
        table of routes of its own; else all packets leave by the first NIC."""
        namespaces.command(*namespaces.prefix(self.hub), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number, member in enumerate(self.members):
            for index, name in enumerate(self.names):
                subnet, port = f"198.18.{16 * number + index}", f"{name}-{number}"
                namespaces.pair(member, name, self.hub, port, self.network.mtus[number])
                namespaces.give_address(member, name, f"{subnet}.2/31")
                namespaces.give_address(self.hub, port, f"{subnet}.3/31")
                route = ("ip", "route", "add", "198.18.0.0/16", "via", f"{subnet}.3")
                if self.network.fault == "none":
                    self.inside(number, "ip", "rule", "add", "from", f"{subnet}.2", "table",
                                str(100 + index))
                    self.inside(number, *route, "table", str(100 + index))
                elif index == 0:
                    self.inside(number, *route)

    def forward(self):
        """Hosts reach the cables that they lack by the first host that has both."""
        for number in range(len(self.members)):
            self.inside(number, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for cable, ends in self.routes.items():
                gateway = next((own[other] for own in self.routes.values() for other in own
                                if number in own and number not in ends and other in ends), None)
                if gateway:
                    self.inside(number, "ip", "route", "add", f"{cable}.0/30", "via", gateway)

    def forwarded(self):
        """Packets that hosts have passed on for others."""
        return sum(int(dict(zip(*(line.split() for line in self.read(number, "/proc/net/snmp")
                                  if line.startswith("Ip:"))))["ForwDatagrams"])
                   for number in range(len(self.members)))

    def inside(self, number, *argv):
        namespaces.command(*namespaces.prefix(self.members[number]), *argv)

    def read(self, number, file):
        done = subprocess.run([*namespaces.prefix(self.members[number]), "cat", file], text=True,
                              stdout=subprocess.PIPE, check=True)
        return done.stdout.splitlines()

    def disturb(self):
        """Whatever of the fault is not in the ranks' environment."""
        fault = self.network.fault
        rules = {"no UDP": ("-p", "udp", "-j", "DROP"),
                 "no TCP": ("-p", "tcp", "-i", "net+", "-j", "DROP"),
                 "TCP rejected": ("-p", "tcp", "-i", "net+", "-j", "REJECT"),
                 "black hole": ("-p", "udp", "-m", "length", "--length", "1281:65535", "-j",
                                "DROP")}
        if fault in rules:
            self.inside(0, "iptables", "-A", "INPUT", *rules[fault])
            if self.network.family == 6 and fault != "black hole":
                self.inside(0, "ip6tables", "-A", "INPUT", *rules[fault])
        elif fault == "own rule":
            for table in ("iptables", "ip6tables"):
                self.inside(0, table, "-A", "OUTPUT", "-o", "net+", "-p", "udp", "-j", "REJECT")
        elif fault == "deprecated" and self.network.family == 6:
            for number in range(len(self.members)):
                for name in self.names:
                    self.inside(number, "ip", "address", "add", f"2001:db8:{number}::1/64", "dev",
                                name, "nodad", "preferred_lft", "0")
        elif fault == "ports":
            for number in range(len(self.members)):
                for protocol in ("tcp", "udp"):
                    for table in ("iptables", "ip6tables"):
                        self.inside(number, table, "-A", "INPUT", "-i", "net+", "-p", protocol,
                                    "!", "--dport", PORTS.replace("-", ":"), "-m", "conntrack",
                                    "--ctstate", "NEW", "-j", "DROP")
        elif fault in ("containers", "dark"):
            for number in range(len(self.members)):
                self.inside(number, "ip", "link", "add", "extra0", "type", "bridge")
                self.inside(number, "ip", "address", "add", "172.17.0.1/16", "dev", "extra0")
                if fault == "dark":
                    continue
                self.inside(number, "ip", "link", "add", "extra1", "type", "veth", "peer", "extra2")
                self.inside(number, "ip", "link", "set", "extra1", "master", "extra0")
                for name in ("extra0", "extra1", "extra2"):
                    self.inside(number, "ip", "link", "set", name, "up")
        elif fault == "link-local":
            for number in range(len(self.members)):
                self.inside(number, "ip", "link", "add", "extra0", "type", "veth", "peer", "extra1")
                for name in ("extra0", "extra1"):
                    self.inside(number, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=0")
                    self.inside(number, "ip", "link", "set", name, "up")
        elif fault == "forwarding":
            self.forward()
        elif fault == "default route":
            namespaces.command("ip", "-n", self.hub, "address", "add", "192.0.2.254/24", "dev",
                               "lan")
            for number in range(len(self.members)):
                self.inside(number, "ip", "route", "add", "default", "via", "192.0.2.254")
        elif fault == "link down":
            self.inside(0, "ip", "link", "set", self.names[0], "down")

    def environment(self, number):
        chosen = self.network.joined.join(f"{self.network.kind}:{name}" for name in self.names)
        values = {"PACECAR_NICS": chosen, "NCCL_SOCKET_IFNAME": LOCAL}
        fault = self.network.fault if number == 0 else ""
        if fault == "no NIC":
            values["PACECAR_NICS"] = "soft:udp:net9"
        elif fault == "security":
            values["PACECAR_SECURITY"] = "off"
        elif fault == "other plugin":
            values.update(NCCL_NET_PLUGIN="none", NCCL_NET="Socket")
        if self.network.fault == "ports":
            values["PACECAR_PORTS"] = PORTS
        if not self.network.joined:  # as a user who sets nothing
            del values["PACECAR_NICS"], values["NCCL_SOCKET_IFNAME"]
        return values


@dataclasses.dataclass
class Outcome:
    worked: bool
    warnings: list  # of each rank the first; empty: none
    known_after_s: float
    silent: int = 0  # ranks without a warning that did not end
    advice: tuple = ()  # of each rank the first warning that packets do not leave by their NIC
    forwarded: int = 0  # packets that hosts passed on for others

    @property
    def advised(self):
        return all(self.advice)


def warnings_of(rank):
    return [line.split("WARN", 1)[1].strip() for line in job.nccl_log(rank).splitlines()
            if "WARN" in line and "Pacecar" in line]


def warning_of(rank):
    """The first that may be why a job does not work."""
    return next((text for text in warnings_of(rank) if ADVICE not in text), "")


def ranks_on(built, program, arguments, folder, **further):
    """The job.Rank of each host."""
    made = []
    for number, member in enumerate(built.members):
        rank = ranks_of(program, NEW, arms.parse("soft:udp:net0"), len(built.members), arguments,
                        folder, **{**built.environment(number), **further})[number]
        if not built.network.joined:
            for variable in ("PACECAR_NICS", "NCCL_SOCKET_IFNAME"):
                rank.environment.pop(variable, None)
        made.append(dataclasses.replace(rank, prefix=namespaces.prefix(member)))
    return made


def run(network, limit_s, patience_s):
    """Runs a job there; Failed when it neither works nor says why within `limit_s`. After the first
    warning the ranks have `patience_s` to end."""
    built = Built(network)
    with namespaces.made([built.hub, *built.members]), tempfile.TemporaryDirectory() as name:
        built.build()
        built.disturb()
        size = [1 << 16] if network.program == "checked_rank" else []
        made = ranks_on(built, network.program, [Path(name) / "id", network.seed, 6, *size],
                        Path(name), PACECAR_TIMEOUT="10s",  # refused connections end soon
                        **network.settings)
        with contextlib.ExitStack() as stack:
            begin = time.monotonic()
            ranks = [stack.enter_context(Process(rank.prefix, rank.argv, rank.environment))
                     for rank in made]

            def all_well():
                return all(rank.ended() and rank.ends_well(0) for rank in ranks)

            def known():
                return all_well() or any(map(warning_of, made)) or all(r.ended() for r in ranks)

            if not wait_until(known, limit_s):
                raise Failed(f"{network}: nothing for {limit_s:g} s")
            after_s = time.monotonic() - begin
            wait_until(lambda: all(rank.ended() for rank in ranks), patience_s)
            warnings = list(map(warning_of, made))
            if not all_well() and not any(warnings):
                raise Failed(job.failure_text(made, ranks, range(len(ranks)), limit_s))
            silent = sum(not warning and not rank.ended()
                         for warning, rank in zip(warnings, ranks))
            advice = tuple(next((text for text in warnings_of(rank) if ADVICE in text), "")
                           for rank in made)
            return Outcome(all_well(), warnings, after_s, silent, advice, built.forwarded())
