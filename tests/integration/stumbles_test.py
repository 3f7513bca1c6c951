"""Problems that new users had, one test each: stumbles_test.py PROGRAM [unittest flags].

Runs the real `pacecar` over the loopback interface, as they did.
"""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import cli_test
from cli_test import Cli, Server, environment, pair, run
from limits import LIMIT_S, draws


HETHUB = pathlib.Path(__file__).resolve().parents[2] / "bench/plan/examples/hethub.toml"


class LimitedBy(Cli):
    """bw and doctor name the same limit."""

    def limits(self, *flags, until=None):
        """bw and doctor on one run: (shares, doctor's finding). While a process gets no processor,
        its limit is the host, so doctor runs again until its rule is `until`."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        alone = {"PACECAR_SHARE": "off", "PACECAR_STATE_DIR": folder}
        with Server("bw", **alone) as server:
            client = subprocess.Popen(
                [cli_test.PROGRAM, "bw", "-p", server.port, "-D", "600", "--out_json_file", "-",
                 *flags, "127.0.0.1"], env=environment(**alone), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(client.kill)
            findings = []
            give_up = time.monotonic() + LIMIT_S
            while not findings or until not in (None, findings[0]["rule"]):
                self.assertLess(time.monotonic(), give_up, findings)
                asked = run("doctor", "--json", "--watch", "1", PACECAR_STATE_DIR=folder)
                if asked.returncode in (0, 1):
                    findings = [one for one in json.loads(asked.stdout)["findings"]
                                if one["direction"] == "send" and one.get("goodput_bps")] \
                        or findings
            client.send_signal(signal.SIGINT)
            output, errors = client.communicate(timeout=LIMIT_S)
            self.assertEqual((client.returncode, server.finish()[0]), (0, 0), errors)
        self.assertEqual(len(findings), 1, findings)
        return json.loads(output)["results"]["limited_by"], findings[0]

    def test_bw_and_doctor_name_the_budget_as_limit(self):
        for control in ("fixed", "pace"):
            shares, finding = self.limits("--cc", control, "--rate_limit", "0.1", until="budget")
            self.assertGreater(shares["budget"], 0.5, (control, shares))
            self.assertEqual(finding["rule"], "budget", (control, finding))
            self.assertIn("allows it 0.1 Gb/s", finding["why"], control)

    def test_algorithms_without_grants_are_not_limited_by_a_grant(self):
        for control in ("fixed", "swift"):
            shares, finding = self.limits("--cc", control)
            self.assertNotIn("grant", shares, control)
            self.assertNotEqual(finding["rule"], "grant", control)


    def test_doctor_names_a_process_that_rarely_gets_a_processor(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        alone = {"PACECAR_STATE_DIR": folder}
        for _ in range(os.cpu_count()):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.addCleanup(busy.wait)
            self.addCleanup(busy.kill)
        with Server("bw", **alone) as server:
            client = subprocess.Popen(
                ["chrt", "--idle", "0", cli_test.PROGRAM, "bw", "-p", server.port, "-D", "600",
                 "127.0.0.1"], env=environment(**alone), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)
            give_up = time.monotonic() + LIMIT_S
            verdict = {"rule": ""}
            while verdict["rule"] != "slow-host":
                self.assertLess(time.monotonic(), give_up, verdict)
                asked = run("doctor", "--json", "--watch", "2", PACECAR_STATE_DIR=folder)
                verdict = json.loads(asked.stdout)["verdict"] if asked.stdout else verdict
            client.kill()
        self.assertEqual(asked.returncode, 1)
        self.assertIn(f"pid {client.pid}", verdict["process"])


def to_full(*arguments):
    """Runs with a full standard output: (exit code, standard error)."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([cli_test.PROGRAM, *arguments], env=environment(), text=True,
                              stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False)
    return done.returncode, done.stderr


SMALL = ("sim", "--topology", "leaf-spine:hosts=8,rate=100G", "--workload",
         "incast:senders=3,bytes=100KB")


