"""NCCL over the plugin: nccl_test.py BUILD [unittest flags].

Every rank is a process that looks to NCCL like a host of its own, unless a test says otherwise. It
runs on the CPU device; with NCCL_ON_GPU=PATH (NCCL's library) on this machine's GPUs.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent import futures

from nccl_job import (BUILD, IN_GPU_MEMORY, LIBRARIES, MIB, NEW, OLD, ON_GPU, Job, find_libraries,
                      ranks_of)
import arms
import bridged
import job
import linked
import namespaces
from console import interrupt
from exchange import Failed, wait_until
from limits import ALL, LIMIT_S, draws
from network_cases import ChosenNetworks, Outages, RandomNetworks  # run by name
from predicted import Predicted

SKIPPED = 77


class Collectives(Job):
    """Operations, types, reductions, sizes and places by a seed."""

    def test_two_ranks_of_each_version(self):
        for version in LIBRARIES:
            with self.subTest(version=version):
                self.check(draws(300), MIB, version=version)

    def test_protocols_and_trees(self):
        for protocol in ("LL", "LL128", "Simple"):
            with self.subTest(protocol=protocol):
                self.check(draws(60), MIB // 4, seed=2, ranks=3, NCCL_PROTO=protocol,
                           NCCL_ALGO="Ring;allreduce:Tree")

    def test_pat(self):
        # NCCL has no PAT that scales sums: those go around the ring.
        self.check(draws(60), MIB // 4, seed=6, ranks=5, NCCL_PROTO="Simple",
                   NCCL_ALGO="Ring;allgather:PAT;reducescatter:PAT,Ring")

    def test_memory_of_a_gpu_that_the_processor_may_not_touch(self):
        for further in ((), ("registered",)):
            with self.subTest(further=further):
                self.check(draws(80), MIB, *further, seed=5, **IN_GPU_MEMORY)

    def test_graphs(self):
        # NCCL keeps the work of a graph, and registers its buffers with the plugin.
        for version in LIBRARIES:
            for further in ({}, IN_GPU_MEMORY):
                with self.subTest(version=version, further=further):
                    self.check(draws(100), MIB, "graphs", seed=9, version=version, **further)

    def test_over_libfabric(self):
        self.check(draws(60), MIB, seed=4, arm="ofi:tcp:lo")

    def test_what_the_network_loses_doubles_and_mixes_up(self):
        self.check(draws(100), MIB, seed=3,
                   PACECAR_FAULT="loss=0.02,duplicate=0.04,reorder=0.04,corrupt=0.01")


class Lives(Job):
    """Communicators, as programs make, use and end them."""

    def test_split(self):
        self.live("split", ranks=3)

    def test_without_blocking(self):
        self.live("without_blocking")

    def test_registered_buffers(self):
        self.live("registered")

    def test_children(self):
        self.live("forked")

    def test_nothing_is_left_of_a_communicator(self):
        self.live("cycles", 200 if ALL else 9)

    def test_nccl_that_forgets_the_plugin_is_a_warning(self):
        # A later communicator fails if NCCL_NET names Pacecar, and else uses another network.
        for network in ("Pacecar", None):
            with self.subTest(network=network), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                made = ranks_of("lives_rank", NEW, arms.parse("soft:udp:lo"), 2,
                                [folder, "cycles", 9], folder, NCCL_DEBUG="WARN",
                                NCCL_NET_PLUGIN_REF_COUNT="0")
                for rank in made:
                    if network is None:
                        del rank.environment["NCCL_NET"]
                with contextlib.suppress(Failed):
                    job.run(made, LIMIT_S)
                for rank in made:
                    warnings = job.nccl_log(rank)
                    self.assertIn("set NCCL_NET_PLUGIN_REF_COUNT=1", warnings)
                    self.assertEqual("Failed to initialize any NET plugin" in warnings,
                                     network is not None)


class Faults(Job):
    """A job that is ended, or whose ranks are."""

    def test_abort_at_every_stage(self):
        results = self.live("aborted", 500 if ALL else 8)
        print("longest abort by stage:", *(result["longest_seconds"] for result in results))

    def test_a_killed_rank_is_an_error_for_the_others(self):
        self.expect_others_notice_a_killed_rank("soft:udp:lo")

    def test_a_rank_that_ends_while_the_job_starts_is_an_error_for_the_others(self):
        # One that nobody has heard of is waited for 60 times this long.
        quick = {"PACECAR_CONNECT_TIMEOUT": "100ms", "NCCL_CUMEM_ENABLE": "0"}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            made = ranks_of("lives_rank", NEW, arms.parse("soft:udp:lo"), 3, [folder, "late"],
                            folder, **quick)
            made[1].environment.update(
                BROKEN="rank ends as it connects",
                NCCL_NET_PLUGIN=str(BUILD / "tests/nccl/libbroken_plugin.so"),
                BROKEN_PLUGIN=made[1].environment["NCCL_NET_PLUGIN"])
            processes = []
            try:
                for rank in made:
                    processes.append(job.Process(rank.prefix, rank.argv, rank.environment))
                self.assertTrue(wait_until(lambda: all(one.ended() for one in processes), LIMIT_S))
                for process in (processes[0], processes[2]):
                    self.assertIn("ncclCommInitRankConfig: remote process exited",
                                  process.complaint())
            finally:
                for process in processes:
                    process.__exit__()

    def test_a_rank_that_comes_late_is_waited_for(self):
        # NCCL connects at the first operation: rank 1 connects and accepts while both of its
        # neighbours still wait for the late rank.
        self.live("late", 5, ranks=4, NCCL_CUMEM_ENABLE="1", PACECAR_CONNECT_TIMEOUT="1s")

    @contextlib.contextmanager
    def disturbed_job(self, seconds, **environment):
        """Two ranks at work for `seconds`, and a call of the doctor that looks at them."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            state = {"PACECAR_STATE_DIR": str(folder / "state")}
            (folder / "state").mkdir(mode=0o700)
            made = ranks_of("lives_rank", NEW, arms.parse("soft:udp:lo"), 2,
                            [folder, "disturbed", seconds], folder, **state, **environment)

            def doctor():
                return subprocess.run([BUILD / "bench/pacecar", "doctor", "--watch", "1"],
                                      env={**os.environ, **state}, capture_output=True, text=True,
                                      timeout=LIMIT_S, check=False)

            processes = [job.Process(rank.prefix, rank.argv, rank.environment) for rank in made]
            try:
                def at_work():
                    self.assertFalse(processes[1].ended(), processes[1].complaint())
                    return (folder / "warm.1").exists()

                self.assertTrue(wait_until(at_work, LIMIT_S), "no rank is at work")
                yield processes, doctor
                for process in processes:
                    self.assertTrue(process.ends_well(LIMIT_S), process.complaint())
                    self.assertGreater(json.loads(process.output().splitlines()[-1])["done"], 0)
            finally:
                for process in processes:
                    process.__exit__()

    def test_a_stopped_rank_goes_on_and_the_doctor_names_it(self):
        with self.disturbed_job(8) as (processes, doctor):
            os.kill(processes[1].pid, signal.SIGSTOP)
            time.sleep(20 if ALL else 5)
            self.assertRegex(doctor().stdout, f"Trouble: pid {processes[1].pid} .*\n"
                                              ".*it is stopped, or stuck")
            os.kill(processes[1].pid, signal.SIGCONT)

    def test_the_doctor_sees_loss_and_a_job_that_is_well(self):
        with self.disturbed_job(4) as (_, doctor):
            seen = doctor()
            self.assertEqual(seen.returncode, 0, seen.stdout)
        with self.disturbed_job(4, PACECAR_FAULT="loss=0.19") as (_, doctor):
            seen = doctor()
            self.assertEqual(seen.returncode, 1, seen.stdout)
            self.assertIn("was sent again: packets are lost", seen.stdout)


