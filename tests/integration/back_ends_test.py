"""A host without DPDK, libfabric and libibverbs: back_ends_test.py PROGRAM PLUGIN [MODULE ...].

In a mount namespace that hides these libraries and shows an RDMA device of the kernel, the program
and the plugin offer their other NICs, and name the missing library for the rest.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

PROGRAM = PLUGIN = ""
MODULES = []
SKIPPED = 77
INSIDE = "BACK_ENDS_TEST_INSIDE"
MISSING = ("libibverbs", "librdmacm", "libfabric", "librte_", "dpdk")
RDMA_DEVICE = "mlx5_7"


def cover(folder, scratch, without=(), beside=()):
    """Replaces `folder` by links to its entries, but for those that begin with `without`, and adds
    empty folders named `beside`."""
    real = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    shown = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    subprocess.run(["mount", "--rbind", folder, real], check=True)
    for name in os.listdir(real):
        if not name.startswith(without or ("\0",)):
            (shown / name).symlink_to(real / name)
    for name in beside:
        (shown / name).mkdir(exist_ok=True)
    subprocess.run(["mount", "--rbind", shown, folder], check=True)
    return shown


def library_folders():
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True,
                            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}).stdout
    paths = re.findall(r"=> (/\S+)", listed)
    return {str(pathlib.Path(path).resolve().parent) for path in paths
            if pathlib.Path(path).name.startswith(MISSING)}


def hide():
    scratch = tempfile.mkdtemp()
    subprocess.run(["mount", "-t", "tmpfs", "none", scratch], check=True)
    for folder in sorted(library_folders()):
        if os.path.isdir(folder):  # else it lies in a folder that is covered already
            cover(folder, scratch, without=MISSING)
    kernel = cover("/sys/class", scratch, without=("infiniband",), beside=("infiniband",))
    (kernel / "infiniband" / RDMA_DEVICE).mkdir()


def run(*arguments, **changes):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return subprocess.run([PROGRAM, *arguments], env={**clean, **changes}, text=True,
                          capture_output=True, timeout=LIMIT_S, check=False)


class Host(unittest.TestCase):
    def test_libraries_are_hidden(self):
        for name in ("libibverbs.so.1", "libfabric.so.1", "librte_eal.so.23"):
            with self.assertRaises(OSError):
                ctypes.CDLL(name)

    def test_info_lists_nics_and_missing_libraries(self):
        done = run("info", "--json", "-d", "soft:udp:lo")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual([nic["name"] for nic in document["nics"]], ["soft:udp:lo"])
        for back_end, cure in (("libibverbs", "libibverbs1"), ("dpdk", "DPDK 22.11"),
                               ("libfabric", "libfabric1")):
            self.assertFalse(document[back_end]["available"])
            self.assertRegex(document[back_end]["reason"], f"is not there .*: install .*{cure}")
        text = run("info", "-d", "soft:udp:lo").stdout
        for back_end in ("libibverbs", "dpdk", "libfabric"):
            self.assertIn(document[back_end]["reason"], text)

    def assert_refused(self, nic, *words):
        done = run("info", "-d", nic)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_nic_of_a_missing_library_is_refused_with_the_cure(self):
        self.assert_refused("soft:dpdk:net_vhost0,iface=socket", "DPDK is not there (librte_",
                            "install DPDK 22.11 with its drivers (librte-meta-net")
        self.assert_refused("ofi:tcp", "libfabric is not there (libfabric.so.1",
                            "install it (libfabric1)")
        self.assert_refused(RDMA_DEVICE, RDMA_DEVICE, "libibverbs is not there (libibverbs.so.1",
                            "install it with its drivers (libibverbs1, ibverbs-providers)")

    def test_default_nics_leave_out_the_rdma_device_with_a_warning(self):
        done = run("info", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{RDMA_DEVICE} cannot be used: libibverbs is not there", done.stderr)
        self.assertTrue(all(nic["name"].startswith("soft:udp:")
                            for nic in json.loads(done.stdout)["nics"]))

    def test_plugin_loads_and_serves(self):
        ctypes.CDLL(PLUGIN)
        done = run("check-plugin", PLUGIN, "--only", "sizes", PACECAR_NICS="soft:udp:lo")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Objects(unittest.TestCase):
    """The symbols of a module, compared with those of the program or plugin that loads it."""

    @staticmethod
    def symbols(flag, binary):
        return subprocess.run(["nm", "--demangle", "--defined-only", *flag, binary], text=True,
                              capture_output=True, check=True).stdout.splitlines()

    def test_module_exports_one_symbol(self):
        for module in MODULES:
            names = [line.split(" ", 2)[2] for line in self.symbols(["--dynamic"], module)]
            self.assertEqual(names, ["pacecar_module"])

    def test_modules_duplicate_no_state_of_their_loader(self):
        def state(binary):  # without constants (kName) that are set at the start
            return {line.split(" ", 2)[2] for line in self.symbols([], binary)
                    if re.match(r"\w+ [bB] pacecar::(?!.*\bk[A-Z]\w*$)", line)}

        for loader in (PROGRAM, PLUGIN):
            own = state(loader)
            self.assertTrue(own)
            for module in MODULES:
                self.assertTrue(state(module))
                self.assertFalse(own & state(module))


def main():
    if INSIDE in os.environ:
        try:
            hide()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: libraries cannot be hidden here: {error}")
            sys.exit(SKIPPED)
        unittest.main(argv=sys.argv[:1])
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        print("skipped: no mount namespace of our own")
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    os.execvp(namespace[0], [*namespace, sys.executable, "-B", *sys.argv])


if __name__ == "__main__":
    PROGRAM, PLUGIN, *MODULES = sys.argv[1:]
    main()
