"""Makes the files that a guest boots from: Debian's kernel, unpacked, and an initramfs; and chooses
the guests' acceleration: KVM if it works, else QEMU's own translation.

The files are kept in the cache ${XDG_CACHE_HOME:-~/.cache}/pacecar/lab. The kernel is taken from
Debian's package without installing it; an initramfs is named after the hash of its contents. Any
number of runs may share the cache: a run fills it under a lock, and files with their final name
never change.
"""

import collections
import contextlib
import fcntl
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

import clock
import private

HERE = pathlib.Path(__file__).resolve().parent
META_PACKAGE = "linux-image-amd64"

# Modules that guests can load later, from the host's cache: networking, 9p and their dependencies.
# All modules would be 300 MB.
KEPT_MODULES = [
    "arch", "crypto", "lib", "net", "drivers/infiniband", "drivers/virtio",
    "drivers/char/virtio_console.ko", "drivers/net/dummy.ko", "drivers/net/ifb.ko",
    "drivers/net/net_failover.ko", "drivers/net/tun.ko", "drivers/net/veth.ko",
    "drivers/net/virtio_net.ko", "fs/9p", "fs/configfs", "fs/fscache", "fs/netfs", "fs/overlayfs",
]
# Modules that every guest loads before it has a root file system.
BOOT_MODULES = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_net"]

# no_timer_check: the kernel would panic if a busy host delays the first ticks of its timer.
KERNEL_LINE = ["panic=-1", "no_timer_check"]

TRANSLATION = ["-accel", "tcg,thread=multi", "-cpu", "max"]
HARDWARE = ["-accel", "kvm", "-cpu", "host"]
PROBE_SECONDS = 8  # a boot with KVM takes one or two, or hangs for ever


class Unavailable(Exception):
    """This machine cannot run guests; the text has the reason and advice."""


# Paths of a kernel, its module tree (lib/modules/RELEASE), and its initramfs.
Image = collections.namedtuple("Image", "vmlinux modules initramfs")


def prepare():
    """The image to boot, made now if it is not in the cache."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    if not private.is_own(cache) or private.is_open_to_all(cache):
        raise Unavailable(f"guests boot from {cache}, but other users can write to it: name "
                          "another folder in XDG_CACHE_HOME")
    with locked(cache / "lock"):
        kernel = newest_kernel(cache) or fetch_kernel(cache)
        return Image(kernel / "vmlinux", module_folder(kernel), make_initramfs(cache, kernel))


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "pacecar/lab"


@contextlib.contextmanager
def locked(path):
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def published(final):
    """A new folder that is renamed to `final` on success, and otherwise removed."""
    with tempfile.TemporaryDirectory(dir=final.parent, prefix="new.") as folder:
        made = pathlib.Path(folder) / "made"
        made.mkdir()
        yield made
        made.rename(final)


def module_folder(kernel_folder):
    return next((kernel_folder / "lib/modules").iterdir())


def newest_kernel(cache):
    def version(path):
        return [int(number) for number in re.findall(r"\d+", path.name)]

    return max(cache.glob("kernel-*"), key=version, default=None)


def fetch_kernel(cache):
    package = kernel_package()
    final = cache / package.replace("linux-image-", "kernel-")
    with published(final) as folder, tempfile.TemporaryDirectory(dir=cache) as scratch:
        tool(["apt-get", "-qq", "download", package], cwd=scratch)
        [archive] = pathlib.Path(scratch).glob("*.deb")
        unpack(archive, folder)
        [compressed] = (folder / "boot").iterdir()
        (folder / "vmlinux").write_bytes(vmlinux_of(compressed.read_bytes()))
        shutil.rmtree(folder / "boot")
        tool(["depmod", "-b", folder, module_folder(folder).name])
    return final


def kernel_package():
    """The package with the files of Debian's current kernel, on which META_PACKAGE depends."""
    text = tool(["apt-cache", "show", "--no-all-versions", META_PACKAGE])
    match = re.search(r"^Depends: (linux-image-[\w.-]+-amd64)\b", text, re.MULTILINE)
    if not match:
        raise Unavailable(f"apt knows no {META_PACKAGE}: run apt-get update, or use Debian 12")
    return match.group(1)


