"""Flags of perftest: every flag of ib_write_bw and ib_write_lat works or is refused in one
sentence: perftest_test.py PROGRAM [unittest flags].

Runs the real `pacecar` over the loopback interface.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

import cli_test
from cli_test import Cli, Server, pair, run, squeeze
from limits import LIMIT_S

# The flags that 'ib_write_bw --help' of perftest 6.06 lists, with a value where they take one: of
# both tests, of bw alone, of lat alone; and the flags that are refused.
BOTH = ("-a", "-c RC", "-d soft:udp:lo", "-D 0.2", "-F", "-i 1", "-m 1024", "-n 10", "-p", "-s 64",
        "-S 0", "-t 4", "-T 0", "-u 18", "-V", "-x 0", "-h", "--out_json", "--out_json_file=-",
        "--cpu_util", "--source_ip=127.0.0.1", "--mr_per_qp", "--pkey_index=0", "--tclass=8",
        "--perform_warm_up", "-W packets_sent", "--use_hugepages", "-f 0.05 -D 0.2")
BW = ("-b", "-l 4", "-N", "-q 2", "-w 0.001", "-y 0.0000001", "--output=bandwidth",
      "--output=message_rate", "--report-both -b", "--report_gbits", "--reversed",
      "--run_infinitely", "--rate_limit=1", "--rate_units=M --rate_limit=100", "-r 16")
LAT = ("-H", "-U", "--latency_gap=10", "--output=latency")
REFUSED = ("-R", "-z", "-L 64", "-O", "-Q 50", "-I 64", "-e", "-X 0", "-C",
            "--log_dci_streams=1", "--log_active_dci_streams=1", "--aes_xts", "--encrypt_on_tx",
            "--sig_before", "--aes_block_size=512", "--data_enc_keys_number=1", "--kek_path x",
            "--credentials_path x", "--data_enc_key_app_path x", "--recv_post_list=4",
            "--inline_size=64", "--hop_limit=64", "--dualport", "--cq-mod=50", "--rdma_cm",
            "--com_rdma_cm", "--dlid=1", "--dont_xchg_versions", "--force-link=IB", "--ipv6",
            "--mmap=x", "--mmap-offset=0", "--odp", "--use_old_post_send", "--report-per-port",
            "--retry_count=7", "--wait_destroy=1", "--disable_pcie_relaxed", "--burst_size=4",
            "--typical_pkt_size=64", "--rate_limit_type=SW", "--use_rocm=0",
            "--report-cycles", "--inline_recv=64", "--use-srq")
PRINT_AND_EXIT = ("-V", "-h")


class Flags(Cli):
    def flags_work(self, test, flags):
        with Server(test, "--run_infinitely") as server, tempfile.TemporaryDirectory() as folder:
            for flag in flags:
                words = flag.split()
                if words[0] in ("-p", "--run_infinitely", "--use_hugepages", *PRINT_AND_EXIT):
                    continue
                short = [] if {"-n", "-D", "-a"} & set(words) else ["-n", "5"]
                few = ["-n", "4"] if words == ["-a"] else short
                done = subprocess.run(
                    [cli_test.PROGRAM, test, "-p", server.port, *words, *few, "127.0.0.1"],
                    env=cli_test.environment(), text=True, capture_output=True, cwd=folder,
                    timeout=LIMIT_S, check=False)
                self.assertEqual(done.returncode, 0, (test, flag, done.stderr))

    def test_gaps_are_no_latency_and_not_in_the_warm_up(self):
        started = time.monotonic()
        client, code, _ = pair("lat", "-n", "40", "--latency_gap", "20000", "--interval", "0.2",
                               "--out_json_file", "-")
        self.assert_ok(client, code)
        took_s = time.monotonic() - started
        self.assertLess(took_s, cli_test.ANSWER_LIMIT_S)  # the warm-up has 1000 messages
        intervals = json.loads(client.stdout)["results"]["intervals"]
        self.assertTrue(intervals)
        self.assertEqual({one["t_avg"] for one in intervals}, {None})
        self.assertRegex(client.stderr, r"\d+ messages\n")

    def test_flags_of_bw_work(self):
        self.flags_work("bw", BOTH + BW)

    def test_flags_of_lat_work(self):
        self.flags_work("lat", [flag for flag in BOTH if not flag.startswith("-t")] + [*LAT])

    def test_every_other_flag_is_refused_in_one_sentence(self):
        for test in ("bw", "lat"):
            for flag in REFUSED:
                done = run(test, *flag.split(), "127.0.0.1")
                self.assertEqual(done.returncode, 2, (test, flag))
                self.assert_one_sentence(done, "as perftest has it: .{15,}")
                self.assertIn(re.split("[ =]", flag)[0], done.stderr)

    def test_help_names_every_flag(self):
        for test, flags in (("bw", BOTH + BW), ("lat", BOTH + LAT)):
            text = run(test, "--help-all").stdout + run("help", "perftest").stdout
            for flag in flags:
                name = re.split("[ =]", flag)[0]
                if (test == "lat" and name == "-t") or name in ("-h", "-V"):
                    continue
                self.assertRegex(text, rf"(?m)(^|[ ,]){re.escape(name)}\b", (test, flag))
        self.assertRegex(run("bw", "-V").stdout, r"\Apacecar \d")

    def test_other_connection_types_are_refused_in_a_sentence(self):
        done = run("bw", "-c", "UD", "127.0.0.1")
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "RC")

    def test_huge_pages_are_used_or_the_error_says_how_to_get_them(self):
        with Server("bw", "--run_infinitely") as server:
            client = run("bw", "-p", server.port, "-n", "10", "--use_hugepages", "127.0.0.1")
        if client.returncode != 0:
            self.assert_one_sentence(client, "sysctl -w vm.nr_hugepages=")


class Meaning(Cli):
    def test_a_reversed_test_is_sent_by_the_server(self):
        client, code, _ = pair("bw", "-n", "200", "--reversed", "--data_validation", "--json")
        self.assert_ok(client, code)
        result = json.loads(client.stdout)["results"]
        self.assertEqual(result["n_iterations"], 200)
        self.assertGreater(result["server"]["counters"]["packets_sent"],
                           result["client"]["counters"]["packets_sent"])
        client, code, _ = pair("bw", "-D", "0.3", "--reversed")
        self.assert_ok(client, code)

    def test_both_directions_are_reported_apart(self):
        client, code, _ = pair("bw", "-n", "200", "-b", "--report-both")
        self.assert_ok(client, code)
        header, row = client.stdout.splitlines()
        self.assertTrue(squeeze(header).endswith("sent[MiB/sec] received[MiB/sec]"), header)
        numbers = [float(number) for number in row.split()]
        self.assertAlmostEqual(numbers[5] + numbers[6], numbers[3], delta=0.02 * numbers[3] + 0.1)

    def test_a_missed_threshold_fails_both_ends(self):
        for flags in (("-w", "1e9"), ("-y", "1e9")):
            client, code, _ = pair("bw", "-n", "10", *flags)
            self.assertEqual((client.returncode, code), (3, 3), flags)

    def test_latency_of_no_message_meets_no_threshold(self):
        client, code, _ = pair("lat", "-s", "64M", "-D", "0.002", "--max-usec", "1")
        self.assertEqual((client.returncode, code), (1, 1))
        self.assertIn("no message arrived in the time of the measurement", client.stderr)

    def test_no_peak_prints_zero(self):
        client, code, _ = pair("bw", "-n", "10", "-N")
        self.assert_ok(client, code)
        self.assertEqual(client.stdout.splitlines()[1].split()[2], "0.00")

    def test_output_prints_one_figure_alone(self):
        for test, output in (("bw", "bandwidth"), ("bw", "message_rate"), ("lat", "latency")):
            client, code, _ = pair(test, "-n", "10", "--output", output)
            self.assert_ok(client, code)
            self.assertRegex(client.stdout, r"\A[\d.]+ *\n\Z")
        done = run("lat", "--output", "bandwidth", "127.0.0.1")
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "{latency}")

    def test_all_samples_are_printed(self):
        for flag, ordered in (("-H", True), ("-U", False)):
            client, code, _ = pair("lat", "-n", "20", flag)
            self.assert_ok(client, code)
            lines = client.stdout.splitlines()
            self.assertEqual(lines[2], "#, usec")
            samples = [float(line.split(", ")[1]) for line in lines[3:]]
            self.assertEqual(len(samples), 20)
            if ordered:
                self.assertEqual(samples, sorted(samples))

    def test_latency_gap_delays_each_message(self):
        client, code, _ = pair("lat", "-n", "10", "--latency_gap", "500", "--json")
        self.assert_ok(client, code)
        self.assertGreater(json.loads(client.stdout)["results"]["seconds"], 9 * 0.0005)

    def test_margins_are_not_measured(self):
        client, code, _ = pair("bw", "-D", "3", "-f", "1.4", "--json")
        self.assert_ok(client, code)
        self.assertLess(json.loads(client.stdout)["results"]["seconds"], 2.8)
        done = run("bw", "-D", "1", "-f", "0.5", "127.0.0.1")
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "-f leaves nothing of -D")

    def test_counters_of_both_ends_are_printed(self):
        client, code, _ = pair("bw", "-n", "100", "-W", "hw_counters/packets_sent,timeouts")
        self.assert_ok(client, code)
        self.assertRegex(client.stdout,
                         r"\n packets_sent: client [1-9]\d*, server \d+\n timeouts: ")

    def test_a_foreign_source_address_is_refused(self):
        with Server("bw", "--run_infinitely") as server:
            done = run("bw", "-p", server.port, "--source_ip", "192.0.2.1", "127.0.0.1")
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "192.0.2.1 is no address of this host")

    def test_a_port_needs_its_device(self):
        done = run("bw", "-i", "2", "127.0.0.1")
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "-d mlx5_0")
        done = run("bw", "-d", "mlx5_9", "-i", "2", "127.0.0.1")
        self.assertIn("mlx5_9:2", done.stderr)


@unittest.skipUnless("FAKE_CUDA_FOLDER" in os.environ, "built without CUDA")
class GpuMemory(Cli):
    """With a fake driver: a process crashes that touches its memory other than by a copy."""

    @staticmethod
    def environment(**changes):
        return {"LD_LIBRARY_PATH": os.environ.get("FAKE_CUDA_FOLDER", ""),
                "PACECAR_GPU": "staged", **changes}

    def pair_of_gpus(self, test, *flags, server_flags=()):
        with Server(test, *server_flags, **self.environment()) as server:
            client = run(test, "-p", server.port, *flags, "127.0.0.1", **self.environment())
            code, _ = server.finish()
            self.assert_ok(client, code)

    def refused(self, expected, *flags, **changes):
        with Server("bw", "--run_infinitely") as server:
            client = run("bw", "-p", server.port, *flags, "127.0.0.1",
                         **self.environment(**changes))
            self.assertNotEqual(client.returncode, 0)
            self.assert_one_sentence(client, expected)

    def test_messages_are_in_gpu_memory(self):
        check = ("-n", "50", "--data_validation")
        for client, server in ((["--use_cuda=0"], ["--use_cuda=0"]),
                               (["--use_cuda_bus_id=00000000:3A:00.0"], []),
                               (["--use_cuda_bus_id=0000:3a:00.0"],
                                ["--use_cuda_bus_id", "3a:00.0"]),
                               ([], ["--use_cuda=0"])):
            self.pair_of_gpus("bw", "-b", *check, *client, server_flags=server)
        self.pair_of_gpus("bw", "-t", "256", "-s", "100", *check, "--use_cuda=0",
                          server_flags=["--use_cuda=0"])
        self.pair_of_gpus("lat", "-n", "10", "--use_cuda=0", server_flags=["--use_cuda=0"])

    def test_impossible_gpu_flags_are_refused(self):
        self.refused("there is no GPU 3: name one of 0 at 0000:3a:00.0", "--use_cuda=3")
        for other in ("3b:00.0", "0001:3a:00.0", "3a:00.1", "0", "x"):
            self.refused(f"there is no GPU {other}: name one", f"--use_cuda_bus_id={other}")
        self.refused("takes no dma-buf .*leave out --use_cuda_dmabuf", "--use_cuda=0",
                     "--use_cuda_dmabuf")
        self.refused("takes only host memory", "--use_cuda=0", PACECAR_GPU="host")
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:  # else this host has a driver
            self.refused("NVIDIA's driver library is not there", "--use_cuda=0",
                         LD_LIBRARY_PATH="")
        for flags in (["--use_cuda_dmabuf"], ["--use_cuda=0", "--use_hugepages"],
                      ["--use_cuda=x"], ["--use_cuda=0", "--use_cuda_bus_id=3a:00.0"]):
            self.assertEqual(run("bw", *flags, "127.0.0.1").returncode, 2, flags)


if __name__ == "__main__":
    cli_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