class Files(Cli):
    def test_a_folder_in_place_of_a_file_is_one_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            for subcommand in ("sim", "ab", "doctor"):
                done = run(subcommand, folder)
                self.assertEqual(done.returncode, 2, (subcommand, done.stderr))
                self.assert_one_sentence(done, re.escape(folder))

    def test_output_that_cannot_be_written_is_a_failure(self):
        for arguments in (SMALL, (*SMALL, "--json"), ("info",), ("info", "--json"), ("--help",),
                          ("preflight",)):
            code, errors = to_full(*arguments)
            self.assertEqual(code, 1, (arguments, errors))
            self.assertEqual(errors.count("error: cannot write to standard output"), 1, errors)
        with Server("bw") as server:
            code, errors = to_full("bw", "-p", server.port, "-n", "10", "127.0.0.1")
            self.assertEqual(code, 1, errors)
            self.assertIn("error: cannot write to standard output", errors)

    def test_warnings_that_cannot_be_printed_are_a_failure(self):
        with tempfile.TemporaryDirectory() as root:
            for number in range(60):  # more text than stdio's buffer holds
                port = pathlib.Path(root, f"sys/class/infiniband/mlx5_{number}/ports/1")
                (port / "hw_counters").mkdir(parents=True)
                for name, value in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"),
                                    ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", "Ethernet"),
                                    ("hw_counters/packet_seq_err", "500")):
                    (port / name).write_text(f"{value}\n", encoding="ascii")
            preflight = ("preflight", "--root", root, "--only", "fabric")
            self.assertEqual(run(*preflight).returncode, 3)
            code, errors = to_full(*preflight)
            self.assertEqual(code, 1, errors)
            self.assertEqual(errors.count("error: cannot write to standard output"), 1,
                             errors)

    def test_a_link_to_a_file_that_is_not_there_yet_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            link, file = pathlib.Path(folder, "link.json"), pathlib.Path(folder, "file.json")
            link.symlink_to(file)
            self.assertNotEqual(run("bw", "-p", "1", f"--json={link}", "127.0.0.1").returncode, 0)
            self.assertTrue(link.is_symlink())
            self.assertEqual(run(*SMALL, f"--json={link}").returncode, 0)
            self.assertIn("flows", json.loads(file.read_text(encoding="utf-8")))

    def test_an_unwritable_file_is_reported_before_the_test(self):
        client = run("bw", "-p", "1", "--json=/nonexistent/x.json", "127.0.0.1")
        self.assertEqual(client.returncode, 1)
        self.assert_one_sentence(client, "cannot write '/nonexistent/x.json'")
        done = run(*SMALL, "--json=/nonexistent/x.json")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assert_one_sentence(done, "cannot write '/nonexistent/x.json'")

    def test_both_spellings_of_the_json_flag_write_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            for number, arguments in enumerate((SMALL, ("info",), ("info", "-c"), ("preflight",))):
                text = json.loads(run(*arguments, "--json").stdout)
                for flag in (["--json", f"{folder}/{number}.json"],
                             [f"--json={folder}/{number}"]):
                    done = run(*arguments, *flag)
                    self.assertIn(done.returncode, (0, 1, 3), done.stderr)
                    self.assertGreater(len(done.stdout), 100, "standard output lacks the text")
                    written = pathlib.Path(flag[-1].removeprefix("--json=")).read_text("utf-8")
                    self.assertEqual(json.loads(written).keys(), text.keys(), arguments)
            client, code, _ = pair("bw", "-n", "10", "--json", f"{folder}/bw.json")
            self.assert_ok(client, code)
            self.assertIn("BW average", client.stdout)
            self.assertIn("results", json.loads(pathlib.Path(folder, "bw.json").read_text("utf-8")))
            # doctor takes the word after --json as a file to read, and must not overwrite it.
            kept = pathlib.Path(folder, "bw.json").read_text("utf-8")
            done = run("doctor", "--json", f"{folder}/bw.json")
            self.assertEqual(done.returncode, 2)
            self.assertEqual(pathlib.Path(folder, "bw.json").read_text("utf-8"), kept)


class Choices(Cli):
    def test_the_clients_congestion_control_is_used_at_both_ends(self):
        with Server("bw") as server:
            client = run("bw", "-p", server.port, "-n", "10", "--json", "127.0.0.1",
                         PACECAR_CC="swift")
            self.assert_ok(client, server.finish()[0])
        result = json.loads(client.stdout)["results"]
        for end in ("client", "server"):
            self.assertEqual(result[end]["congestion_control"]["name"], "swift")

    def test_another_congestion_control_of_the_server_is_reported(self):
        with Server("bw", PACECAR_CC="swift") as server:
            client = run("bw", "-p", server.port, "-n", "10", "127.0.0.1")
            self.assert_ok(client, server.finish()[0])
        self.assertIn("the congestion control is pace here and swift at the server", client.stderr)

    def test_an_empty_host_is_refused(self):
        client = run("bw", "")
        self.assertEqual(client.returncode, 2)
        self.assert_one_sentence(client, "the server's name is empty")

    def test_a_rate_needs_its_unit(self):
        done = run("sim", "--topology", "leaf-spine:hosts=8,rate=400", *SMALL[3:])
        self.assertEqual(done.returncode, 2)
        self.assert_one_sentence(done, "a rate with its unit such as 400G")


