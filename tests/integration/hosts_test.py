"""`pacecar bw`, `lat`, `preflight`, `doctor` and `top` with --hosts: over real sshds in network
namespaces, and with stand-ins for srun and kubectl: hosts_test.py PROGRAM [unittest flags].

No test asserts a speed, except that a link that is shaped to a small part of the others is named.
Tests that need namespaces are skipped, with the reason, where none can be made.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True  # the modules are beside the sources

import chromium
from limits import LIMIT_S
import sshd_hosts

PROGRAM = ""
# Acknowledgements share the shaped link, so other hosts may also send slowly to this host.
SLOW = "(sends slowly to|is slow in both directions with)"
WHY_NO_HOSTS = sshd_hosts.missing()


def environment(**changes):
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("PACECAR_", "SLURM_")) and k != "NO_COLOR"}
    return {**clean, **changes}


def run(*command, **changes):
    return subprocess.run(command, env=environment(**changes), text=True, capture_output=True,
                          timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)


def command_of(pid):
    """The arguments of the process; empty: it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []


class CommandLine(unittest.TestCase):
    """Tests without remote hosts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def stand_in(self, name):
        """A program of this name that records its arguments and runs PROGRAM with its arguments."""
        script = self.root / name
        script.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >>"$0.words"\n'
                          f'while [ "$1" != "{PROGRAM}" ]; do shift; done\nexec "$@"\n')
        script.chmod(0o755)
        return script

    def test_mistakes_are_one_sentence(self):
        listed = self.root / "hosts.txt"
        listed.write_text("gpu01\ngpu02 speed=9\n")
        twice = self.root / "twice.txt"
        twice.write_text("gpu01\ngpu01\n")
        for arguments, words in (
                (["bw", "--hosts", "gpu01"], "--hosts names gpu01 alone"),
                (["bw", "--hosts", str(listed)], f"{listed}, line 2: 'speed=9' is not known"),
                (["lat", "--hosts", str(twice)], "line 2: 'gpu01' is named twice"),
                (["bw", "--hosts", "gpu[1-"], "does not close it"),
                (["bw", "--hosts", "slurm"], "SLURM_JOB_NODELIST is not set"),
                (["bw", "--hosts", "-oX,b"], "'-oX' is no host"),
                (["bw", "--hosts", "a,b", "--launch", "'"], "--launch: "),
                (["bw", "--hosts", "a,b", "--pairs", "some"], "some"),
                (["bw", "--hosts", "a,b", "--bind", "::"], "--bind excludes --hosts"),
                (["bw", "--least", "0.8"], "--hosts"),
                (["bw", "--hosts", "a,b", "c"], "host"),
                (["bw", "--hsots", "a,b"], "did you mean '--hosts'?"),
                (["preflight", "--hosts", "a,,b"], "has an empty name"),
                (["doctor", "--hosts", "a,b", "--pid", "7"], "--pid"),
                (["top", "--once", "--hosts", "gpu[1-"], "does not close it")):
            process = run(PROGRAM, *arguments)
            self.assertEqual(process.returncode, 2, arguments)
            self.assertRegex(process.stderr, r"\Aerror: .*\n\Z", arguments)
            self.assertIn(words, process.stderr, arguments)
        process = run(PROGRAM, "bw", "--hosts", "a,b", "--html", "/no/such/folder/x.html")
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r"\Aerror: cannot write .*\n\Z")

    def test_unreachable_hosts_are_named(self):
        process = run(PROGRAM, "bw", "--hosts", "a,b", "--launch", "/no/such/launcher")
        self.assertEqual(process.returncode, 1)
        self.assertIn("error: a: cannot run /no/such/launcher", process.stderr)
        process = run(PROGRAM, "lat", "--hosts", "a,b", "--launch", "sh -c 'sleep 600' {host}",
                      "--reach", "0.3")
        self.assertEqual(process.returncode, 1)
        self.assertIn("error: b: it has not answered within 0.3 s: does 'sh -c", process.stderr)

    def test_failed_agent_is_named_with_cause_and_cure(self):
        for script, words in (
                ("echo pacecar: command not found >&2; exit 127", "it has no pacecar (exit 127"),
                ("echo \"error: there is no subcommand 'agent'\" >&2; exit 2",
                 "knows no --hosts: install the one of this host"),
                ('echo \'{"type":"welcome","protocol":99,"release":"9.9","machine":"x"}\'; cat',
                 "another version of pacecar (there 9.9, here "),
                ("echo Permission denied >&2; exit 255",
                 "it cannot be reached (exit 255: Permission denied): does '"),
                ("echo Welcome; echo bye >&2", "it cannot be reached (exit 0: bye)")):
            file = self.root / "agent"
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
            process = run(PROGRAM, "bw", "--hosts", "a,b", "--launch", f"{file} {{host}}")
            self.assertEqual(process.returncode, 1, script)
            self.assertIn(words, process.stderr, script)
            self.assertIn("none of the 2 hosts has answered", process.stderr)

    def launch_hostile(self, address, results, real="none"):
        """--launch by which all hosts are hostile, except `real`."""
        agent = pathlib.Path(__file__).with_name("hostile_agent.py")
        release = run(PROGRAM, "--version").stdout.split()[1]
        script = self.root / "reach"
        script.write_text(f"#!/bin/sh\n[ $1 = {real} ] && exec {PROGRAM} agent\n"
                          f"exec python3 {agent} {release} of-$1 {address} '{results}'\n")
        script.chmod(0o755)
        return ["--launch", f"{script} {{host}}"]

    def test_address_of_a_host_is_no_flag_on_another(self):
        precious = self.root / "precious"
        precious.write_text("precious")
        process = run(PROGRAM, "bw", "--hosts", "a,b", "--pair-limit", "3", "-n", "1",
                      *self.launch_hostile(f"--announce={precious}", "[]", real="b"),
                      PACECAR_NICS="soft:udp:lo")
        self.assertEqual(process.returncode, 1, process.stdout + process.stderr)
        self.assertEqual(precious.read_text(), "precious")
        self.assertRegex(process.stdout, "host '--announce=.*' has no address")

    def test_results_of_another_form_do_not_end_preflight(self):
        for results in "[1]", '{"client": {"counters": {"packets_sent": "x"}}}', '{"server": 1}':
            process = run(PROGRAM, "preflight", "--hosts", "a,b",
                          *self.launch_hostile("192.0.2.1", results))
            self.assertIn("Paths: 1 of 1 carry", process.stdout, process.stderr)

    def test_srun_and_kubectl_get_their_arguments(self):
        path = f"{self.root}:{os.environ['PATH']}"
        for name, words in (("srun", "--nodes=1 --ntasks=1 --overlap --unbuffered --nodelist=n2"),
                            ("kubectl", "exec -i n2 --")):
            script = self.stand_in(name)
            process = run(PROGRAM, "bw", "--hosts", "slurm", "--launch", name, "--remote", PROGRAM,
                          "-n", "10", PATH=path, SLURM_JOB_NODELIST="n[1-2]",
                          PACECAR_NICS="soft:udp:lo")
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertIn("warning: n1 and n2 are the same machine", process.stderr)
            self.assertIn(f"{words} {PROGRAM} agent\n",
                          pathlib.Path(f"{script}.words").read_text())

    def test_flags_reach_both_ends_and_variables_stay_out_of_arguments(self):
        script = self.stand_in("launch")
        file = self.root / "m.json"
        process = run(PROGRAM, "bw", "--hosts", "n1,n2", "--launch", str(script), "--remote",
                      PROGRAM, "-n", "10", "-s", "8K", "-q", "2", "-b", "--data_validation",
                      "--json", str(file), PACECAR_NICS="soft:udp:lo", PACECAR_CC="swift")
        self.assertEqual(process.returncode, 0, process.stderr)
        document = json.loads(file.read_text())
        self.assertEqual(len(document["pairs"]), 2)
        for pair in document["pairs"]:
            self.assertEqual(pair["results"]["MsgSize"], 8192)
            # 10 of each of two connections, in both directions.
            self.assertEqual(pair["results"]["n_iterations"], 40)
            for end in "client", "server":
                self.assertEqual(pair["results"][end]["congestion_control"]["name"], "swift")
        self.assertNotIn("swift", pathlib.Path(f"{script}.words").read_text())

    def test_missed_threshold_is_exit_code_3(self):
        script = self.stand_in("launch")
        common = ["--hosts", "n1,n2", "--launch", str(script), "--remote", PROGRAM, "-n", "10"]
        process = run(PROGRAM, "bw", *common, "--min-gbits", "1e6", PACECAR_NICS="soft:udp:lo")
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertRegex(process.stdout, "! n1 -> n2: messages of .* is (below|above) the .* of --")

    def test_agent_ends_with_its_input(self):
        process = run(PROGRAM, "agent")
        self.assertEqual((process.returncode, process.stdout, process.stderr), (0, "", ""))
        for nonsense in "GET / HTTP/1.1\n", '{"type":7}\n', "{}\n", "[]\n", '{"type":"run"}\n':
            process = subprocess.run([PROGRAM, "agent"], input=nonsense, text=True,
                                     capture_output=True, timeout=LIMIT_S, check=False)
            self.assertEqual((process.returncode, process.stdout), (0, ""), nonsense)


@unittest.skipIf(WHY_NO_HOSTS, WHY_NO_HOSTS)
class WithHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(sshd_hosts.Hosts())
        cls.root = cls.hosts.root

    def words(self, *arguments, hosts="gpu[01-04]"):
        # ssh between processes that wait for a processor takes longer than between hosts.
        return self.hosts.within(0, PROGRAM, *arguments, "--hosts", hosts, "--launch",
                                 self.hosts.launch, "--remote", PROGRAM, "--reach", str(LIMIT_S))

    def pacecar(self, *arguments, hosts="gpu[01-04]", **changes):
        return run(*self.words(*arguments, hosts=hosts), **changes)

    def programs(self, host=None):
        """{pid: words} of this program's processes on the hosts, or on one of them."""
        words = {pid: command_of(pid) for number in (range(1, 5) if host is None else [host])
                 for pid in self.hosts.processes(number)}
        return {pid: one for pid, one in words.items()
                if one and one[0] in (PROGRAM, "/proc/self/exe")}


