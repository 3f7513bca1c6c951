"""Runs the real `pacecar metrics` on real processes, and Debian's Prometheus on it:
metrics_test.py PROGRAM RANK.

Nothing here asserts a speed. Time limits are bounds on hanging.
"""

import contextlib
import json
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True  # the module lies beside the sources

import jobs
from limits import LIMIT_S

PROGRAM = ""
RANK = ""
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "metrics"


class Case(jobs.JobCase):
    def start_pair(self):
        """Two ranks that send to each other, of which one is late."""
        ranks = [self.start(RANK, kind, RANK=str(rank))
                 for rank, kind in enumerate(["eager", "late"])]
        handles = [rank.stdout.readline() for rank in ranks]
        for rank, handle in zip(ranks, reversed(handles)):
            rank.stdin.write(handle)
            rank.stdin.flush()
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "connected\n")
        return ranks

    def metrics(self, *arguments, **changes):
        return subprocess.run([PROGRAM, "metrics", *arguments], env=self.environment(**changes),
                              text=True, capture_output=True, timeout=LIMIT_S, check=False)

    def listen(self, *arguments):
        """Starts the exporter; returns it and its URL."""
        exporter = self.start(PROGRAM, "metrics", *arguments)
        line = exporter.stderr.readline()
        found = re.search(r"serving (https?://\S+/metrics)", line)
        self.assertTrue(found, line)
        return exporter, found.group(1)

    def check_text(self, text):
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                 capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))


def fetch(url):
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


class Job(Case):
    def test_all_processes_of_the_host_are_exported(self):
        self.start_pair()
        for text in (self.metrics().stdout, fetch(self.listen("--listen", "0")[1])[1]):
            self.check_text(text)
            self.assertIn("\npacecar_processes 2\n", text)
            for rank in "0", "1":
                labels = f'program="doctor_rank",rank="{rank}",process="0",nic="soft:udp:lo"'
                self.assertIn(f'\npacecar_connections{{{labels},cc="pace",direction="send"}} 1\n',
                              text)

    @staticmethod
    def ask(path, request):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            with contextlib.suppress(BrokenPipeError):
                caller.sendall(request)
            answer = b""
            while part := caller.recv(65536):
                answer += part
        return answer.decode()

    def test_each_process_serves_its_state_over_http(self):
        self.start_pair()
        for path in self.state.iterdir():
            answer = ""
            while not answer.startswith("HTTP/"):  # a late request gets the state document
                answer = self.ask(path, b"GET /summary HTTP/1.1\r\nHost: pacecar\r\n\r\n")
            head, _, text = answer.partition("\r\n\r\n")
            self.assertTrue(head.startswith("HTTP/1.0 200 OK\r\n"), head)
            self.assertEqual(json.loads(text)["nics"][0]["name"], "soft:udp:lo")

    def test_the_page_is_prometheus_text_and_others_are_not_there(self):
        _, url = self.listen("--listen", "127.0.0.1:0")
        kind, _ = fetch(url)
        self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            fetch(url + "/nope")
        self.assertEqual(refused.exception.code, 404)

    def test_a_stopped_process_is_counted_and_does_not_delay_the_others(self):
        ranks = self.start_pair()
        ranks[0].send_signal(signal.SIGSTOP)
        for _ in range(2):
            text = self.metrics().stdout
            self.assertIn("\npacecar_silent_processes 1\n", text)
            self.assertIn("\npacecar_processes 1\n", text)
            self.assertIn('rank="1"', text)

    @unittest.skipUnless(shutil.which("prometheus-node-exporter"), "there is no node_exporter")
    def test_node_exporter_reads_the_file(self):
        self.start_pair()
        file = self.root / "pacecar.prom"
        self.assertEqual(self.metrics("--textfile", str(file)).returncode, 0)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.start("prometheus-node-exporter", f"--web.listen-address={address}",
                   f"--collector.textfile.directory={self.root}", "--collector.disable-defaults",
                   "--collector.textfile")
        give_up = time.monotonic() + LIMIT_S
        while True:
            try:
                text = fetch(f"http://{address}/metrics")[1]
                break
            except urllib.error.HTTPError as error:
                self.fail(error.read().decode())
            except urllib.error.URLError:
                self.assertLess(time.monotonic(), give_up)
                time.sleep(0.05)
        self.assertIn("\nnode_textfile_scrape_error 0\n", text)
        self.assertIn("\npacecar_processes 2\n", text)
        self.assertRegex(text, r'\npacecar_connections\{.*direction="send".*\} 1\n')

    def test_the_file_is_replaced_at_each_interval(self):
        file = self.root / "pacecar.prom"
        self.assertEqual(self.metrics("--textfile", str(file)).returncode, 0)
        self.check_text(file.read_text())
        self.assertEqual(file.stat().st_mode & 0o777, 0o644)
        first = file.stat().st_ino
        writing = self.start(PROGRAM, "metrics", "--textfile", str(file), "--interval", "1")
        give_up = time.monotonic() + LIMIT_S
        seen = {first}
        while len(seen) < 3 and time.monotonic() < give_up:
            with contextlib.suppress(FileNotFoundError):
                seen.add(file.stat().st_ino)
            time.sleep(0.05)
        writing.send_signal(signal.SIGTERM)
        self.assertEqual(writing.wait(timeout=LIMIT_S), 0)
        self.check_text(file.read_text())
        self.assertEqual([f.name for f in self.root.iterdir() if ".prom" in f.name],
                         ["pacecar.prom"])


