"""The OCI image of this build, unpacked by umoci, run by crun. image_test.py BUILD_FOLDER.

Containers run as in the manifests: with the image's user, without capabilities, and only /tmp is
writable. They share a network namespace of the test's own.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path()
LAYOUT = BUNDLE = NAME = None
ANSWER_LIMIT_S = 30
SKIPPED = 77
INSIDE = "IMAGE_TEST_INSIDE"
FLAGS = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
NEEDED = ("crun", "dh", "umoci")
FAST = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1",
        "DEB_BUILD_OPTIONS": "noautodbgsym"}


def run(*command, **changes):
    done = subprocess.run(command, env={**os.environ, **changes}, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def setUpModule():
    global LAYOUT, BUNDLE, NAME
    LAYOUT, BUNDLE = FOLDER / "layout", FOLDER / "bundle"
    LAYOUT.mkdir()
    run("tar", "--extract", "--file", FOLDER / "image.tar", "--directory", LAYOUT)
    manifest, = json.loads((LAYOUT / "index.json").read_text("utf-8"))["manifests"]
    NAME = manifest["annotations"]["org.opencontainers.image.ref.name"]
    run("umoci", "unpack", "--image", f"{LAYOUT}:{NAME}", BUNDLE)
    run("ip", "link", "set", "lo", "up")
    # crun reads this mount, though it makes no group, and refuses a mix of cgroup versions.
    run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")


def container(name, *command, **environment):
    """The arguments for Popen that run `command` in a container."""
    spec = json.loads((BUNDLE / "config.json").read_text("utf-8"))
    process = spec["process"]
    process["terminal"] = False
    process["args"] = list(command)
    process["env"] += [f"{key}={value}" for key, value in
                       {"PACECAR_NICS": "soft:udp:lo", **environment}.items()]
    process["noNewPrivileges"] = True
    process["capabilities"] = {}
    process.pop("rlimits", None)
    spec["root"] = {"path": str(BUNDLE / "rootfs"), "readonly": True}
    spec["mounts"] = [mount for mount in spec["mounts"]
                      if mount["destination"] not in ("/tmp", "/sys/fs/cgroup")]
    spec["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
                           "options": ["nosuid", "nodev", "mode=1777"]})
    linux = spec["linux"]
    linux.pop("resources", None)
    linux["namespaces"] = [one for one in linux["namespaces"]
                           if one["type"] not in ("network", "cgroup")]
    own = FOLDER / name
    own.mkdir()
    (own / "config.json").write_text(json.dumps(spec), "utf-8")
    return crun("run", "--bundle", own, name)


def crun(*command):
    return ["crun", "--root", FOLDER / "crun", "--cgroup-manager", "disabled", *command]


class Image(unittest.TestCase):
    def test_metadata_names_image_and_user(self):
        manifest, = json.loads((LAYOUT / "index.json").read_text("utf-8"))["manifests"]
        self.assertEqual(manifest["annotations"]["io.containerd.image.name"],
                         f"docker.io/library/{NAME}")
        config = self.blob(self.blob(manifest)["config"])["config"]
        self.assertEqual(config["Entrypoint"], ["pacecar"])
        self.assertEqual(config["User"], "65532:65532")
        self.assertEqual(list(config["Volumes"]), ["/tmp"])
        labels = {key.rpartition(".")[2]: value for key, value in config["Labels"].items()}
        self.assertEqual(f"{labels['title']}:{labels['version']}", NAME)
        self.assertEqual(labels["licenses"], "Apache-2.0")

    @staticmethod
    def blob(descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        return json.loads((LAYOUT / "blobs" / algorithm / digest).read_text("utf-8"))

    def test_manifests_name_the_image(self):
        """all-reduce.yaml names one of the user's own, which has NCCL."""
        for path in (SOURCE / "deploy/kubernetes").glob("*.yaml"):
            own = path.name == "all-reduce.yaml"
            expected = NAME.replace("pacecar:", "pacecar-with-nccl:") if own else NAME
            names = re.findall(r"image: (\S+)", path.read_text("utf-8"))
            self.assertEqual(set(names), {expected}, path.name)

    def test_packages_are_listed(self):
        listed = {path.name for path in (BUNDLE / "rootfs/var/lib/dpkg/status.d").iterdir()}
        self.assertLessEqual({"pacecar", "nccl-net-pacecar", "libc6", "libibverbs1"}, listed)

    def test_all_files_belong_to_root(self):
        self.assertEqual(run("find", BUNDLE / "rootfs", "!", "-user", "0"), "")


class Containers(unittest.TestCase):
    def test_version(self):
        project = (SOURCE / "CMakeLists.txt").read_text("utf-8")
        version = re.search(r"project\(pacecar VERSION (\S+)", project).group(1)
        self.assertEqual(run(*container("version", "pacecar", "--version")).split()[1], version)

    def test_libibverbs_is_available(self):
        printed = json.loads(run(*container("info", "pacecar", "info", "--json")))
        self.assertTrue(printed["libibverbs"]["available"], printed["libibverbs"])

    def test_bandwidth_between_two(self):
        server = subprocess.Popen(
            container("server", "pacecar", "bw", "-p", "0", "--run_infinitely"),
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(subprocess.run, crun("kill", "server", "KILL"), capture_output=True)
        port = None
        while not port:
            line = server.stderr.readline()
            self.assertTrue(line, "the server ended")
            port = re.search(r"on port (\d+)", line)
        printed = run(*container("client", "pacecar", "bw", "-n", "200", "-p", port.group(1),
                                 "127.0.0.1"))
        self.assertRegex(printed, r"\n 65536 +200 +[\d.]+")
        run(*crun("kill", "server", "TERM"))  # to the container's first process
        self.assertEqual(server.wait(ANSWER_LIMIT_S), 128 + signal.SIGTERM)

    def test_plugin_is_found_by_name(self):
        printed = run(*container("rules", "pacecar", "check-plugin", "libnccl-net-pacecar.so",
                                 "--only", "sizes"))
        self.assertIn("\n0 of ", printed)

    def test_tools_of_the_manifests_exist(self):
        run(*container("tools", "sh", "-c", "command -v chmod && command -v sleep"))

    def test_host_names_are_resolved(self):
        done = subprocess.run(container("names", "pacecar", "bw", "-p", "1", "localhost"),
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertIn("nobody listens on localhost", done.stderr)


def main():
    missing = [program for program in NEEDED if not shutil.which(program)]
    if missing:
        print(f"skipped: no {', '.join(missing)} here: apt-get install crun debhelper umoci")
        sys.exit(SKIPPED)
    if os.geteuid() or subprocess.run(["unshare", *FLAGS, "true"], check=False).returncode:
        print("skipped: run as root, where namespaces can be made")
        sys.exit(SKIPPED)
    for name in [name for name in os.environ if name.startswith("PACECAR_")]:
        del os.environ[name]
    build, *flags = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="pacecar-image-", dir="/var/tmp") as folder:
        print(run(SOURCE / "deploy/image/build", "--build", build, "--output",
                  f"{folder}/image.tar", **FAST), end="", flush=True)
        os.environ[INSIDE] = folder
        done = subprocess.run(["setpriv", "--pdeathsig", "KILL",  # no process outlives this one
                               "unshare", *FLAGS, sys.executable, "-B", __file__, *flags],
                              check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        main()
    FOLDER = pathlib.Path(os.environ[INSIDE])
    unittest.main()
