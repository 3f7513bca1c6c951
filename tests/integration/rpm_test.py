"""The RPM packages, made from this build by Debian's rpmbuild: rpm_test.py BUILD_FOLDER.

A few lines stand in for Fedora's macros for CMake and systemd, and nothing is compiled.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from limits import LIMIT_S

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SPEC = SOURCE / "deploy/rpm/pacecar.spec"
BUILD = TOP = pathlib.Path()
SKIPPED = 77
MACROS = """
%cmake cmake -S . -B built -DCMAKE_INSTALL_PREFIX=%{_prefix} -DCMAKE_INSTALL_LIBDIR=%{_lib}
%cmake_build cmake -DFROM=@BUILD@ -DTO=built -P deploy/cmake/TakeBuilt.cmake
%cmake_install DESTDIR=%{buildroot} cmake --install built
%_unitdir /usr/lib/systemd/system
%systemd_post() %{nil}
%systemd_preun() %{nil}
%systemd_postun_with_restart() %{nil}
%debug_package %{nil}
%_binary_payload w1.gzdio
"""


def run(*command, **options):
    done = subprocess.run(command, text=True, capture_output=True, timeout=LIMIT_S, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def project_version():
    project = (SOURCE / "CMakeLists.txt").read_text("utf-8")
    return re.search(r"project\(pacecar VERSION (\S+)", project).group(1)


def setUpModule():
    global TOP
    TOP = pathlib.Path(tempfile.mkdtemp(prefix="pacecar-rpm-"))
    unittest.addModuleCleanup(shutil.rmtree, TOP)
    (TOP / "SOURCES").mkdir()
    (TOP / "macros").write_text(MACROS.replace("@BUILD@", str(BUILD)), "utf-8")
    name = f"pacecar-{project_version()}"
    files = run("git", "-c", f"safe.directory={SOURCE}", "ls-files", "-z", cwd=SOURCE)
    run("tar", "--create", "--gzip", "--null", "--files-from=-", f"--transform=s,^,{name}/,",
        f"--file={TOP}/SOURCES/{name}.tar.gz", cwd=SOURCE, input=files)
    run("rpmbuild", "-bb", "--nodeps", "--define", f"_topdir {TOP}", "--define",
        f"_tmppath {TOP}/tmp", "--load", TOP / "macros", SPEC)


def package(name):
    return next((TOP / "RPMS").rglob(f"{name}-{project_version()}-*.rpm"))


def files(name):
    return run("rpm", "--query", "--list", "--package", package(name)).splitlines()


class Packages(unittest.TestCase):
    def test_each_package_has_its_files(self):
        for name, path in (("pacecar", "/usr/bin/pacecar"),
                           ("pacecar", "/usr/lib/systemd/system/pacecar-metrics.service"),
                           ("pacecar-libs", "/usr/lib64/libpacecar.so.0"),
                           ("pacecar-devel", "/usr/include/pacecar/pacecar.hpp"),
                           ("pacecar-devel", "/usr/lib64/pkgconfig/pacecar.pc"),
                           ("nccl-net-pacecar", "/usr/lib64/libnccl-net-pacecar.so"),
                           ("nccl-net-pacecar", "/usr/lib64/librccl-net-pacecar.so"),
                           ("pacecar-nccl", "/usr/bin/pacecar-nccl"),
                           ("pacecar-nccl", "/usr/lib64/pacecar/nccl/cpu_device/libcuda.so.1"),
                           ("libibverbs-pacecar",
                            "/usr/lib64/pacecar/verbs/libpacecar-verbs.so"),
                           ("pacecar-dpdk", "/usr/lib64/pacecar/libpacecar-dpdk.so")):
            self.assertIn(path, files(name))

    def test_only_the_dpdk_package_requires_dpdk(self):
        for name in ("pacecar", "pacecar-libs", "nccl-net-pacecar", "pacecar-dpdk"):
            needed = run("rpm", "--query", "--requires", "--package", package(name))
            self.assertEqual("librte_eal" in needed, name == "pacecar-dpdk", name)

    def test_pkg_config_names_fedora_s_library_folder(self):
        folder = TOP / "unpacked"
        folder.mkdir()
        archive = subprocess.run(["rpm2cpio", package("pacecar-devel")], check=True,
                                 capture_output=True).stdout
        subprocess.run(["cpio", "--extract", "--make-directories", "--quiet"], cwd=folder,
                       check=True, input=archive)
        library = run("pkg-config", "--variable=libdir", "pacecar",
                      env={**os.environ, "PKG_CONFIG_PATH": f"{folder}/usr/lib64/pkgconfig"})
        self.assertEqual(pathlib.Path(library.strip()).resolve(), folder / "usr/lib64")


if __name__ == "__main__":
    if not shutil.which("rpmbuild"):
        print("skipped: apt-get install rpm")
        sys.exit(SKIPPED)
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
