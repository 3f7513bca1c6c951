"""The manifests of deploy/kubernetes: kubernetes_test.py PACECAR BUILD.

The tests check each manifest against the schemas of the API, its references to other documents, and
its commands, which run unchanged, with their environment, in a network namespace that has the pods'
interface and the services' names.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from limits import LIMIT_S

DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"  # another Python may run this
SKIPPED = 77
INSIDE = "KUBERNETES_TEST_INSIDE"
FLAGS = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
ADDRESS = "192.0.2.1"
# The values that the kubelet would fill in.
FIELDS = {"metadata.uid": "8d5e0a2c"}
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
PROGRAMS = BUILD = ""

sys.path.append(DEBIAN_PACKAGES)
try:
    import yaml

    import kubernetes_schema
except ImportError as missing:
    print(f"{missing}: install python3-kubernetes and python3-yaml", file=sys.stderr)
    sys.exit(SKIPPED)


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


def every_document():
    return [(path.name, document) for path in sorted(FOLDER.glob("*.yaml"))
            for document in documents(path.name)]


def named(name, kind, document_name):
    found, = (document for document in documents(name)
              if document["kind"] == kind and document["metadata"]["name"] == document_name)
    return found


def pod_of(document):
    """(labels, spec) of the pods that a document creates; None: it creates none."""
    template = document if document["kind"] == "Pod" else document["spec"].get("template")
    return template and (template["metadata"]["labels"], template["spec"])


def containers_of(spec):
    return spec["containers"] + spec.get("initContainers", [])


class Schemas(unittest.TestCase):
    def test_every_document_matches_its_schema(self):
        self.assertGreater(len(every_document()), 6)
        for name, document in every_document():
            with self.subTest(f"{name}, {document['kind']}"):
                self.assertEqual(kubernetes_schema.problems(document), [])

    def test_checker_finds_each_mistake(self):
        def problems(change):
            document = named("bw.yaml", "Job", "pacecar-bw")
            change(document, document["spec"]["template"]["spec"])
            return "; ".join(kubernetes_schema.problems(document))

        for change, wanted in (
                (lambda job, pod: pod.update(restartPolice="Never"), "no field restartPolice"),
                (lambda job, pod: pod["containers"][0].update(args="bw"), "'bw' is no list"),
                (lambda job, pod: pod["containers"][0]["args"].append(5), "5 is no str"),
                (lambda job, pod: job["spec"].update(backoffLimit="10"), "'10' is no int"),
                (lambda job, pod: job["spec"].update(suspend=1), "1 is no bool"),
                (lambda job, pod: pod.update(hostNetwork="true"), "'true' is no bool"),
                (lambda job, pod: pod["containers"][0].pop("name"), "`name`, must not be `None`"),
                (lambda job, pod: pod.update(containers={}), "{} is no list"),
                (lambda job, pod: job.update(kind="Jop"), "no kind Jop"),
                (lambda job, pod: job.update(apiVersion="apps/v1"), "no kind Job in apps/v1")):
            self.assertIn(wanted, problems(change))


class References(unittest.TestCase):
    def test_services_find_pods_and_their_ports(self):
        pods = [pod_of(document) for _, document in every_document() if pod_of(document)]
        for name, service in every_document():
            if service["kind"] != "Service":
                continue
            wanted = service["spec"]["selector"].items()
            found = [spec for labels, spec in pods if wanted <= labels.items()]
            self.assertEqual(len(found), 1, f"{name}: {service['metadata']['name']}")
            ports = {port["name"]: port["containerPort"]
                     for container in found[0]["containers"] for port in container["ports"]}
            for port in service["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])

    def test_controllers_select_their_pods(self):
        for name, document in every_document():
            if document["kind"] == "DaemonSet":
                selector = document["spec"]["selector"]["matchLabels"]
                self.assertLessEqual(selector.items(), pod_of(document)[0].items(), name)

    def test_client_avoids_the_servers_node(self):
        _, client = pod_of(named("bw.yaml", "Job", "pacecar-bw"))
        server, _ = pod_of(named("bw.yaml", "Pod", "pacecar-bw-server"))
        rule, = client["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertLessEqual(rule["labelSelector"]["matchLabels"].items(), server.items())

    def test_rank_names_match_job_and_service(self):
        job = named("all-reduce.yaml", "Job", "pacecar-all-reduce")
        _, spec = pod_of(job)
        service, = (document["metadata"]["name"] for document in documents("all-reduce.yaml")
                    if document["kind"] == "Service")
        self.assertEqual(spec["subdomain"], service)
        values = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
        self.assertEqual(values["MASTER_ADDR"], f"{job['metadata']['name']}-0.{service}")
        self.assertEqual({values["WORLD_SIZE"]},
                         {str(job["spec"]["completions"]), str(job["spec"]["parallelism"])})

    def test_containers(self):
        images = set()
        for name, document in every_document():
            if not pod_of(document):
                continue
            _, spec = pod_of(document)
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            self.assertIs(spec["automountServiceAccountToken"], False, name)
            for container in containers_of(spec):
                images.add(container["image"])
                security = container["securityContext"]
                self.assertEqual(security["capabilities"]["drop"], ["ALL"], name)
                self.assertIs(security["allowPrivilegeEscalation"], False, name)
                self.assertIs(security["readOnlyRootFilesystem"], True, name)
                mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
                self.assertLessEqual(mounted, volumes, name)
                ports = {port["name"] for port in container.get("ports", [])}
                probe = container.get("livenessProbe", {}).get("tcpSocket", {}).get("port")
                self.assertLessEqual({probe} - {None}, ports, name)
        self.assertEqual(len(images), 2, images)  # one has NCCL


@contextlib.contextmanager
def running(spec, index="0"):
    """Runs a pod's container as a process of this machine."""
    process = subprocess.Popen(command_of(spec["containers"][0]), text=True,
                               env=environment_of(spec["containers"][0], index),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def environment_of(container, index):
    fields = {**FIELDS, INDEX: index}
    values = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}",
              "LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"], "JOB_INDEX": index}
    for item in container.get("env", []):
        values[item["name"]] = (item["value"] if "value" in item
                                else fields[item["valueFrom"]["fieldRef"]["fieldPath"]])
    return values