class Interrupted(Cli):
    """Ctrl-C: the results so far are printed and written."""

    def test_sizes_that_were_measured_stay(self):
        for turn in range(draws(4)):
            with tempfile.TemporaryDirectory() as folder, Server("lat") as server:
                file = pathlib.Path(folder, "lat.json")
                client = subprocess.Popen(
                    [cli_test.PROGRAM, "lat", "-p", server.port, "-a", "-n", "50",
                     "--out_json_file", file, "127.0.0.1"], env=environment(), text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(2 + turn):
                    client.stdout.readline()
                client.send_signal(signal.SIGINT)
                _, errors = client.communicate(timeout=LIMIT_S)
                self.assertEqual(client.returncode, 0, errors)
                results = json.loads(file.read_text("utf-8"))["results"]
                self.assertGreaterEqual(len(results) if turn else 1, 1 + turn)

    def test_a_run_that_fails_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "bw.json")
            failed = run("bw", "-p", "1", "--out_json_file", str(file), "127.0.0.1")
            self.assertEqual((failed.returncode, file.exists()), (1, False))

    def interrupt(self, process, until):
        while until not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("interrupted", errors)
        return output

    def until_sigint_is_caught(self, process):
        caught = re.compile(r"^SigCgt:\s+([0-9a-f]+)$", re.MULTILINE)
        while True:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text("ascii")
            if int(caught.search(status)[1], 16) >> (signal.SIGINT - 1) & 1:
                return
            self.assertIsNone(process.poll())

    def client(self, test, server, folder, *flags):
        return subprocess.Popen(
            [cli_test.PROGRAM, test, "-p", server.port, "--interval", "0.05", "--json",
             f"{folder}/out.json", *flags, "127.0.0.1"], env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_an_interrupted_test_prints_its_results(self):
        for test, unit, flags in (("bw", "MiB/sec", ("-D", "600")),
                                  ("bw", "MiB/sec", ("-n", "1000000000")),
                                  ("bw", "MiB/sec", ("-D", "600", "-b", "-q", "2")),
                                  ("bw", "MiB/sec", ("-D", "5", "--run_infinitely")),
                                  ("lat", "usec", ("-D", "600")),
                                  ("lat", "usec", ("-n", "1000000000"))):
            with tempfile.TemporaryDirectory() as folder, Server(test) as server:
                output = self.interrupt(self.client(test, server, folder, *flags), unit)
                rows = output.splitlines()[1:]
                self.assertGreaterEqual(len(rows), 1, (test, flags))
                self.assertGreater(float(rows[0].split()[3]), 0)
                written = json.loads(pathlib.Path(folder, "out.json").read_text("utf-8"))
                self.assertTrue(written["results"], (test, flags))
                self.assertEqual(server.finish()[0], 0, (test, flags))

    def test_an_interrupted_simulation_prints_its_results(self):
        with tempfile.NamedTemporaryFile() as trace:
            process = subprocess.Popen(
                [cli_test.PROGRAM, "sim", "--topology", "leaf-spine:hosts=64,rate=400G",
                 "--workload", "all_to_all:bytes=1GB", "--json", "--trace", trace.name],
                env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while process.poll() is None and pathlib.Path(trace.name).stat().st_size == 0:
                time.sleep(0.01)  # until flows have begun
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 3, errors)
        self.assertIn("interrupted", errors)
        self.assertTrue(json.loads(output)["flows"])


class Arguments(Cli):
    def test_each_refusal_names_its_argument(self):
        for arguments, code, sentence in (
                (["-W", "nosuch", "127.0.0.1"], 2, "-W nosuch: .*choose from .*packets_sent"),
                (["-d", "eth9"], 1, "-d names 'eth9', but there is no such NIC"),
                (["[fe80::1]"], 2, "link-local address: add .* fe80::1%eth0"),
                (["-D", "5m"], 2, "--duration: '5m' is not a number of seconds"),
                (["localhost:x"], 2, "'localhost:x': after the colon give the server's port"),
                (["-p", "1", "localhost:2"], 2, "'localhost:2': after the .* no other by -p")):
            done = run("bw", *arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assert_one_sentence(done, sentence)
        for host in ("[::1]:1", "[::1]"):
            self.assertIn("on [::1] port 1,", run("bw", "-p", "1", host).stderr)

    def test_a_port_may_follow_the_host(self):
        for host in ("127.0.0.1", "localhost"):
            with Server("bw") as server:
                client = run("bw", "-n", "5", f"{host}:{server.port}")
                self.assert_ok(client, server.finish()[0])

    def test_seconds_may_have_their_unit(self):
        with Server("bw") as server:
            client = run("bw", "-p", server.port, "-D", "0.2s", "127.0.0.1")
            self.assert_ok(client, server.finish()[0])

    def test_few_large_messages_need_few_buffers(self):
        with Server("bw") as server:
            client = run("bw", "-p", server.port, "-s", "128M", "-n", "3", "127.0.0.1")
            self.assert_ok(client, server.finish()[0])


    def test_a_server_leaves_the_interface_of_its_link_local_address_to_the_client(self):
        alone = ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec"]
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no user namespaces here: sysctl -w kernel.unprivileged_userns_clone=1")
        script = ("ip link add nic0 type veth peer name nic1; ip link set nic1 up; "
                  "ip link set nic0 up; "
                  "until ip address show dev nic0 -tentative | grep -q fe80; do sleep 0.1; done; "
                  'exec "$0" bw')
        with subprocess.Popen([*alone, script, cli_test.PROGRAM], text=True,
                              env=environment(PACECAR_NICS="soft:udp:nic0"),
                              stderr=subprocess.PIPE) as server:
            said = [server.stderr.readline() for _ in range(2)]
            server.kill()
        self.assertRegex(said[1], r"at fe80::[0-9a-f:]+%\(its interface\).* on port", said)


class Simulations(Cli):
    @unittest.skipIf("TESTS_SLOWER" in os.environ, "a sanitizer reserves more memory")
    def test_a_limit_of_memory_is_one_sentence(self):
        limit = 400 << 20
        done = subprocess.run(
            [cli_test.PROGRAM, "sim", "--topology", "leaf-spine:hosts=20000,rate=100G",
             "--workload", "incast:senders=8,bytes=1MB"], env=environment(), text=True,
            capture_output=True, timeout=LIMIT_S, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assert_one_sentence(done, "there is not enough memory: .*ulimit -v")

    def test_kinds_may_be_written_with_other_dashes(self):
        for kind in ("all_to_all", "alltoall", "all-to-all"):
            done = run("sim", "--topology", "leaf_spine:hosts=4,rate=10G", "--workload",
                       f"{kind}:bytes=1KB")
            self.assertEqual(done.returncode, 0, done.stderr)
        done = run("predict", "--hosts", "2", "--op", "all-to-all", "--sizes", "1M")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_each_refusal_names_a_value_that_serves(self):
        star = ("--topology", "star:hosts=4,rate=10G")
        for arguments, sentence in (
                (("--topology", "fat-tree:radix=4,hosts=17", "--workload", "incast:bytes=1MB"),
                 "hosts is 17, but switches of 4 ports carry at most 16"),
                ((*star, "--workload", "incast:senders=0,bytes=1MB"), "senders.* 1 "),
                ((*star, "--workload", "incast:bytes=1MB", "--json", "/dev/full"),
                 "'/dev/full' cannot be read: .* or a device")):
            done = run("sim", *arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assert_one_sentence(done, sentence)

    def test_a_specification_may_come_through_a_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = f"{folder}/pipe"
            os.mkfifo(pipe)
            writer = threading.Thread(target=pathlib.Path(pipe).write_text, args=(
                'topology = {kind = "star", hosts = 4, rate = "10G"}\n'
                'workload = {kind = "incast", bytes = 1000}\n',))
            writer.start()
            self.assertEqual(run("sim", pipe).returncode, 0)
            writer.join()


class Sentences(Cli):
    def test_a_missed_threshold_has_its_figures_and_unit(self):
        for test, flags, sentence in (
                ("bw", ("-n", "10", "--min-gbits", "9000"), r"Gb/s is below the 9000 of --min-"),
                ("bw", ("-n", "10", "-w", "9e6"), r"MiB/sec is below the 9e\+06 of --limit_bw"),
                ("lat", ("-n", "10", "--max-usec", "1e-3"), "us is above the 0.001 of --max-usec")):
            client, _, _ = pair(test, *flags)
            self.assertEqual(client.returncode, 3)
            self.assert_one_sentence(client, rf"messages of \d+ bytes: [\d.]+ {sentence}")

    def test_the_banner_says_where_a_setting_came_from(self):
        with Server("bw") as server:
            client = run("bw", "-p", server.port, "-n", "10", "127.0.0.1", PACECAR_CC="swift")
            self.assert_ok(client, server.finish()[0])
        self.assertIn("PACECAR_CC=swift (environment)", client.stderr)

    def test_packets_that_were_sent_again_are_reported(self):
        with Server("bw", PACECAR_FAULT="loss=0.05,seed=1") as server:
            client = run("bw", "-p", server.port, "-n", "300", "127.0.0.1")
            self.assert_ok(client, server.finish()[0])
        self.assertRegex(client.stderr, r"% of the packets were sent again")

    def test_few_messages_have_no_limit(self):
        client, code, _ = pair("bw", "-n", "1")
        self.assert_ok(client, code)
        self.assertNotIn("limited by", client.stderr)

    def test_long_work_draws_its_progress(self):
        for arguments, unit in ((("predict", "--hosts", "1000", "--op", "all"), "predictions"),
                                (("plan", HETHUB, "--nodes", "300"),
                                 "shapes")):
            self.assertRegex(self.drawn_by(*arguments), rf"\[#*\.+\] +\d+% +\d+ of .* {unit}")

    def test_each_subcommand_prints_the_version(self):
        described = json.loads(run("--describe").stdout)
        names = {one["name"] for one in described["subcommands"]}
        for subcommand in names - {"check-plugin"}:  # its --version is that of a table
            done = run(subcommand, "--version")
            self.assertEqual((done.returncode, done.stderr), (0, ""), subcommand)
            self.assertRegex(done.stdout, r"\Apacecar \d", subcommand)

    def test_all_intervals_are_printed(self):
        for _ in range(draws(3)):
            client, code, _ = pair("bw", "-D", "1", "--interval", "0.25")
            self.assert_ok(client, code)
            printed = re.findall(r"^ *([\d.]+) - +([\d.]+) s", client.stderr, re.MULTILINE)
            ends = ["0.00", *(end for _, end in printed)]
            self.assertEqual([begin for begin, _ in printed], ends[:-1], client.stderr)
            self.assertGreater(float(ends[-1]), 0.97, client.stderr)

    def test_errors_of_doctor_name_the_cause(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder, "bad.json")
            bad.write_text('{"a":', "utf-8")
            alone = {"PACECAR_STATE_DIR": folder}
            for arguments, changes, sentence in (
                    (["--pid", "1"], alone, "process 1 serves no state"),
                    (["--pid", "1073741823"], alone, "there is no process 1073741823"),
                    ([str(bad)], {}, "is not what 'pacecar doctor --json' of this version writes"),
                    ([], {"PACECAR_STATE_DIR": folder + "/no"}, "STATE_DIR: .*is not there"),
                    ([], {"PACECAR_STATE_DIR": str(bad)}, "STATE_DIR: .*Not a directory")):
                done = run("doctor", *arguments, **changes)
                self.assertEqual(done.returncode, 2, arguments)
                self.assert_one_sentence(done, sentence)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_a_missing_plugin_is_one_sentence(self):
        for arguments, sentence in (([], "which plugin"), (["/no/such.so"], "'/no/such.so'")):
            done = run("check-plugin", *arguments)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assert_one_sentence(done, sentence)

    def test_misspelled_words_are_corrected_in_the_error(self):
        for arguments, sentence in (
                (["bw", "--rate_limt", "5", "host"], "no flag '--rate_limt' .*'--rate_limit'"),
                (["bw", "-Z", "5", "host"], "there is no flag '-Z'"),
                (["bw", "-Z", "-p", "5", "host"], "there is no flag '-Z'"),
                (["bw", "host", "another"], "'another' is one word too many"),
                (["sim", "--topolgy", "x"], "did you mean '--topology'"),
                (["docter"], "did you mean 'doctor'")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assert_one_sentence(done, sentence)
        self.assertIn("did you mean PACECAR_NICS", run("info", "-c", PACECAR_NIC="lo").stderr)

    def test_version_prints_commit_compiler_and_back_ends(self):
        printed = run("--version").stdout
        self.assertRegex(printed, r"\Apacecar \d+\.\d+\.\d+ \(commit \S+, \S+ [\d.]+\)\n"
                                  r"back ends: .*simulator.*\n\Z")


if __name__ == "__main__":
    cli_test.PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