class Hostile(Case):
    def answer(self, document):
        """Output and errors of `pacecar metrics` when a process answers with `document`."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.state / "7-0.sock"))
            server.listen()
            asking = self.start(PROGRAM, "metrics")
            caller, _ = server.accept()
            with contextlib.suppress(OSError):
                caller.sendall(document)
            caller.close()
            output, errors = asking.communicate(timeout=LIMIT_S)
        (self.state / "7-0.sock").unlink()
        self.assertEqual(asking.returncode, 0, errors)
        self.check_text(output)
        return output, errors

    def test_an_unreadable_document_is_one_warning_and_counted(self):
        for document in (b"x", b'{"schema_version": 1, "host": "\x1b[2J"}', b"[" * 80000,
                         b'{"schema_version": 1, "nics": ' + b"[" * 80000 + b"]" * 80000 + b"}"):
            output, errors = self.answer(document)
            self.assertIn("\npacecar_unreadable_processes 1\n", output)
            self.assertRegex(errors, r"\Awarning: pid 7: .*\n\Z")
            self.assertNotIn("\x1b[2J", errors)

    def test_an_endless_answer_counts_as_silence(self):
        output, errors = self.answer(b" " * (4 << 20))
        self.assertIn("\npacecar_silent_processes 1\n", output)
        self.assertEqual(errors, "")

    def test_silent_and_malformed_requests_do_not_block_others(self):
        _, url = self.listen("--listen", "0")
        address = ("127.0.0.1", urllib.parse.urlsplit(url).port)
        silent = [socket.create_connection(address) for _ in range(8)]
        for words in (b"\0" * 100000, b"GET " + b"/" * 100000, b"POST /metrics HTTP/1.1\r\n\r\n",
                      b"GET /metrics HTTP/9.9\r\n\r\n", b"\r\n" * 1000):
            with socket.create_connection(address) as caller, contextlib.suppress(OSError):
                caller.sendall(words)
        self.assertIn("pacecar_processes 0\n", fetch(url)[1])
        for caller in silent:
            caller.close()


    def test_clients_that_send_slowly_block_nobody_and_no_end(self):
        exporter, url = self.listen("--listen", "0")
        address = ("127.0.0.1", urllib.parse.urlsplit(url).port)
        slow = [socket.create_connection(address) for _ in range(8)]
        over = threading.Event()

        def drip():
            while not over.wait(0.5):
                for caller in slow:
                    with contextlib.suppress(OSError):
                        caller.send(b"x")
        dripping = threading.Thread(target=drip)
        dripping.start()
        self.addCleanup(dripping.join)
        self.addCleanup(over.set)
        self.assertIn("pacecar_processes 0\n", fetch(url)[1])
        exporter.send_signal(signal.SIGTERM)
        self.assertEqual(exporter.wait(timeout=LIMIT_S), 0)
        over.set()
        for caller in slow:
            caller.close()


class CommandLine(Case):
    def test_wrong_usage_is_one_sentence(self):
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        port = str(taken.getsockname()[1])
        for code, arguments in (
                (2, ["--nope"]), (2, ["--listen", "x:y"]), (2, ["--listen", "65536"]),
                (2, ["--listen", "0.0.0.0:0"]), (2, ["--listen", "[::]:0"]),
                (2, ["--listen", "--tls-cert", "/nope", "--tls-key", "/nope"]),
                (2, ["--tls-key", "x"]), (2, ["--interval", "5"]),
                (2, ["--textfile", "x.txt"]), (1, ["--textfile", "/nope/x.prom"]),
                (2, ["--textfile", "x.prom", "--interval", "-1"]),
                (2, ["--listen", "--textfile", "x.prom"]), (1, ["--listen", port])):
            process = self.metrics(*arguments)
            self.assertEqual((process.returncode, process.stdout), (code, ""), arguments)
            self.assertRegex(process.stderr, r"\Aerror: .*\n\Z", arguments)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            process = subprocess.run([PROGRAM, "metrics"], env=self.environment(), stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                                     check=False)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr, r"\Aerror: cannot write .*\n\Z")

    def test_a_disabled_state_directory_is_an_error(self):
        process = self.metrics(PACECAR_STATE_DIR="none")
        self.assertEqual((process.returncode, process.stdout), (2, ""))
        self.assertRegex(process.stderr, r"\Aerror: PACECAR_STATE_DIR is none.*\n\Z")

    def test_signals_end_the_exporter(self):
        for end in signal.SIGINT, signal.SIGTERM:
            exporter, _ = self.listen("--listen", "0")
            exporter.send_signal(end)
            self.assertEqual(exporter.wait(timeout=LIMIT_S), 0)


@unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
class Tls(Case):
    def certificate(self, name):
        files = [str(self.root / f"{name}.{end}") for end in ("pem", "key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout",
                        files[1]], capture_output=True, timeout=LIMIT_S, check=True)
        return files

    def test_https_with_and_without_client_certificates(self):
        cert, key = self.certificate("server")
        client, client_key = self.certificate("client")
        _, url = self.listen("--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key)
        url = url.replace("0.0.0.0", "127.0.0.1")
        self.assertTrue(url.startswith("https://"))
        trust = ssl.create_default_context(cafile=cert)
        with urllib.request.urlopen(url, context=trust, timeout=LIMIT_S) as answer:
            self.assertIn(b"pacecar_processes 0\n", answer.read())

        _, url = self.listen("--listen", "0", "--tls-cert", cert, "--tls-key", key,
                             "--tls-client-ca", client)
        with self.assertRaises(OSError):
            urllib.request.urlopen(url, context=trust, timeout=LIMIT_S)
        trust.load_cert_chain(client, client_key)
        with urllib.request.urlopen(url, context=trust, timeout=LIMIT_S) as answer:
            self.assertIn(b"pacecar_processes 0\n", answer.read())


@unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed")
class Prometheus(Case):
    def start_prometheus(self, target):
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(DEPLOY / "alerts.yml")],
                  "scrape_configs": [{"job_name": "pacecar",
                                      "static_configs": [{"targets": [target]}]}]}
        file = self.root / "prometheus.yml"
        file.write_text(json.dumps(config))  # JSON is YAML
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = open(self.root / "prometheus.log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.root}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression):
        url = f"{self.api}/query?" + urllib.parse.urlencode({"query": expression})
        try:
            return json.loads(fetch(url)[1])["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # Prometheus is starting
                raise
            self.fail(f"{expression}: {error.read().decode()}")

    def until(self, expression, wanted=bool):
        give_up = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(urllib.error.URLError):
                result = self.query(expression)
                if wanted(result):
                    return result
            if time.monotonic() > give_up:
                self.fail(f"{expression}: {(self.root / 'prometheus.log').read_text()[-2000:]}")
            time.sleep(0.1)

    def start_stream(self):
        server = self.start(PROGRAM, "bw", "-p", "0", "-D", "600")
        port = None
        while port is None:
            line = server.stderr.readline()
            self.assertTrue(line, "the server ended")
            port = re.search(r"on port (\d+)", line)
        self.start(PROGRAM, "bw", "-p", port.group(1), "-D", "600", "-q", "2", "127.0.0.1")

    def test_every_query_of_dashboard_and_rules_works_on_a_real_job(self):
        self.start_stream()
        _, url = self.listen("--listen", "0")
        target = urllib.parse.urlsplit(url).netloc
        self.api = self.start_prometheus(target)
        self.until("sum(rate(pacecar_sent_bytes_total[10s])) > 1e6")
        self.until("pacecar_processes == 2")
        self.until('sum(pacecar_connections{direction="send"}) == 2')

        queries = self.queries_of_the_dashboard()
        self.assertGreater(len(queries), 20)
        # Queries of device counters have no result with software NICs.
        empty_here = {"topk"}
        for expression in queries:
            if any(expression.startswith(word) for word in empty_here):
                self.query(expression)
            else:
                self.until(expression)  # again and again: a late scrape leaves a gap

        rules = json.loads(fetch(f"{self.api}/rules")[1])["data"]["groups"][0]["rules"]
        self.assertGreater(len(rules), 5)
        for rule in rules:
            self.assertNotEqual(rule["health"], "err", rule)
            self.query(rule["query"])

    @staticmethod
    def queries_of_the_dashboard():
        dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
        values = {"$__rate_interval": "10s", "$instance": ".*", "$nic": ".*"}
        queries = []
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in values.items():
                    expression = expression.replace(name, value)
                assert "$" not in expression, expression
                queries.append(expression)
        return queries

    def test_promtool_accepts_the_rules(self):
        for arguments in (["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"],
                          ["test", "rules", "alerts_test.yml"]):
            checked = subprocess.run(["promtool", *arguments], cwd=DEPLOY, capture_output=True,
                                     text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_rules_and_dashboard_name_only_existing_metrics(self):
        known = set(re.findall(r"^# TYPE (\S+)", self.metrics().stdout, re.MULTILINE))
        files = [(DEPLOY / name).read_text() for name in ("alerts.yml", "dashboard.json")]
        named = set(re.findall(r"\bpacecar_[a-z_]+", "".join(files)))
        self.assertGreater(len(named), 15)
        self.assertEqual(named - known, set())
        # Other names could clash with those of the program that serves the file.
        self.assertEqual({name for name in known if not name.startswith("pacecar_")}, set())


if __name__ == "__main__":
    PROGRAM, RANK = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
