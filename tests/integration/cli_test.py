"""Runs the real `pacecar` over the loopback interface: cli_test.py PROGRAM [unittest flags].

No test asserts a speed. Time limits only bound hangs and are far above what is needed, but for
ANSWER_LIMIT_S, within which a client must fail if it cannot reach its server.
"""

import contextlib
import json
import os
import pty
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from limits import LIMIT_S

PROGRAM = ""
ANSWER_LIMIT_S = 15

BW_HEADER = "#bytes #iterations BW peak[MiB/sec] BW average[MiB/sec] MsgRate[Mpps]"
LAT_HEADER = ("#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] "
              "t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]")


def environment(**changes):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return {**clean, "PACECAR_NICS": "soft:udp:lo", **changes}


def run(*arguments, **changes):
    return subprocess.run([PROGRAM, *arguments], env=environment(**changes), text=True,
                          capture_output=True, timeout=LIMIT_S, check=False)


class Server:
    """A server on a free port, which is read from the line that the server prints."""

    def __init__(self, test, *flags, **changes):
        self.process = subprocess.Popen([PROGRAM, test, "-p", "0", *flags],
                                        env=environment(**changes), text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.port = None
        self.errors = ""
        while self.port is None:
            line = self.process.stderr.readline()
            if not line:
                raise AssertionError(f"the server ended: {self.errors}")
            self.errors += line
            if found := re.search(r"on port (\d+)", line):
                self.port = found.group(1)

    def finish(self):
        output, errors = self.process.communicate(timeout=LIMIT_S)
        self.errors += errors
        return self.process.returncode, output

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def pair(test, *flags, server_flags=(), host="127.0.0.1"):
    """One client with its server: (client, server's exit code, server's output)."""
    with Server(test, *server_flags) as server:
        client = run(test, "-p", server.port, *flags, host)
        code, output = server.finish()
        return client, code, output


def squeeze(line):
    return " ".join(line.split())


class Cli(unittest.TestCase):
    def assert_ok(self, client, server_code=0):
        self.assertEqual((client.returncode, server_code), (0, 0), client.stderr)

    def assert_one_sentence(self, process, pattern):
        lines = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, process.stderr)
        self.assertRegex(lines[0], pattern)

    def drawn_by(self, *arguments):
        """What the command writes to standard error if that is a terminal."""
        try:
            terminal, theirs = pty.openpty()
        except OSError:
            self.skipTest("this system has no pseudo-terminals: mount devpts on /dev/pts")
        process = subprocess.Popen([PROGRAM, *arguments], env=environment(),
                                   stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # EIO: the other side of the terminal has closed
            while chunk := os.read(terminal, 4096):
                drawn += chunk
        os.close(terminal)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0)
        return drawn.decode()


class Basics(Cli):
    def test_no_arguments_print_help(self):
        for arguments in ([], ["--help"], ["help"]):
            process = run(*arguments)
            self.assertEqual(process.returncode, 0)
            self.assertIn("Usage: pacecar SUBCOMMAND", process.stdout)
            self.assertEqual(process.stderr, "")

    def test_version(self):
        self.assertRegex(run("--version").stdout, r"^pacecar \d+\.\d+\.\d+ \(")

    def test_wrong_usage(self):
        for arguments in (["nope"], ["bw", "--nope"], ["bw", "-t", "0", "host"], ["lat", "-b"],
                          ["bw", "-n", "1", "-D", "1", "host"], ["info", "more"],
                          ["bw", "--cc", "nope", "host"], ["bw", "-T", "3", "host"]):
            process = run(*arguments)
            self.assertEqual(process.returncode, 2, arguments)
            self.assertEqual(process.stdout, "")
            self.assert_one_sentence(process, "^error: ")


