"""The files of `cmake --install`, used as a user would: install_test.py BUILD_FOLDER.

They are installed into a folder, which is then moved: no file may depend on its first place.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

BUILD = pathlib.Path()
SCRATCH = PREFIX = LIBRARIES = pathlib.Path()
EXAMPLE_LINES = 40


def setUpModule():
    global SCRATCH, PREFIX, LIBRARIES
    SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="pacecar-install-"))
    unittest.addModuleCleanup(shutil.rmtree, SCRATCH)
    run("cmake", "--install", BUILD, "--prefix", SCRATCH / "first")
    PREFIX = SCRATCH / "moved"
    (SCRATCH / "first").rename(PREFIX)
    cache = (BUILD / "CMakeCache.txt").read_text("utf-8")
    LIBRARIES = PREFIX / re.search(r"^CMAKE_INSTALL_LIBDIR:\w+=(.*)$", cache, re.M).group(1)


def run(*command, **changes):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    done = subprocess.run(command, env={**clean, "PACECAR_NICS": "soft:udp:lo", **changes},
                          text=True, capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Programs(unittest.TestCase):
    def test_moved_program_finds_its_modules(self):
        document = json.loads(run(PREFIX / "bin/pacecar", "info", "--json").stdout)
        self.assertTrue(document["dpdk"]["available"], document["dpdk"])
        (LIBRARIES / "pacecar").rename(LIBRARIES / "elsewhere")
        try:
            document = json.loads(run(PREFIX / "bin/pacecar", "info", "--json").stdout)
        finally:
            (LIBRARIES / "elsewhere").rename(LIBRARIES / "pacecar")
        self.assertIn("libpacecar-dpdk.so", document["dpdk"]["reason"])

    def test_plugin_serves_by_both_names(self):
        for name in ("nccl", "rccl"):
            run(PREFIX / "bin/pacecar", "check-plugin", LIBRARIES / f"lib{name}-net-pacecar.so",
                "--only", "sizes")

    def test_modules_are_found_from_a_link_to_the_plugin(self):
        link = SCRATCH / "libnccl-net-linked.so"
        link.symlink_to(LIBRARIES / "libnccl-net-pacecar.so")
        done = run("sh", "-c", '"$0" check-plugin "$1" --only init || true',
                   PREFIX / "bin/pacecar", link, PACECAR_NICS="soft:dpdk:net_nothing0")
        self.assertIn("net_nothing0", done.stdout + done.stderr)
        self.assertNotIn("libpacecar-dpdk.so", done.stdout + done.stderr)

    def test_plans_find_their_files(self):
        for plan in ("smoke", "pace_fairness", "burst", "yardstick"):
            run(PREFIX / "bin/pacecar", "ab", PREFIX / f"share/pacecar/plans/{plan}.toml",
                "--dry-run")

    def test_nccl_runs_without_a_gpu(self):
        made = subprocess.run([LIBRARIES / "pacecar/nccl/bench/nccl/cpu_device/get_nccl", "2.29.7"],
                              text=True, capture_output=True, check=False)
        if made.returncode != 0:
            self.skipTest(made.stderr)
        shown = run(PREFIX / "bin/pacecar-nccl", "--cpu", "--ops", "allreduce", "--sizes", "8",
                    "--rounds", "1", "--arms", "socket,soft:udp:lo").stdout
        self.assertIn("wrong elements: 0; failed runs: 0", shown)

    def test_no_file_contains_its_install_or_build_path(self):
        for path in filter(pathlib.Path.is_file, PREFIX.rglob("*")):
            if path.suffix in (".cmake", ".pc", ".hpp", ".h"):
                text = path.read_text("utf-8")
                self.assertNotIn(str(SCRATCH), text, path)
                self.assertNotIn(str(BUILD.resolve().parent), text, path)
            elif ".so" in path.suffixes or path.name == "pacecar" and path.parent.name == "bin":
                self.assertNotRegex(run("readelf", "--dynamic", path).stdout, "RPATH|RUNPATH")


class Library(unittest.TestCase):
    def test_shared_library_exports_only_its_interface(self):
        shown = run("nm", "--dynamic", "--defined-only", "--demangle",
                    LIBRARIES / "libpacecar.so").stdout
        names = [line.split(" ", 2)[2] for line in shown.splitlines()]
        names = [re.sub(r"\[abi:\w+\]|\(.*|@.*", "", name) for name in names]
        self.assertEqual(sorted(filter(None, names)),
                         ["PACECAR_0", "pacecar::Context::open", "pacecar::find_dpdk",
                          "pacecar::find_verbs", "pacecar::list_fabric_providers",
                          "pacecar::settled", "pacecar::window_of"])

    def test_example_built_with_cmake(self):
        example = PREFIX / "share/doc/pacecar/example"
        self.assertLess(len((example / "hello.cc").read_text("utf-8").splitlines()),
                        EXAMPLE_LINES)
        run("cmake", "-S", example, "-B", SCRATCH / "example", f"-DCMAKE_PREFIX_PATH={PREFIX}")
        run("cmake", "--build", SCRATCH / "example")
        for program in ("hello", "hello_static"):
            self.assertEqual(run(SCRATCH / "example" / program).stdout,
                             "hello, over soft:udp:lo\n")
        needed = run("readelf", "--dynamic", SCRATCH / "example/hello_static").stdout
        self.assertNotIn("libpacecar", needed)

    def test_example_built_with_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "pacecar",
                    PKG_CONFIG_PATH=str(LIBRARIES / "pkgconfig")).stdout.split()
        source = PREFIX / "share/doc/pacecar/example/hello.cc"
        run("c++", source, "-o", SCRATCH / "hello", *flags)
        self.assertEqual(run(SCRATCH / "hello", LD_LIBRARY_PATH=str(LIBRARIES)).stdout,
                         "hello, over soft:udp:lo\n")


class Manual(unittest.TestCase):
    def pages(self):
        return sorted((PREFIX / "share/man").rglob("*.[15]"))

    def test_every_page_is_well_formed(self):
        self.assertGreater(len(self.pages()), 9)
        for page in self.pages():
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page,
                       MANROFFSEQ="", LANG="C.UTF-8")
            self.assertEqual(done.stderr, "", page)

    def test_pages_have_every_flag_and_parameter(self):
        described = json.loads(run(PREFIX / "bin/pacecar", "bw", "--describe").stdout)
        page = (PREFIX / "share/man/man1/pacecar-bw.1").read_text("utf-8").replace("\\-", "-")
        for flag in described["flags"]:
            for name in flag["names"]:
                self.assertIn(f"\\fB{name}\\fR", page)
        page = (PREFIX / "share/man/man5/pacecar.conf.5").read_text("utf-8")
        self.assertIn("\\fBPACECAR_NICS\\fR", page)


class Completion(unittest.TestCase):
    def bash(self, *words):
        script = PREFIX / "share/bash-completion/completions/pacecar"
        quoted = " ".join(f"'{word}'" for word in words)
        return run("bash", "-c", f"source '{script}'; COMP_WORDS=({quoted}); "
                   f"COMP_CWORD={len(words) - 1}; _pacecar; echo \"${{COMPREPLY[*]}}\""
                   ).stdout.split()

    def test_bash_completes_commands_flags_and_values(self):
        self.assertEqual(self.bash("pacecar", "pre"), ["preflight", "predict"])
        self.assertEqual(self.bash("pacecar", "bw", "--report_"), ["--report_gbits"])
        self.assertEqual(self.bash("pacecar", "bw", "--rate_units", ""), ["M", "g", "p"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