class VirtualMemory(Job):
    """CUDA's virtual memory, where NCCL then has its own: NCCL_CUMEM_ENABLE=1."""

    ON = {"NCCL_CUMEM_ENABLE": "1"}
    ON_GPU = {**ON, "CPU_GPU_TRAP": "1", "PACECAR_GPU": "staged", "NCCL_NET_GDR_LEVEL": "SYS"}

    def test_two_ranks_of_each_version(self):
        for version in LIBRARIES:
            with self.subTest(version=version):
                self.check(draws(40), MIB, "of_nccl", seed=10, version=version, **self.ON_GPU)


class LivesOfVirtualMemory(Job):
    """Communicators that NCCL connects only when they are used, as it does with such memory."""

    def test_memory_of_hosts_that_ranks_share(self):
        for version in LIBRARIES:
            with self.subTest(version=version):
                self.check(draws(60), MIB // 4, seed=11, version=version, ranks=4,
                           hosts=[0, 0, 1, 1], NCCL_CUMEM_HOST_ENABLE="1", **VirtualMemory.ON)

    def test_all(self):
        for scenario, number, ranks in (("cycles", 20, 2), ("aborted", 40, 2), ("split", 0, 3),
                                        ("without_blocking", 0, 2), ("registered", 0, 2),
                                        ("forked", 0, 2), ("threads", 4, 2)):
            with self.subTest(scenario=scenario):
                self.live(scenario, number, ranks=ranks, **VirtualMemory.ON)