class Bandwidth(Cli):
    def test_columns_at_both_ends(self):
        client, code, output = pair("bw", "-n", "200", "-s", "4096")
        self.assert_ok(client, code)
        header, row = client.stdout.splitlines()
        self.assertEqual(squeeze(header), BW_HEADER)
        size, iterations, peak, average, rate = row.split()
        self.assertEqual((size, iterations), ("4096", "200"))
        self.assertGreaterEqual(float(peak), float(average))
        self.assertGreater(float(average), 0)
        self.assertGreater(float(rate), 0)
        self.assertEqual(output, client.stdout)

    def test_a_pipe_gets_no_progress_bar(self):
        client, code, _ = pair("bw", "-D", "0.6")
        self.assert_ok(client, code)
        self.assertNotIn("\r", client.stderr)
        self.assertNotIn("\x1b", client.stderr)

    def test_all_sizes(self):
        client, code, _ = pair("bw", "-a", "-n", "5", "--data_validation")
        self.assert_ok(client, code)
        sizes = [int(line.split()[0]) for line in client.stdout.splitlines()[1:]]
        self.assertEqual(sizes, [2**power for power in range(1, 24)])

    def test_deep_queues_carry_odd_counts(self):
        client, code, _ = pair("bw", "-t", "256", "-n", "1001", "-s", "100", "--data_validation")
        self.assert_ok(client, code)
        self.assertEqual(client.stdout.splitlines()[1].split()[1], "1001")

    def test_json_of_a_timed_test_both_ways(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "client.json")
            served = os.path.join(folder, "server.json")
            client, code, _ = pair("bw", "--out_json_file", path, "-b", "-q", "2", "-D", "0.5",
                                   "--report_gbits", "--cpu_util", "--data_validation",
                                   server_flags=["--out_json_file", served])
            self.assert_ok(client, code)
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            with open(served, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["results"], document["results"])
        self.assertEqual(document["schema_version"], 1)
        self.assertEqual(document["test_info"]["test"], "Send_Bidirectional_BW_Test")
        result = document["results"]
        self.assertEqual(result["BW_unit"], "Gb/sec")
        self.assertGreaterEqual(result["BW_peak"], result["BW_average"])
        self.assertEqual(result["bytes"], result["n_iterations"] * result["MsgSize"])
        self.assertEqual(sum(i["messages"] for i in result["intervals"]), result["n_iterations"])
        for end in ("client", "server"):
            self.assertGreater(result[end]["cpu_s"], 0)
            self.assertGreater(result[end]["counters"]["packets_sent"], 0)
            self.assertTrue(result[end]["congestion_control"]["name"])

    def test_faults_of_the_network_are_repaired_and_counted(self):
        # Without tags: with tags a duplicate is counted as a replay.
        settings = {"PACECAR_FAULT": "loss=0.02,duplicate=0.01,reorder=0.01,corrupt=0.002,seed=7",
                    "PACECAR_SECURITY": "off"}
        with Server("bw", **settings) as server:
            client = run("bw", "-p", server.port, "-b", "-q", "2", "-n", "500", "--data_validation",
                         "--out_json_file", "-", "127.0.0.1", **settings)
            self.assert_ok(client, server.finish()[0])
        result = json.loads(client.stdout)["results"]
        for end in ("client", "server"):
            for counter in ("packets_retransmitted", "duplicates", "rejected"):
                self.assertGreater(result[end]["counters"][counter], 0, counter)

    def test_json_instead_of_columns(self):
        client, code, _ = pair("bw", "-n", "10", "--out_json_file", "-", "--cc", "fixed")
        self.assert_ok(client, code)
        result = json.loads(client.stdout)["results"]
        self.assertEqual(result["n_iterations"], 10)
        self.assertEqual(result["client"]["congestion_control"]["name"], "fixed")

    def test_limits_of_the_rate_are_reported(self):
        figures = ("rate_bps", "grant_bps", "grant_age_ns", "epoch", "phase_ns", "share_bps",
                   "core_bps", "budget_bps", "rtt_us")
        controls = json.loads(run("info", "--json").stdout)["congestion_controls"]
        for control in (one["name"] for one in controls if not one["needs_telemetry"]):
            client, code, _ = pair("bw", "-D", "0.3", "--interval", "0.1", "--out_json_file", "-",
                                   "--cc", control)
            self.assert_ok(client, code)
            result = json.loads(client.stdout)["results"]
            self.assertAlmostEqual(sum(result["limited_by"].values()), 1)
            views = [interval["congestion_control"] for interval in result["intervals"]]
            for view in [result["client"]["congestion_control"], *filter(None, views)]:
                self.assertIn(view["limited_by"], ("line", "grant", "network", "window", "budget",
                                                   "host", "application"))
                for figure in figures:
                    self.assertGreaterEqual(view[figure], 0, f"{control} {figure}")
                self.assertGreater(view["rate_bps"], 0, control)
            self.assertNotEqual([view for view in views if view], [], control)
            # A server that sends nothing has no rate.
            self.assertEqual(result["server"]["congestion_control"], {"name": control})
        client, _, _ = pair("bw", "-D", "2")  # a busy machine takes few samples in less time
        self.assertRegex(client.stderr, r"\nlimited by: \w+ \d+% of the time")

    def test_missed_threshold_fails_both_ends(self):
        client, code, _ = pair("bw", "-n", "10", "--min-gbits", "9999")
        self.assertEqual((client.returncode, code), (3, 3))
        self.assert_one_sentence(client, "below the 9999 of --min-gbits")
        client, code, _ = pair("bw", "-n", "10", "--min-gbits", "0.000001")
        self.assert_ok(client, code)

    def test_intervals_are_printed_to_stderr(self):
        client, code, _ = pair("bw", "-D", "0.6", "--interval", "0.2")
        self.assert_ok(client, code)
        self.assertRegex(client.stderr, r"0\.00 - +\d+\.\d\d s +[\d.]+ MiB/sec")
        self.assertEqual(len(client.stdout.splitlines()), 2)

    def test_quiet_prints_nothing_to_stderr(self):
        client, code, _ = pair("bw", "-n", "10", "--quiet")
        self.assert_ok(client, code)
        self.assertEqual(client.stderr, "")

    def test_infinite_server_serves_several_clients(self):
        with Server("bw", "--run_infinitely") as server:
            for host in ("127.0.0.1", "localhost", "127.0.0.1"):
                client = run("bw", "-p", server.port, "-n", "10", host)
                self.assert_ok(client)
            wrong = run("lat", "-p", server.port, "127.0.0.1")
            self.assertEqual(wrong.returncode, 1)
            self.assert_ok(run("bw", "-p", server.port, "-n", "10", "127.0.0.1"))
            self.assertIsNone(server.process.poll())

    def test_a_terminal_gets_a_progress_bar(self):
        with Server("bw") as server:
            drawn = self.drawn_by("bw", "-p", server.port, "-D", "3", "127.0.0.1")
        self.assertRegex(drawn, r"\[#+\.+\] +\d+% +[\d.]+ MiB/sec +\d+ s left")