def unpack(archive, folder):
    modules = [f"./lib/modules/*/kernel/{name}" for name in KEPT_MODULES]
    command = ["tar", "-x", "--wildcards", "-C", folder, "./boot/vmlinuz-*",
               "./lib/modules/*/modules.*", *modules]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive],
                          stdout=subprocess.PIPE) as package:
        tool(command, stdin=package.stdout)


def vmlinux_of(image):
    """The ELF kernel inside a bzImage: booted as it is, a guest need not decompress it.

    The x86 boot protocol defines the offsets (Documentation/x86/boot.rst, 2.08 and later).
    """
    if image[0x202:0x206] != b"HdrS":
        raise Unavailable("the kernel of Debian's package is no bzImage")
    start = (image[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[start + offset:start + offset + length]
    return lzma.LZMADecompressor().decompress(payload)


def make_initramfs(cache, kernel):
    init = HERE / "initramfs-init"
    busybox = shutil.which("busybox")
    modules = needed_modules(kernel)
    digest = hashlib.sha256(str(kernel).encode())
    for path in [init, pathlib.Path(busybox), *modules]:
        digest.update(path.read_bytes())
    final = cache / f"initramfs-{digest.hexdigest()[:16]}"
    if not final.is_dir():
        with published(final) as folder:
            pack(folder, init, busybox, modules)
    return final / "initramfs.cpio"


def needed_modules(kernel):
    """Files of BOOT_MODULES and of all that they depend on, in the order of loading."""
    text = tool(["modprobe", "--dirname", kernel, "--set-version", module_folder(kernel).name,
                 "--show-depends", "--all", *BOOT_MODULES])
    files = [line.split()[1] for line in text.splitlines() if line.startswith("insmod ")]
    return [pathlib.Path(file) for file in dict.fromkeys(files)]


def pack(folder, init, busybox, modules):
    tree = folder / "tree"
    for name in ["bin", "dev", "host", "memory", "modules", "proc", "sys", "system"]:
        (tree / name).mkdir(parents=True)
    shutil.copy(busybox, tree / "bin/busybox")
    shutil.copy(init, tree / "init")
    for number, module in enumerate(modules):
        shutil.copy(module, tree / "modules" / f"{number:02}-{module.name}")
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    archive = tool(["cpio", "--quiet", "--create", "--format=newc", "--owner=0:0"], cwd=tree,
                   input=names.encode(), text=False)
    (folder / "initramfs.cpio").write_bytes(archive)
    shutil.rmtree(tree)


def tool(command, text=True, **options):
    """The program's standard output; Unavailable when the program fails."""
    command = [str(word) for word in command]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=text, **options).stdout
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is missing: install it (deploy/packages/lab.txt)") \
            from error
    except subprocess.CalledProcessError as error:
        errors = error.stderr if text else error.stderr.decode(errors="replace")
        last = errors.strip().splitlines()[-1:] or ["no error message"]
        raise Unavailable(f"'{' '.join(command)}' failed: {last[0]}") from error


def accel_flags(wanted, booted):
    if wanted == "tcg":
        return TRANSLATION
    works = os.access("/dev/kvm", os.R_OK | os.W_OK) and hardware_works(booted)
    if wanted == "kvm" and not works:
        raise Unavailable("KVM does not work on this machine: use --accel tcg")
    return HARDWARE if works else TRANSLATION


def hardware_works(booted):
    """Whether a kernel boots with KVM: tested once per boot of the host; the cache has the result.

    In a virtual machine /dev/kvm can often be opened, but a guest may never run.
    """
    host_boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with locked(cache_folder() / "kvm.lock"):
        memory = cache_folder() / "kvm"
        known = memory.read_text(encoding="ascii").split() if memory.exists() else []
        if known[:1] != [host_boot]:
            known = [host_boot, "works" if boots(booted) else "fails"]
            memory.write_text(" ".join(known), encoding="ascii")
    return known[1] == "works"


def boots(booted):
    """With lab.probe on the kernel's command line the initramfs only powers off."""
    command = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot",
               "-display", "none", "-machine", "q35", *HARDWARE, "-m", "256",
               "-kernel", booted.vmlinux, "-initrd", booted.initramfs,
               "-append", " ".join([*KERNEL_LINE, "lab.probe"])]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        limit = clock.Clock()
        limit.watch(process.pid)
        while process.poll() is None and limit.advance() < PROBE_SECONDS:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        process.kill()
    return process.returncode == 0
