"""The Debian packages of this build, installed in a clean Debian: packages_test.py BUILD_FOLDER.

The Debian lies in memory, in namespaces of the test's own, so nothing of it is left behind.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from limits import LIMIT_S

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = SCRATCH = DEBS = ROOT = pathlib.Path()
LIBRARIES = ""
SKIPPED = 77
INSIDE = "PACKAGES_TEST_INSIDE"
NEEDED = ("debhelper:dh", "lintian:lintian", "mmdebstrap:mmdebstrap")
FAST = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
OLD = "0.0.1"
ANYBODY = "nobody:nogroup"
LINT = SERVER = PLANNED = None


def clean(**changes):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return {**kept, "PACECAR_NICS": "soft:udp:lo", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8", **changes}


def start(*command, **changes):
    return subprocess.Popen(command, env=clean(**changes), text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process):
    output, errors = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def must(done):
    if done.returncode != 0:
        raise AssertionError(f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run(*command, **changes):
    return must(finish(start(*command, **changes)))


def in_root(*command, user="root:root"):
    return ("chroot", f"--userspec={user}", ROOT, *command)


def try_there(*command, user=ANYBODY, **changes):
    return finish(start(*in_root(*command, user=user), **changes))


def apt_get(*arguments):
    return run(*in_root("apt-get", "--yes", *arguments), DEBIAN_FRONTEND="noninteractive")


def install(folder, *names, flags=()):
    files = [f"/{folder}/{next((ROOT / folder).glob(f'{name}_*.deb')).name}" for name in names]
    return apt_get("install", *flags, *files)


def make_old(name):
    """The package under an older version."""
    unpacked = SCRATCH / "old"
    run("dpkg-deb", "--raw-extract", next(DEBS.glob(f"{name}_*.deb")), unpacked)
    control = unpacked / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*", f"Version: {OLD}", control.read_text("utf-8")),
                       "utf-8")
    run("dpkg-deb", "--build", "-Znone", unpacked, ROOT / "old")
    shutil.rmtree(unpacked)


def make_root_and_packages():
    global LINT
    release = dict(line.split("=", 1) for line in
                   pathlib.Path("/etc/os-release").read_text("utf-8").splitlines() if line)
    root = start("mmdebstrap", "--mode=root", "--variant=apt", "--skip=cleanup/apt",
                 "--dpkgopt=force-unsafe-io", release["VERSION_CODENAME"], ROOT)
    run(SOURCE / "deploy/debian/build", "--build", BUILD, "--output", DEBS,
        DEB_BUILD_OPTIONS="noautodbgsym", **FAST)
    LINT = start("lintian", "--allow-root", "--fail-on", "error,warning", *DEBS.glob("*.deb"))
    made = finish(root)
    if made.returncode != 0 and "apt-get update" in made.stderr:
        print("skipped: no mirror of Debian can be reached")
        sys.exit(SKIPPED)
    must(made)
    for folder in ("dev", "proc", "sys"):
        run("mount", "--rbind", f"/{folder}", ROOT / folder)
    shutil.copytree(DEBS, ROOT / "new")
    (ROOT / "old").mkdir()


def setUpModule():
    global SCRATCH, DEBS, ROOT, LIBRARIES, SERVER, PLANNED
    SCRATCH = BUILD / "packages_test"
    SCRATCH.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "none", SCRATCH)
    DEBS = SCRATCH / "debs"
    ROOT = SCRATCH / "root"
    LIBRARIES = "usr/lib/" + run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    make_root_and_packages()
    PLANNED = install("new", "pacecar", "nccl-net-pacecar", flags=["--simulate"])
    for name in ("pacecar", "nccl-net-pacecar"):
        make_old(name)
    install("old", "pacecar", "nccl-net-pacecar", flags=["--no-install-recommends"])
    SERVER = Server("bw")  # it runs while the packages are replaced
    unittest.addModuleCleanup(SERVER.end)
    install("new", "pacecar", "nccl-net-pacecar")


class Server:
    """A server of `pacecar bw` or `lat` on a free port."""

    def __init__(self, test):
        self.process = start(*in_root("pacecar", test, "-p", "0", user=ANYBODY))
        self.port = None
        for line in self.process.stderr:
            if found := re.search(r"on port (\d+)", line):
                self.port = found.group(1)
                return

    def end(self):
        self.process.kill()
        self.process.communicate()


class Installed(unittest.TestCase):
    def info(self):
        return json.loads(must(try_there("pacecar", "info", "--json")))

    def refusal(self, nic):
        done = try_there("pacecar", "info", "-d", nic)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def measure(self, test, server):
        output = must(try_there("pacecar", test, "-n", "100", "-p", server.port, "127.0.0.1"))
        self.assertIn("#bytes", output)
        must(finish(server.process))

    def test_lintian_finds_no_fault(self):
        done = finish(LINT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_version_is_that_of_the_project(self):
        printed = must(try_there("pacecar", "--version")).split()[1]
        packaged = run("dpkg-query", f"--admindir={ROOT}/var/lib/dpkg", "--show",
                       "--showformat=${Version}", "pacecar")
        project = (SOURCE / "CMakeLists.txt").read_text("utf-8")
        self.assertEqual((printed, packaged), (packaged, re.search(
            r"project\(pacecar VERSION (\S+)", project).group(1)))

    def test_bw_works_with_a_server_older_than_the_upgrade(self):
        self.measure("bw", SERVER)

    def test_lat_works(self):
        server = Server("lat")
        self.addCleanup(server.end)
        self.measure("lat", server)

    def test_plugin_is_found_by_name_where_nccl_looks(self):
        for name in ("nccl", "rccl"):
            must(try_there("pacecar", "check-plugin", f"/{LIBRARIES}/lib{name}-net-pacecar.so",
                           "--only", "sizes"))
            self.assertIn(f"lib{name}-net-pacecar.so", run(*in_root("ldconfig", "-p")))

    def test_manual_plans_and_alerts_are_installed(self):
        for page in ("man1/pacecar-bw.1", "man5/pacecar.conf.5"):
            self.assertTrue((ROOT / f"usr/share/man/{page}.gz").is_file(), page)
        must(try_there("pacecar", "ab", "/usr/share/pacecar/plans/smoke.toml", "--dry-run"))
        self.assertTrue((ROOT / "usr/share/pacecar/metrics/alerts.yml").is_file())

    def test_bash_completes_subcommands(self):
        script = ("source /usr/share/bash-completion/completions/pacecar; "
                  "COMP_WORDS=(pacecar pre); COMP_CWORD=1; _pacecar; echo ${COMPREPLY[*]}")
        self.assertCountEqual(must(try_there("bash", "-c", script)).split(),
                              ["preflight", "predict"])

    def test_missing_back_ends_are_named_by_existing_packages(self):
        for nic, names in (("soft:dpdk:net_vhost0", ["pacecar-dpdk"]), ("ofi:tcp", ["libfabric1"]),
                           ("mlx5_0", [])):
            sentence = self.refusal(nic)
            for name in names:
                self.assertIn(f"({name})", sentence)
        reason = self.info()["libibverbs"]["reason"]
        self.assertIn("(libibverbs1, ibverbs-providers)", reason)
        run(*in_root("apt-cache", "show", "libibverbs1", "ibverbs-providers", "libfabric1"))

    def test_rdma_is_installed_by_default_and_dpdk_is_not(self):
        self.assertIn("Inst ibverbs-providers ", PLANNED)
        for name in ("librte-", "libfabric"):
            self.assertNotIn(f"Inst {name}", PLANNED)

    def test_dpdk_is_found_with_its_package(self):
        install("new", "pacecar-dpdk", flags=["--no-install-recommends"])
        self.addCleanup(apt_get, "purge", "--autoremove", "pacecar-dpdk")
        document = self.info()["dpdk"]
        self.assertTrue(document["available"], document)
        self.assertIn("(librte-meta-net)", self.refusal("soft:dpdk:net_vhost0"))

    def test_pacecar_run_finds_the_verbs_device_with_its_package(self):
        install("new", "libibverbs-pacecar", flags=["--no-install-recommends"])
        self.addCleanup(apt_get, "purge", "--autoremove", "libibverbs-pacecar")
        shown = must(try_there("pacecar", "run", "--show", "--", "true"))
        self.assertRegex(shown, r"^LD_PRELOAD=/usr/lib/[\w-]+/pacecar/verbs/libpacecar-verbs\.so$")

    def test_nccl_runs_without_a_gpu_with_its_package(self):
        made = finish(start(SOURCE / "bench/nccl/cpu_device/get_nccl", "2.29.7"))
        if made.returncode != 0:
            self.skipTest(made.stderr)
        shutil.copytree(made.stdout.strip(), ROOT / "nccl")
        install("new", "pacecar-nccl", flags=["--no-install-recommends"])
        self.addCleanup(apt_get, "purge", "--autoremove", "pacecar-nccl")
        shown = must(try_there("pacecar-nccl", "--cpu", "--nccl", "/nccl", "--ops", "allreduce",
                               "--sizes", "8", "--rounds", "1", "--arms", "socket,soft:udp:lo"))
        self.assertIn("wrong elements: 0; failed runs: 0", shown)
        refused = try_there("pacecar-nccl", "--cpu", "--arms", "socket", XDG_CACHE_HOME="/tmp")
        self.assertEqual(refused.stderr,
                         "pacecar-nccl: skipped: there is no nm here: install g++\n")

    def test_service_is_disabled_and_can_read_jobs_of_other_users(self):
        self.assertEqual(list((ROOT / "etc/systemd/system").rglob("pacecar*")), [])
        unit = ROOT / "lib/systemd/system/pacecar-metrics.service"
        kept = re.search(r"CapabilityBoundingSet=CAP_(\w+)\n", unit.read_text("utf-8")).group(1)
        job = Server("bw")
        self.addCleanup(job.end)
        page = must(try_there("setpriv", "--no-new-privs", "--bounding-set",
                              f"-all,+{kept.lower()}", "pacecar", "metrics", user="root:root"))
        self.assertRegex(page, r"\npacecar_processes [1-9]")


class Library(unittest.TestCase):
    """Programs built by the host's compiler with the packages' files, run in the clean Debian."""

    @classmethod
    def setUpClass(cls):
        install("new", "libpacecar0")
        cls.unpacked = SCRATCH / "sysroot"
        for name in ("libpacecar0", "libpacecar-dev"):
            run("dpkg-deb", "--extract", next(DEBS.glob(f"{name}_*.deb")), cls.unpacked)
        cls.example = cls.unpacked / "usr/share/doc/libpacecar-dev/examples"

    def assert_greets(self, program):
        shutil.copy(program, ROOT / "usr/local/bin")
        self.assertEqual(must(try_there(f"/usr/local/bin/{program.name}")),
                         "hello, over soft:udp:lo\n")

    def test_development_package_can_be_installed(self):
        planned = install("new", "libpacecar-dev", flags=["--simulate"])
        self.assertIn("Inst libexpected-dev ", planned)

    def test_cmake_builds_the_example(self):
        built = SCRATCH / "example"
        run("cmake", "-S", self.example, "-B", built, f"-DCMAKE_PREFIX_PATH={self.unpacked}/usr")
        run("cmake", "--build", built)
        for name in ("hello", "hello_static"):
            self.assert_greets(built / name)

    def test_pkg_config_builds_the_example(self):
        folder = f"/{LIBRARIES}/pkgconfig"
        self.assertIn(folder, run("pkg-config", "--variable=pc_path", "pkg-config"))
        flags = run("pkg-config", "--cflags", "--libs", "pacecar",
                    PKG_CONFIG_PATH=f"{self.unpacked}{folder}").split()
        run("c++", self.example / "hello.cc", "-o", SCRATCH / "greeter", *flags)
        self.assert_greets(SCRATCH / "greeter")


class Removed(unittest.TestCase):  # the last by name: tests run in that order
    def test_purge_leaves_no_file(self):
        apt_get("remove", "pacecar")
        self.assertNotEqual(try_there("pacecar", "--version").returncode, 0)
        apt_get("purge", "pacecar", "nccl-net-pacecar", "libpacecar0")
        found = run("find", ROOT, "-xdev", "-name", "*pacecar*", "-not", "-path", f"{ROOT}/tmp/*",
                    "-not", "-path", f"{ROOT}/new/*", "-not", "-path", f"{ROOT}/old/*")
        self.assertEqual(found, "")
        self.assertNotIn("pacecar", run(*in_root("dpkg-query", "--list")))


def main():
    if INSIDE in os.environ:
        unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
    missing = [need.split(":")[0] for need in NEEDED if not shutil.which(need.split(":")[1])]
    if missing:
        print(f"skipped: apt-get install {' '.join(missing)}")
        sys.exit(SKIPPED)
    namespace = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() or subprocess.run([*namespace, "true"], check=False).returncode:
        print("skipped: a clean Debian is made by root, in namespaces of its own")
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    os.execvp(namespace[0], [*namespace, sys.executable, "-B", *sys.argv])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1])
    main()