class OverSsh(WithHosts):
    def test_a_slow_link_is_named(self):
        listed = self.root / "hosts.txt"
        listed.write_text("# all four\ngpu01\nroot@gpu02\ngpu03 slots=8\n"
                          f"gpu04 addr={self.hosts.address(4)}\n")
        self.hosts.shape(3, "10mbit")
        self.addCleanup(self.hosts.unshape, 3)
        matrix, page = self.root / "m.json", self.root / "m.html"
        # Small messages: those under way at the end take the slow link long.
        process = self.pacecar("bw", "-D", "0.5", "-s", "8K", "--rate_limit", "0.2", "--rate_units",
                               "g", "--json", str(matrix), "--html",
                               str(page), "--least", "0.5", hosts=str(listed))
        self.assertEqual(process.returncode, 3, process.stdout + process.stderr)
        self.assertIn("4 hosts, 12 measurements in 6 rounds: about ", process.stderr)
        self.assertRegex(process.stdout,
                         f"! gpu03 {SLOW} every peer: \\d+% below a typical pair")
        self.assertRegex(process.stdout, r"! gpu03 -> gpu01 misses --least 0.5: ")
        document = json.loads(matrix.read_text())
        self.assertEqual(len(document["pairs"]), 12)
        # A host whose processors were busy may look slow, too, but never as slow.
        slow = [one for one in document["slow_hosts"] if one["sends"]]
        self.assertEqual(min(slow, key=lambda one: one["value"])["host"], 2)
        self.assertTrue(all(pair["value"] > 0 for pair in document["pairs"]))
        self.look_at(page)

    def look_at(self, page):
        if not chromium.installed():
            return
        with chromium.Browser() as browser:
            browser.open(page)
            text = browser.evaluate("document.querySelector('main').innerText")
            self.assertIn("pacecar bw between 4 hosts", text)
            self.assertRegex(text, f"gpu03 {SLOW} every peer")
            words = browser.evaluate("""(() => {
              const canvas = document.querySelector("[data-plot=matrix] canvas");
              const { left, top, width, height } = canvas.getBoundingClientRect();
              canvas.dispatchEvent(new PointerEvent("pointermove",
                { clientX: left + Math.min(110, width * 0.28) + 40, clientY: top + 24 + 84 + 10 }));
              return document.querySelector(".readout").innerText;
            })()""")
            self.assertRegex(words, r"gpu01 → gpu02: .* Gb/s, ")
            self.assertEqual(browser.complaints, [])
            self.assertEqual(browser.requests, [f"file://{page}"])

    def test_latency_around_a_ring(self):
        process = self.pacecar("lat", "-n", "100", "--pairs", "ring", hosts="gpu[01-03]")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("3 hosts, 6 measurements in 6 rounds", process.stderr)
        self.assertRegex(process.stdout, r"half a round trip in us: rows send, columns receive\n")

    def test_failed_host_does_not_stop_the_others(self):
        process = self.pacecar("bw", "-n", "100", hosts="gpu[01-02],gpu77")
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r"error: gpu77: it cannot be reached \(exit 255")
        self.assertRegex(process.stdout, r"\ngpu01 +\d[\d.]+ +-\n")
        self.assertIn("! gpu77 is lost: ", process.stdout)

    def test_address_of_no_nic_is_refused(self):
        listed = self.root / "wrong.txt"
        listed.write_text("gpu01\ngpu02\ngpu03 addr=198.51.100.3\n")
        process = self.pacecar("bw", "-n", "100", hosts=str(listed))
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r"error: gpu03: none of its NICs has the address "
                                         r"198\.51\.100\.3: it has soft:udp:eth0 \(192\.0\.2\.13\)")

    def test_loopback_nic_is_refused(self):
        process = self.pacecar("bw", "-n", "100", "-d", "soft:udp:lo", hosts="gpu[01-02]")
        self.assertEqual(process.returncode, 1)
        self.assertIn("serves at 127.0.0.1, where others cannot reach it: name its NIC",
                      process.stdout)

    def test_cluster_key_reaches_the_hosts(self):
        key = self.root / "cluster.key"
        key.write_bytes(os.urandom(32).hex().encode())
        key.chmod(0o600)
        process = self.pacecar("bw", "-n", "100", hosts="gpu[01-02]", PACECAR_KEY_FILE=str(key))
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)

    def test_preflight_compares_the_hosts(self):
        subprocess.run(self.hosts.within(2, "ip", "link", "set", "eth0", "mtu", "1400"), check=True)
        file = self.root / "preflight.json"
        process = self.pacecar("preflight", "--only", "mtu,software,limits", "--json", str(file))
        subprocess.run(self.hosts.within(2, "ip", "link", "set", "eth0", "mtu", "1500"), check=True)
        self.assertIn(process.returncode, (0, 1, 3), process.stderr)
        self.assertRegex(process.stdout, r"differs  eth0 MTU: 1500 on 3 of 4 hosts \(not gpu02\); "
                                         r"1400 on gpu02\n")
        document = json.loads(file.read_text())
        self.assertEqual([host["name"] for host in document["hosts"]],
                         ["gpu01", "gpu02", "gpu03", "gpu04"])
        worst = {"ok": 0, "info": 0, "warning": 3, "error": 1}[document["worst"]]
        self.assertEqual(process.returncode, worst)

    def test_preflight_tries_the_paths(self):
        process = self.pacecar("preflight", hosts="gpu[01-03]")
        self.assertIn("Paths: 3 of 3 carry a job's packets.\n", process.stdout)
        large = ("OUTPUT", "-p", "udp", "-m", "length", "--length", "1301:65535", "-j", "DROP")
        subprocess.run(self.hosts.within(1, "iptables", "-A", *large), check=True)
        process = self.pacecar("preflight", hosts="gpu[01-02]")
        subprocess.run(self.hosts.within(1, "iptables", "-D", *large), check=True)
        self.assertRegex(process.stdout, "warning +between gpu01 and gpu02 over soft:udp:eth0: "
                                         "gpu01: packets above 1280 bytes do not pass to")
        rule = ("INPUT", "-p", "udp", "-s", "192.0.2.12", "-j", "DROP")
        subprocess.run(self.hosts.within(1, "iptables", "-A", *rule), check=True)
        process = self.pacecar("preflight", hosts="gpu[01-03]", PACECAR_PORTS="40000-40063")
        subprocess.run(self.hosts.within(1, "iptables", "-D", *rule), check=True)
        self.assertEqual(process.returncode, 1, process.stdout + process.stderr)
        self.assertIn("Paths: 2 of 3 carry a job's packets.\n", process.stdout)
        self.assertRegex(process.stdout, r"error +between gpu01 and gpu02 over soft:udp:eth0: .*"
                                         r"192\.0\.2\.1[12]:400\d\d.*\(UDP\).*firewall")

    def test_top_and_doctor_show_remote_processes(self):
        state = self.root / "state"
        state.mkdir(mode=0o700, exist_ok=True)
        nic = {"PACECAR_STATE_DIR": str(state)}
        serve = self.hosts.within(1, PROGRAM, "bw", "-p", "0", "--run_infinitely")
        server = subprocess.Popen(serve, env=environment(**nic), text=True, stderr=subprocess.PIPE)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stderr.close)
        while not re.search(r"on port (\d+)", server.stderr.readline()):
            pass
        remote = self.root / "remote"
        remote.write_text(f"#!/bin/sh\nPACECAR_STATE_DIR={state} exec {PROGRAM} \"$@\"\n")
        remote.chmod(0o755)
        flags = ["--hosts", "gpu[01-02]", "--launch", self.hosts.launch, "--remote", str(remote)]
        process = run(*self.hosts.within(0, PROGRAM, "top", "--once", "--interval", "0.2", *flags))
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertIn("2 hosts, ", process.stdout)
        self.assertIn(f"pid {server.pid}", process.stdout)
        process = run(*self.hosts.within(0, PROGRAM, "doctor", "--watch", "0", "--json", *flags))
        self.assertIn(process.returncode, (0, 1), process.stderr)
        seen = json.loads(process.stdout)["processes"]
        self.assertEqual({one["now"]["pid"] for one in seen}, {server.pid})
        flags[1] = "gpu[01-02],gpu77"
        process = run(*self.hosts.within(0, PROGRAM, "doctor", "--watch", "0", "--json", *flags))
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual([one["name"] for one in json.loads(process.stdout)["lost"]], ["gpu77"])
        process = run(*self.hosts.within(0, PROGRAM, "top", "--once", "--hosts", "gpu77",
                                         "--launch", self.hosts.launch))
        self.assertEqual(process.returncode, 1)
        self.assertIn("! gpu77: it cannot be reached (exit 255: ssh: ", process.stdout)