def command_of(container, index="0"):
    values = environment_of(container, index)
    words = container.get("command", ["pacecar"]) + container.get("args", [])
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found.group(1)], word) for word in words]


def enter():
    """Runs this program again in its own namespaces where these can be made."""
    if os.environ.get(INSIDE):
        return
    for flags, who in ((FLAGS, "root"), ((*FLAGS, "--map-root-user"), "anybody")):
        if subprocess.run(["unshare", *flags, "true"], check=False,
                          capture_output=True).returncode == 0:
            os.environ[INSIDE] = who
            os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])


@unittest.skipUnless(os.environ.get(INSIDE), "no namespaces can be made: run as root")
class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")  # one test mounts a folder over /tmp
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.folder.chmod(0o755)
        names = ["pacecar-bw", "pacecar-all-reduce-0.pacecar-all-reduce"]
        hosts = cls.folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {' '.join(names)}\n")
        for command in (f"mount --bind {hosts} /etc/hosts", "ip link set lo up",
                        "ip link add eth0 type veth peer name far0",
                        f"ip address add {ADDRESS}/24 dev eth0", "ip link set eth0 up",
                        "ip link set far0 up"):
            subprocess.run(command.split(), check=True)

    def finish(self, process):
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, output)
        return output

    def until(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"{what} after {LIMIT_S} s")
            time.sleep(0.05)

    def until_listening(self, port):
        def listens():
            with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port)):
                return True
        self.until(listens, f"nobody listens on port {port}")

    def test_bw(self):
        _, server = pod_of(named("bw.yaml", "Pod", "pacecar-bw-server"))
        _, client = pod_of(named("bw.yaml", "Job", "pacecar-bw"))
        with running(server):
            self.until_listening(server["containers"][0]["ports"][0]["containerPort"])
            arguments = client["containers"][0]["args"]
            arguments[arguments.index("-D") + 1] = "0.2"  # the only change of the command
            with running(client) as process:
                self.assertRegex(self.finish(process), r"\n 1048576 +\d+ +[\d.]+")

    def test_all_reduce(self):
        made = subprocess.run([ROOT / "bench/nccl/cpu_device/get_nccl", "2.29.7"], text=True,
                              capture_output=True, check=False)
        if made.returncode:
            self.skipTest(made.stderr)
        program = self.folder / "pacecar-nccl"
        program.write_text(f'#!/bin/sh\nexec "{ROOT}/bench/nccl/run" --build "{BUILD}" "$@"\n')
        program.chmod(0o755)
        job = named("all-reduce.yaml", "Job", "pacecar-all-reduce")
        _, spec = pod_of(job)
        with contextlib.ExitStack() as stack:
            ranks = [self.rank(stack, spec, str(index), made.stdout.strip())
                     for index in range(job["spec"]["completions"])]
            output, *_ = [self.finish(rank) for rank in ranks]
        self.assertIn("Pacecar on soft:udp:eth0 (", output)
        rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        self.assertEqual([row["bytes"] for row in rows], [1024 << 2 * i for i in range(8)])
        self.assertEqual({row["wrong"] for row in rows}, {0})

    def rank(self, stack, spec, index, nccl):
        container = dict(spec["containers"][0])
        container["args"] = [nccl if word == "/nccl" else word
                             for word in command_of(container, index)[1:]]
        container["command"] = [str(self.folder / "pacecar-nccl")]
        return stack.enter_context(running({"containers": [container]}, index))

    def test_metrics(self):
        _, spec = pod_of(named("metrics.yaml", "DaemonSet", "pacecar-metrics"))
        template = named("metrics.yaml", "DaemonSet", "pacecar-metrics")["spec"]["template"]
        annotations = template["metadata"]["annotations"]
        port = spec["containers"][0]["ports"][0]["containerPort"]
        self.assertEqual(str(port), annotations["prometheus.io/port"])
        with running(spec):
            self.until_listening(port)
            url = f"http://{ADDRESS}:{port}{annotations['prometheus.io/path']}"
            with urllib.request.urlopen(url, timeout=LIMIT_S) as page:
                self.assertIn(b"pacecar_processes ", page.read())

    def test_preflight(self):
        _, spec = pod_of(named("metrics.yaml", "DaemonSet", "pacecar-preflight"))
        with running(spec) as process:
            comm = pathlib.Path(f"/proc/{process.pid}/comm")
            self.until(lambda: comm.read_text() == "sleep\n", "preflight has not ended")
            process.terminate()
            self.assertIn("  versions  ", process.stdout.read())

    @unittest.skipUnless(os.environ.get(INSIDE) == "root", "no users to change to: run as root")
    def test_exporter_needs_its_capability_to_see_other_users_jobs(self):
        _, spec = pod_of(named("metrics.yaml", "DaemonSet", "pacecar-metrics"))
        container = spec["containers"][0]
        kept, = container["securityContext"]["capabilities"]["add"]
        state = self.folder / "state"
        state.mkdir()
        init, = spec["initContainers"]
        subprocess.run([*init["command"][:-1], state], check=True)
        pacecar = shutil.copy(shutil.which("pacecar", path=PROGRAMS), self.folder)
        job = subprocess.Popen(["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups",
                                pacecar, "bw", "-p", "0", "--run_infinitely"], text=True,
                               env={"PACECAR_NICS": "soft:udp:lo",
                                    "PACECAR_STATE_DIR": str(state / "pacecar-8d5e0a2c")},
                               stderr=subprocess.PIPE)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        while "on port" not in job.stderr.readline():
            self.assertIsNone(job.poll())
        for capabilities, processes in ((f"-all,+{kept.lower()}", 1), ("-all", 0)):
            page = subprocess.run(
                ["unshare", "--mount", "sh", "-c", f"mount --bind {state} /tmp && exec \"$@\"",
                 "sh", "setpriv", f"--bounding-set={capabilities}", pacecar, "metrics"],
                capture_output=True, text=True, check=False, timeout=LIMIT_S)
            self.assertIn(f"\npacecar_processes {processes}\n", page.stdout, page.stderr)


if __name__ == "__main__":
    enter()
    pacecar, BUILD = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    PROGRAMS = os.path.dirname(pacecar)
    os.environ["LD_LIBRARY_PATH"] = f"{BUILD}/net_plugin"
    unittest.main()