class Latency(Cli):
    def test_columns(self):
        client, code, output = pair("lat", "-n", "300", "--data_validation")
        self.assert_ok(client, code)
        header, row = client.stdout.splitlines()
        self.assertEqual(squeeze(header), LAT_HEADER)
        numbers = [float(number) for number in row.split()]
        self.assertEqual(numbers[:2], [2, 300])
        smallest, largest, typical, average, _, p99, p999 = numbers[2:]
        self.assertLessEqual(smallest, typical)
        self.assertLessEqual(smallest, average)
        self.assertLessEqual(typical, p99)
        self.assertLessEqual(p99, p999)
        self.assertLessEqual(average, largest)
        self.assertEqual(output, client.stdout)

    def test_a_timed_test_has_percentiles(self):
        client, code, _ = pair("lat", "-D", "0.5", "-s", "1K", "--out_json_file", "-")
        self.assert_ok(client, code)
        result = json.loads(client.stdout)["results"]
        self.assertGreater(result["n_iterations"], 0)
        self.assertGreater(result["percentile_99"], 0)
        self.assertGreaterEqual(result["percentile_99.9"], result["percentile_99"])

    def test_threshold(self):
        client, code, _ = pair("lat", "-n", "10", "--max-usec", "0.001")
        self.assertEqual((client.returncode, code), (3, 3))