@unittest.skipIf(ON_GPU, "these know the structures of one version of NCCL")
class Windows(Job):
    """Windows that ranks put into by NCCL's GIN, whose kernels the ranks play."""

    def with_gin(self, **environment):
        return {**VirtualMemory.ON_GPU,
                "NCCL_GIN_PLUGIN": str(BUILD / "net_plugin" / arms.PLUGIN_NAME), **environment}

    def test_collectives_of_symmetric_memory(self):
        self.check(draws(40), MIB, "symmetric", seed=12, **self.with_gin())

    def puts(self, steps, seed, **how):
        results = self.run_job("gin_rank", ["{folder}/id", seed, steps], **how)
        checked = sum(result["checked"] for result in results)
        self.assertGreater(checked, 0)
        print(f"{checked} puts checked", flush=True)

    def test_puts(self):
        self.puts(draws(15), 3, ranks=3, **self.with_gin())

    def test_puts_over_a_network_that_loses_and_mixes_up(self):
        self.puts(draws(10), 4, **self.with_gin(
            PACECAR_FAULT="loss=0.02,duplicate=0.04,reorder=0.04"))

    def test_a_killed_rank_is_an_error_for_those_who_put(self):
        self.outlive("gin_rank", ["{folder}/id", "5", "3", "killed"], "soft:udp:lo",
                     **self.with_gin())


