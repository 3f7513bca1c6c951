"""Makes NCCL for the CPU device: a libnccl.so.2 that runs on a machine without a GPU.

Debian's libnccl-dev has NCCL as a static archive, which leaves CUDA's runtime undefined. The
archive of each VERSION is fetched by apt (from the mirror that this machine uses; nothing is
installed), checked, and linked with stubs in the place of its kernels: the CPU device knows the
kernels by the stubs' addresses. Keeps the libraries in ~/.cache/pacecar/nccl; prints the folders.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Versions that the CPU device knows: where Debian has them, and the SHA-256 of the package.
PACKAGES = {
    "2.22.3": ("2.22.3-1-1", "trixie",
               "260d89758ab6287f967f217a23cf0c5629ec3a40cfdca1b781064f48df7fb8dc"),
    "2.29.7": ("2.29.7-1-1", "sid",
               "598ea23cc4b336d08554de28753ac2442443d1bec23ef9620c5f374cda5999dc"),
}
NEWEST = "2.29.7"
LIBRARY = "libnccl.so.2"
ARCHIVE = "libnccl_static.a"
OWN = (f"link an {ARCHIVE} of your own with "
       f"{pathlib.Path(__file__).with_name('get_nccl')} --archive FILE --output FOLDER")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT_LIMIT_S = 300
KERNEL = re.compile(r"_Z\w*DevKernel\w*")
END_GIN = re.compile(r"_Z\d+ncclGinResetSignalsAndCounters\w*")
ONE_RANK = re.compile(r"_Z\d+ncclLaunchOneRank\w+")
PUBLIC = re.compile(r"p?nccl[A-Z](?!\w*(?:Os|Param))\w*")
CUDA = re.compile(r"cuda[A-Z]\w*")
# What newer C libraries have and the archive refers to.
NEWER_C = """\
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN long __isoc23_strtol(const char* s, char** e, int b) { return strtol(s, e, b); }
HIDDEN long long __isoc23_strtoll(const char* s, char** e, int b) { return strtoll(s, e, b); }
HIDDEN unsigned long __isoc23_strtoul(const char* s, char** e, int b) { return strtoul(s, e, b); }
HIDDEN unsigned long long __isoc23_strtoull(const char* s, char** e, int b) {
  return strtoull(s, e, b);
}
HIDDEN int __isoc23_sscanf(const char* s, const char* f, ...) {
  va_list a;
  va_start(a, f);
  int n = vsscanf(s, f, a);
  va_end(a);
  return n;
}
HIDDEN int __isoc23_fscanf(FILE* s, const char* f, ...) {
  va_list a;
  va_start(a, f);
  int n = vfscanf(s, f, a);
  va_end(a);
  return n;
}
"""
GLUE = """\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
const void* cpu_device_add_nccl(int version, const int* function_rows);
void cpu_device_add_kernel(const void* library, const void* stub, const char* name);
void cpu_device_one_rank(void*, const void*, size_t, int, bool, uint64_t, int, void*);
void cpu_device_end_gin(const void* device_communicator);
int cpu_device_yield(void);
HIDDEN int sched_yield(void) { return cpu_device_yield(); }
extern const int ncclDevFuncRowToId[] HIDDEN;
int ncclGetVersion(int*);
struct Reduction { int device_op, op; bool operand_is_pointer; uint64_t operand; };
"""
# In the place of host code that is in objects with kernels: of common.cu and onerank.cu.
GLUE_END_GIN = """\
HIDDEN int {name}(void* communicator, const void* device_communicator) {{
  cpu_device_end_gin(device_communicator);
  return 0;
}}
"""
GLUE_ONE_RANK = """\
HIDDEN int {name}(void* to, const void* from, size_t n, struct Reduction r, int type, void* s) {{
  cpu_device_one_rank(to, from, n, r.device_op, r.operand_is_pointer, r.operand, type, s);
  return 0;
}}
"""


class Unavailable(Exception):
    """NCCL cannot be had here; says why in a sentence."""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION",
                        help=f"of {', '.join(PACKAGES)}; default: all")
    parser.add_argument("--archive", type=pathlib.Path, metavar="FILE",
                        help=f"link this {ARCHIVE} instead, into --output")
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    if unknown := [version for version in options.versions if version not in PACKAGES]:
        parser.error(f"NCCL {unknown[0]} is not known: give {' or '.join(PACKAGES)}, or --archive")
    if (options.archive is None) != (options.output is None):
        parser.error("--archive and --output: give both or none")
    try:
        if options.archive:
            link(options.archive, options.output)
            print(options.output)
        else:
            for version in options.versions or PACKAGES:
                print(folder_of(version))
    except Unavailable as reason:
        sys.exit(f"get_nccl: {reason}")


def folder_of(version):
    """The folder with the library of that version, which is made if it is not there."""
    # Another version of this file may link in another way.
    own = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:8]
    try:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        folder = cache / "pacecar" / "nccl" / f"{version}-{own}"
        if not (folder / LIBRARY).is_file():
            with tempfile.TemporaryDirectory(prefix="pacecar-nccl-") as place:
                link(fetched(version, pathlib.Path(place)), folder)
    except (OSError, RuntimeError) as reason:
        raise Unavailable(f"{reason}: name a folder for NCCL with XDG_CACHE_HOME") from None
    return folder


def fetched(version, place):
    """The archive of that version, fetched into the folder `place`."""
    package, suite, checksum = PACKAGES[version]
    for program, cure in {"nm": "install g++", "cc": "install g++", "apt-get": OWN,
                          "dpkg": OWN}.items():
        if shutil.which(program) is None:
            raise Unavailable(f"there is no {program} here: {cure}")
    for folder in ("lists/partial", "archives/partial", "parts"):
        (place / folder).mkdir(parents=True)
    (place / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} contrib\n",
                                        "utf-8")
    settings = [f"Dir::Etc::sourcelist={place}/sources.list",
                f"Dir::Etc::sourceparts={place}/parts",
                f"Dir::Etc::preferencesparts={place}/parts", f"Dir::State::lists={place}/lists",
                f"Dir::Cache={place}", "Dir::State::status=/dev/null", "APT::Architecture=amd64",
                "APT::Sandbox::User=", "APT::Update::Error-Mode=any", "Acquire::Languages=none"]
    apt = ["apt-get", "-qq", *(word for one in settings for word in ("-o", one))]
    run([*apt, "update"], place)
    run([*apt, "download", f"libnccl-dev={package}"], place)
    deb = next(place.glob("libnccl-dev_*.deb"))
    if hashlib.sha256(deb.read_bytes()).hexdigest() != checksum:
        raise Unavailable(f"the package libnccl-dev {package} is not the one that is known here: "
                          "its checksum differs")
    run(["dpkg", "-x", deb, place / "unpacked"], place)
    deb.unlink()
    return next((place / "unpacked").rglob(ARCHIVE))


def mirror():
    """The mirror of Debian's archive that this machine uses."""
    listed = pathlib.Path("/etc/apt/sources.list")
    texts = [file.read_text("utf-8") for file in
             [listed, *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))] if file.is_file()]
    for text in texts:
        if found := re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S+/debian/?)(?:\s|$)", text, re.M):
            return found[1]
    raise Unavailable(f"apt has no source of Debian's archive here: {OWN}")