class LostHosts(WithHosts):
    def until_all_have_ended(self):
        give_up = time.monotonic() + LIMIT_S
        while left := self.programs():
            if time.monotonic() > give_up:
                self.fail(f"still running: {left}")
            time.sleep(0.2)

    def start(self, seconds, *flags):
        # Slowly: what these tests look at is not the traffic.
        command = self.words("bw", "-D", str(seconds), "--rate_limit", "0.1", "--rate_units", "g",
                             *flags)
        process = subprocess.Popen(command, env=environment(), text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stderr.readline(), "reaching 4 hosts by ssh\n")
        self.assertIn("4 hosts, 12 measurements in 6 rounds", process.stderr.readline())
        return process

    def start_endless(self):
        """Once programs measure on each host, however late this process sees them."""
        process = self.start(2 * LIMIT_S)
        while not all(any("--quiet" in one for one in self.programs(host).values())
                      for host in range(1, 5)):
            self.assertIsNone(process.poll(), "it ended instead of measuring")
            time.sleep(0.2)
        return process

    def test_ctrl_c_ends_all_processes_of_the_hosts(self):
        process = self.start_endless()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT_S)
        self.assertIn("interrupted", errors)
        self.assertNotIn("failed", output)
        self.until_all_have_ended()

    def test_kill_ends_all_processes_of_the_hosts(self):
        process = self.start_endless()
        process.kill()
        process.communicate(timeout=LIMIT_S)
        self.until_all_have_ended()

    def test_host_whose_agent_dies_is_lost_and_the_others_continue(self):
        process = self.start(1)
        for pid, words in self.programs(2).items():
            if "agent" in words:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("! gpu02 is lost: its agent has ended", output)
        self.assertRegex(output, r"gpu01 +(-|\d[\d.]+) +\d[\d.]+ +\d")
        self.until_all_have_ended()

    def test_a_server_that_is_killed_is_named_with_its_signal(self):
        process = self.start(5)
        servers = {}
        while not servers:
            self.assertIsNone(process.poll(), "it ended without a server on the second host")
            servers = {pid: words for pid, words in self.programs(2).items()
                       if "--quiet" in words and "--json=-" not in words}
            time.sleep(0.1)
        time.sleep(1)  # its client measures
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(output + errors, r"gpu02: it was ended by signal 9")
        self.until_all_have_ended()

    def test_a_host_that_has_not_answered_is_lost_at_ctrl_c(self):
        report = self.root / "report.json"
        process = subprocess.Popen(
            self.words("preflight", "--only", "fabric", "--watch", "4", f"--json={report}"),
            env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        stopped = {}
        while not stopped:
            self.assertIsNone(process.poll(), "it ended without looking at the second host")
            stopped = {pid: words for pid, words in self.programs(2).items()
                       if "preflight" in words}
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(8)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT_S)
        self.assertIn("Ready: 3 of 4", output.replace("Not ready", "Ready"), errors)
        lost = json.loads(report.read_text("utf-8"))["lost"]
        self.assertEqual([(one["name"], one["why"]) for one in lost], [("gpu02", "interrupted")])

    def test_ctrl_c_while_preflight_tries_the_paths_is_no_success(self):
        process = subprocess.Popen(self.words("preflight"), env=environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        while not any("bw" in words for words in self.programs(1).values()):
            self.assertIsNone(process.poll(), "it ended without trying the paths")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("interrupted: not all paths have been tried", errors)
        self.until_all_have_ended()

    def test_hung_host_is_lost_after_one_measurement(self):
        process = self.start(1, "--pair-limit", "4")
        stopped = self.programs(2)
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        output, errors = process.communicate(timeout=LIMIT_S)
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.assertEqual(process.returncode, 1)
        self.assertIn("! gpu02 is lost: its agent does not answer any more", output, errors)
        self.until_all_have_ended()


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