class Broken(Job):
    """A plugin that is broken on purpose: NCCL or the checks of these tests notice it."""

    FAULTS = ("handle is changed", "nobody is accepted", "registration is too short",
              "registration ends at once", "send fails", "test fails", "message is lost",
              "messages change places", "message comes twice", "end of the message is missing",
              "end of the message is late", "byte is changed", "halves change places",
              "request of a send is not returned", "request of a receive is not returned",
              "send is done too early", "receive is done too early")
    SEEN_WHEN_FLUSHED = ("size is 0", "flush is left out")
    UNSEEN = "size is too large"  # NCCL takes sizes only to decide whether to flush
    LEAST_S = 15  # that a job is given before it counts as stopped; on a busy machine more
    FLUSHED = {**IN_GPU_MEMORY, "NCCL_NET_FORCE_FLUSH": "1"}

    def ends(self, fault, limit_s=LIMIT_S, **environment):
        """How a job ends: "well", or why it does not. Without an end within the limit it hangs."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            made = ranks_of("checked_rank", NEW, arms.parse("soft:udp:lo"), 2,
                            [folder / "id", 9, 60, 16 * MIB], folder, BROKEN=fault,
                            NCCL_NET_PLUGIN=str(BUILD / "tests/nccl/libbroken_plugin.so"),
                            BROKEN_PLUGIN=str(BUILD / "net_plugin" / arms.PLUGIN_NAME),
                            # Retransmissions show that a buffer was in use.
                            PACECAR_FAULT="loss=0.05", **environment)
            try:
                job.run(made, limit_s)
            except Failed as reason:
                return str(reason).splitlines()[0]
        return "well"

    def test_faults_are_noticed(self):
        for memory, faults in (({}, ("", *self.FAULTS, self.UNSEEN)),
                               (self.FLUSHED, ("", *self.SEEN_WHEN_FLUSHED))):
            limit_s = LIMIT_S
            for fault in faults:
                with self.subTest(fault):
                    began = time.monotonic()
                    end = self.ends(fault, limit_s, **memory)
                    if fault == "":
                        limit_s = max(self.LEAST_S, 4 * (time.monotonic() - began))
                    print(f"{fault or 'nothing'}: {end}", flush=True)
                    self.assertEqual(end == "well", fault in ("", self.UNSEEN))


class TwoNics(Job):
    """NICs that NCCL finds no PCI path to. Needs nic0 and nic1 of support/with_nics."""

    def test_both_are_used(self):
        for version in LIBRARIES:
            for nics in ("soft:udp:nic0,soft:udp:nic1", "soft:udp:nic0+soft:udp:nic1"):
                with self.subTest(version=version, nics=nics):
                    self.check(draws(80), MIB, arm=nics, version=version)


class Crowds(Job):
    """More threads than a small machine has processors for."""

    def test_four_ranks_on_two_hosts(self):
        # NCCL joins the ranks of a host by shared memory, and the hosts by the plugin.
        self.check(draws(120), MIB, ranks=4, hosts=[0, 0, 1, 1])

    def test_threads_with_a_communicator_each(self):
        self.live("threads", 4)


class Networks(Job):
    """Every kind of NIC that this machine has."""

    def test_kinds(self):
        for nic in ("ofi:tcp:lo", "soft:udp:lo,ofi:tcp:lo",
                    "soft:udp:lo+PACECAR_CC=swift", "soft:udp:lo+PACECAR_PROGRESS=inline",
                    "soft:udp:lo+PACECAR_ENGINES=2", "soft:udp:lo+PACECAR_SECURITY=off",
                    "soft:udp:lo+PACECAR_PROFILER=off", "soft:udp:lo+PACECAR_TUNER=observe",
                    "soft:udp:lo+PACECAR_TUNER=on"):
            for version in LIBRARIES:
                with self.subTest(nic=nic, version=version):
                    self.check(60, MIB, arm=nic, version=version)

    def test_eight_ranks(self):
        self.check(60, MIB // 4, ranks=8)

    def test_dpdk_over_memory(self):
        if not (BUILD / "modules/libpacecar-dpdk.so").exists():
            self.skipTest("Pacecar was built without DPDK")
        with tempfile.TemporaryDirectory() as folder:
            self.check(60, MIB, nics=[
                f"soft:dpdk:net_vhost0,iface={folder}/socket,client=1",
                f"soft:dpdk:net_virtio_user0,path={folder}/socket,server=1,mtu=4300"])

    def test_rdma_devices_that_do_all_that_one_may(self):
        device = BUILD / "tests/support/hostile_verbs/libhostile_verbs.so"
        if not device.exists():
            self.skipTest("Pacecar was built without verbs")
        for seed in range(1, 5):
            with self.subTest(seed=seed):
                self.check(60, MIB, arm="hostile0", seed=seed, LD_PRELOAD=str(device),
                           HOSTILE_VERBS_WORLD=f"nccl.{os.getpid()}.{seed}",
                           HOSTILE_VERBS=f"seed={seed},late_landing=50")


class Hosts(Job):
    """Hosts with interfaces of their own: network namespaces at a bridge."""

    def run_on_hosts(self, mtu_bytes, program, *arguments, sockets="udp", prepare=None,
                     disturb=None, **environment):
        """`prepare(place)` before the job, `disturb(place, folder)` while it runs."""
        try:
            with bridged.hosts(2, mtu_bytes) as place, tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                if prepare is not None:
                    prepare(place)
                arm = arms.parse(f"soft:{sockets}:{place.interface}")
                made = ranks_of(program, NEW, arm, 2,
                                [folder / "id" if program == "checked_rank" else folder,
                                 *arguments], folder, place=place, **environment)

                with futures.ThreadPoolExecutor() as beside:
                    disturbing = beside.submit(disturb or (lambda *_: None), place, folder)
                    outputs = job.run(made, LIMIT_S)
                    disturbing.result()
        except namespaces.Unavailable as why:
            self.skipTest(str(why))
        except Failed as reason:
            self.fail(str(reason))
        return [json.loads(output.strip().splitlines()[-1]) for output in outputs]

    def test_frames_of_1500_and_9000_bytes(self):
        for mtu_bytes in (1500, 9000):
            with self.subTest(mtu_bytes=mtu_bytes):
                results = self.run_on_hosts(mtu_bytes, "checked_rank", 7, draws(60), MIB)
                self.assertTrue(all(result["checked"] > 0 for result in results))

    def test_raw_sockets(self):
        for wire in ("extended", "roce"):
            with self.subTest(wire=wire):
                for result in self.run_on_hosts(1500, "checked_rank", 9, draws(60), MIB,
                                                sockets="raw", PACECAR_WIRE=wire):
                    self.assertGreater(result["checked"], 0)

    def test_only_ipv6(self):
        def prepare(place):
            for number, member in enumerate(place.members):
                for interface in ("lo", place.interface):
                    namespaces.command(*namespaces.prefix(member), "sysctl", "-qw",
                                       f"net.ipv6.conf.{interface}.disable_ipv6=0")
                namespaces.command("ip", "-n", member, "address", "flush", "dev", place.interface)
                namespaces.command("ip", "-n", member, "address", "add", f"fd00::{number + 1}/64",
                                   "dev", place.interface, "nodad")

        for result in self.run_on_hosts(1500, "checked_rank", 8, draws(60), MIB, prepare=prepare,
                                        NCCL_SOCKET_FAMILY="AF_INET6"):
            self.assertGreater(result["checked"], 0)

    def test_a_path_that_stops_passing_large_packets(self):
        said = False

        def disturb(place, folder):
            nonlocal said
            self.assertTrue(wait_until((folder / "warm.1").exists, LIMIT_S), "no rank is at work")
            for member in place.members:
                namespaces.command(*namespaces.prefix(member), "iptables", "-A", "OUTPUT", "-p",
                                   "udp", "-m", "length", "--length", "1501:65535", "-j", "DROP")
            log = folder / "nccl.0.log"
            said = wait_until(lambda: "packets above 1500 bytes do not pass to" in log.read_text(),
                              LIMIT_S)

        for result in self.run_on_hosts(9000, "lives_rank", "disturbed", 6, disturb=disturb):
            self.assertGreater(result["done"], 0)
        self.assertTrue(said, "the log does not say what passes")

    def test_a_link_that_is_down_for_3_s(self):
        def disturb(place, folder):
            self.assertTrue(wait_until((folder / "warm.1").exists, LIMIT_S), "no rank is at work")
            for state, then_s in (("down", 3), ("up", 0)):
                namespaces.command("ip", "-n", place.members[1], "link", "set", place.interface,
                                   state)
                time.sleep(then_s)

        for result in self.run_on_hosts(1500, "lives_rank", "disturbed", 6, disturb=disturb):
            self.assertGreater(result["done"], 0)


@unittest.skipUnless("LAB_RANK" in os.environ, "of the laboratory: tests/lab/run BUILD nccl.sh")
class Rdma(Job):
    """An RDMA device, rxe0, of two machines. NCCL's own use of it is the reference."""

    ARMS = ("rxe0", "ib")

    def test_ranks_of_one_machine(self):
        for arm in self.ARMS:
            for further in ((), ("registered",)):
                with self.subTest(arm=arm, further=further):
                    self.check(12, MIB // 4, *further, arm=arm, seed=10)

    def test_a_rank_on_each_machine(self):
        own = int(os.environ["LAB_RANK"])
        for arm in map(arms.parse, self.ARMS):
            with self.subTest(arm=arm):
                folder = pathlib.Path(os.environ["LAB_SHARE"]) / f"nccl.{arm}"
                folder.mkdir(exist_ok=True)
                rank = ranks_of("checked_rank", NEW, arm, 2, [folder / "id", 11, 12, MIB // 4],
                                folder, NCCL_SOCKET_IFNAME="eth0")[own]
                print(arm, *job.run([rank], LIMIT_S))
                self.assertIsNone(arms.complaint(arm, job.nccl_log(rank)))

    def test_a_killed_rank_is_an_error_for_the_others(self):
        self.expect_others_notice_a_killed_rank("rxe0")


class Many(Job):
    """As many collectives as a release should have seen."""

    def test_seeds(self):
        # NCCL 2.22.3 crashes, over its sockets too, where it divides some groups of broadcasts
        # between channels.
        further = {OLD: {"NCCL_MAX_NCHANNELS": "1"}}
        checked, seed = 0, 100
        while checked < 100_000:
            for version in LIBRARIES:
                with self.subTest(seed=seed, version=version):
                    checked += self.check(500, 4 * MIB if seed % 8 == 0 else MIB // 4, seed=seed,
                                          version=version, ranks=2 + seed % 3,
                                          **further.get(version, {}))
            seed += 1
        print(f"{checked} collectives checked in all")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)  # namespaces end with their tests
    try:
        find_libraries()
    except linked.Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