def run(command, place):
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False,
                              timeout=APT_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took more than {APT_LIMIT_S} s") from None
    if done.returncode != 0:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise Unavailable(f"{command[0]} failed, so Debian's NCCL cannot be had: {first}")


def link(archive, folder):
    """Links the archive into the folder, which is made."""
    if not archive.is_file():
        raise Unavailable(f"there is no file {archive}")
    defined, undefined = symbols(archive)
    kernels = sorted(filter(KERNEL.fullmatch, undefined))
    public = sorted(filter(PUBLIC.fullmatch, defined))
    if not kernels or not public:
        raise Unavailable(f"{archive} is no {ARCHIVE}: it has no kernels or no functions of NCCL")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = pathlib.Path(name)
        (place / "glue.c").write_text(
            glue(kernels, sorted(undefined)), "utf-8")
        # A stand-in for the CPU device, by its name: only the names of its functions count here.
        (place / "runtime.c").write_text("".join(
            f"void {name}(void) {{}}\n" for name in sorted(filter(CUDA.fullmatch, undefined)) +
            ["cpu_device_add_nccl", "cpu_device_add_kernel", "cpu_device_end_gin",
             "cpu_device_one_rank", "cpu_device_yield"]), "utf-8")
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-w"]
        run([*compiler, "runtime.c", "-Wl,-soname,libcudart.so.12", "-o", "libcudart.so"], place)
        # The runtime comes before the archive, whose weak definitions would win over it.
        # --no-relax: binutils 2.40 mistakes a relocation of the archive for a call.
        run([*compiler, "glue.c", "-L.", "-lcudart", *(f"-Wl,-u,{one}" for one in public),
             archive.resolve(), "-Wl,--no-relax", f"-Wl,-soname,{LIBRARY}", "-Wl,--no-undefined",
             "-lstdc++", "-lm", "-lpthread", "-ldl", "-lrt", "-o", LIBRARY], place)
        (place / LIBRARY).rename(folder / LIBRARY)


def symbols(archive):
    """(defined functions, undefined symbols) of the archive."""
    try:
        listed = subprocess.run(["nm", archive], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise Unavailable(f"nm cannot read {archive}: install binutils, or give {ARCHIVE}"
                          ) from None
    defined, undefined = set(), set()
    for line in listed.splitlines():
        match line.split():
            case [_, "T", name]:
                defined.add(name)
            case ["U", name]:
                undefined.add(name)
    return defined, undefined


def glue(kernels, undefined):
    lines = [NEWER_C, GLUE]
    lines += [f"HIDDEN void {name}(void) {{ __builtin_trap(); }}" for name in kernels]
    for pattern, text in ((END_GIN, GLUE_END_GIN), (ONE_RANK, GLUE_ONE_RANK)):
        lines += [text.format(name=name) for name in filter(pattern.fullmatch, undefined)]
    lines += ["__attribute__((constructor)) static void tell_the_device(void) {",
              "  int version = 0;", "  ncclGetVersion(&version);",
              "  const void* library = cpu_device_add_nccl(version, ncclDevFuncRowToId);"]
    lines += [f'  cpu_device_add_kernel(library, {name}, "{name}");' for name in kernels]
    return "\n".join([*lines, "}", ""])