class Failures(Cli):
    def client_of(self, port, test="bw"):
        started = time.monotonic()
        client = run(test, "-p", str(port), "127.0.0.1")
        self.assertLess(time.monotonic() - started, ANSWER_LIMIT_S)
        self.assertEqual(client.returncode, 1)
        return client

    def test_refused_connection_is_explained(self):
        with socket.socket() as bound:  # without listen(): the connection is refused
            bound.bind(("127.0.0.1", 0))
            client = self.client_of(bound.getsockname()[1])
        self.assert_one_sentence(client, "nobody listens .* start the server")

    def test_unknown_host_is_explained(self):
        client = run("bw", "not a host name")
        self.assertEqual(client.returncode, 1)
        self.assert_one_sentence(client, "check its spelling")

    def test_silent_server_is_an_error_after_2_s(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = self.client_of(silent.getsockname()[1])
        self.assert_one_sentence(client, "did not answer within 2 s")

    def errors_after(self, words, **changes):
        """What a client says whose server sends these words and then nothing."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            with subprocess.Popen([PROGRAM, "bw", "-p", str(server.getsockname()[1]), "127.0.0.1"],
                                  env=environment(**changes), text=True,
                                  stderr=subprocess.PIPE) as client:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(words)
                    errors = client.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(client.returncode, 1)
        return errors

    def test_connections_are_waited_for_as_long_as_the_parameter_says(self):
        errors = self.errors_after(b'{"type":"welcome"}\n', PACECAR_CONNECT_TIMEOUT="1s")
        self.assertIn("did not answer within 1 s", errors)

    def test_server_of_another_protocol_is_named(self):
        errors = self.errors_after(b"220 mail ready\r\n")
        self.assertIn("another program uses this port", errors)

    def test_client_of_another_test_is_refused(self):
        with Server("lat") as server:
            client = self.client_of(server.port)
            self.assert_one_sentence(client, "runs 'pacecar lat' and the client 'pacecar bw'")
            right = run("lat", "-p", server.port, "-n", "10", "127.0.0.1")
            self.assert_ok(right, server.finish()[0])
            self.assertIn("warning: 127.0.0.1:", server.errors)

    def test_client_of_another_version_is_refused(self):
        with Server("bw") as server:
            with socket.create_connection(("127.0.0.1", int(server.port))) as old:
                hello = {"type": "hello", "protocol": 999, "release": "9.9.9", "test": "bw"}
                old.sendall(json.dumps(hello).encode() + b"\n")
                answer = json.loads(old.makefile().readline())
            self.assertEqual(answer["type"], "error")
            self.assertIn("install the same one on both hosts", answer["message"])
            client = run("bw", "-p", server.port, "-n", "10", "127.0.0.1")
            self.assert_ok(client, server.finish()[0])

    def test_strangers_do_not_end_the_server(self):
        with Server("bw") as server:
            for stranger in (b"", b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[[[[[[\n", b"\0" * 300000):
                with socket.create_connection(("127.0.0.1", int(server.port))) as connection:
                    with contextlib.suppress(OSError):  # the server may hang up first
                        connection.sendall(stranger)
            client = run("bw", "-p", server.port, "-n", "10", "127.0.0.1")
            self.assert_ok(client, server.finish()[0])

    def test_client_fails_when_the_server_dies(self):
        with Server("bw") as server:
            with subprocess.Popen([PROGRAM, "bw", "-p", server.port, "-D", "600", "--interval",
                                   "0.05", "127.0.0.1"], env=environment(), text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as client:
                while "MiB/sec" not in client.stderr.readline():
                    self.assertIsNone(client.poll())
                server.process.kill()
                errors = client.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(client.returncode, 1)
        self.assertRegex(errors, "error: ")

    def test_server_fails_when_the_client_dies(self):
        with Server("lat") as server:
            with subprocess.Popen([PROGRAM, "lat", "-p", server.port, "-D", "600", "--interval",
                                   "0.05", "127.0.0.1"], env=environment(), text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as client:
                while "usec" not in client.stderr.readline():
                    self.assertIsNone(client.poll())
                client.kill()
            self.assertEqual(server.finish()[0], 1)
            self.assertRegex(server.errors, "error: ")

    def test_missing_nic_is_named(self):
        for arguments in (["bw", "-d", "soft:udp:nosuch0"], ["info", "-d", "soft:udp:nosuch0"]):
            process = run(*arguments)
            self.assertIn(process.returncode, (1, 2))
            self.assert_one_sentence(process, "nosuch0")

    def test_unwritable_file_is_named(self):
        client = run("bw", "-n", "10", "--out_json_file", "/nonexistent/x.json", "127.0.0.1")
        self.assertEqual(client.returncode, 1)
        self.assert_one_sentence(client, "/nonexistent/x.json")


class Info(Cli):
    def test_text(self):
        process = run("info")
        self.assertEqual(process.returncode, 0, process.stderr)
        for word in ("soft:udp:lo", "Congestion controls", "fixed", "per flow", "GPU memory"):
            self.assertIn(word, process.stdout)

    def test_json(self):
        document = json.loads(run("info", "--json").stdout)
        nic = document["nics"][0]
        self.assertEqual(nic["name"], "soft:udp:lo")
        self.assertGreater(nic["mtu_bytes"], 0)
        self.assertIn("fixed", [control["name"] for control in document["congestion_controls"]])

    def test_listed_libfabric_providers_open_by_name(self):
        libfabric = json.loads(run("info", "--json").stdout)["libfabric"]
        if not libfabric["available"]:
            self.assertIn("libfabric", libfabric["reason"])
            return
        names = [row["name"] for row in libfabric["providers"]]
        text = run("info").stdout
        self.assertIn("ofi:tcp;ofi_rxm:lo", names)
        for name in names:
            if name.split(":")[1].startswith("tcp"):
                nics = json.loads(run("info", "--json", "-d", name).stdout)["nics"]
                self.assertEqual([nic["name"] for nic in nics], [name])
        for row in libfabric["providers"]:
            self.assertTrue(row["abilities"])
            self.assertIn(row["name"], text)

    def test_parameters_have_their_source(self):
        process = run("info", "-c", "--json", PACECAR_PATHS="2")
        self.assertEqual(process.returncode, 0, process.stderr)
        rows = {row["name"]: row for row in json.loads(process.stdout)["parameters"]}
        self.assertEqual(rows["PACECAR_PATHS"]["value"], "2")
        self.assertEqual(rows["PACECAR_PATHS"]["source"], "environment")
        self.assertEqual(rows["PACECAR_MTU"]["source"], "default")
        text = run("info", "-c").stdout
        for row in rows.values():
            self.assertTrue(row["doc"])
            self.assertTrue(row["accepts"])
            self.assertIn(f"\n{row['name']}=", "\n" + text)

    def test_an_unknown_parameter_is_a_warning(self):
        process = run("info", "-c", PACECAR_NO_SUCH="1")
        self.assertEqual(process.returncode, 0)
        self.assertRegex(process.stderr, "warning: .*PACECAR_NO_SUCH")

    def test_a_bad_parameter_is_wrong_usage(self):
        process = run("info", PACECAR_PATHS="many")
        self.assertEqual(process.returncode, 2)
        self.assert_one_sentence(process, "PACECAR_PATHS")


class Run(Cli):
    """`pacecar run`; verbs_device_test.py tests the device itself."""

    def show(self, *arguments, **changes):
        process = run("run", "--show", *arguments, "--", "true", **changes)
        if "install the package" in process.stderr:
            self.skipTest("built without that library")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return dict(line.split("=", 1) for line in process.stdout.splitlines())

    def test_show_prints_the_variables(self):
        shown = self.show("--nic", "soft:udp:eth7")
        ours = shown.pop("LD_PRELOAD")
        self.assertEqual(os.path.basename(ours), "libpacecar-verbs.so")
        self.assertEqual(shown, {"PACECAR_NICS": "soft:udp:eth7"})
        for before, after in (("", ours), ("libm.so.6", f"{ours}:libm.so.6"), (ours, ours)):
            self.assertEqual(self.show(LD_PRELOAD=before)["LD_PRELOAD"], after)

    def test_programs_of_libfabric_get_the_provider(self):
        shown = self.show("--libfabric")
        self.assertEqual(shown["FI_PROVIDER"], "pacecar")
        self.assertTrue(os.path.isfile(shown["FI_PROVIDER_PATH"] + "/libpacecar-fi.so"))
        self.assertNotIn("FI_PROVIDER", self.show("--libfabric", FI_PROVIDER="tcp"))

    def test_variables_are_printed_and_the_program_runs(self):
        probe = run("run", "--quiet", "--", "true").stderr
        if re.search("asan|tsan|sanitizer", probe, re.IGNORECASE):
            self.skipTest("programs built without the sanitizer cannot load its runtime")
        process = run("run", "--nic", "soft:udp:lo", "--", "sh", "-c", "echo $PACECAR_NICS; exit 7")
        self.assertEqual((process.returncode, process.stdout), (7, "soft:udp:lo\n"))
        self.assertIn("PACECAR_NICS=soft:udp:lo", process.stderr)
        quiet = run("run", "--quiet", "--", "echo", "--nic", "--", "-x")
        self.assertEqual((quiet.stdout, quiet.stderr), ("--nic -- -x\n", ""))

    def test_wrong_usage(self):
        for arguments, words in (((), "no program"), (("--nic",), "--nic"),
                                (("--verbs", "--libfabric", "--", "true"), "--libfabric")):
            process = run("run", *arguments)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertIn(words, process.stderr)
        missing = run("run", "--", "/nowhere/program")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("cannot run /nowhere/program", missing.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
