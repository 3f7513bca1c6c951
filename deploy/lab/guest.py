"""One virtual machine: its files, its emulator, and its output streams."""

import contextlib
import shlex
import shutil
import socket
import subprocess

import network
import tsc
from image import HERE, KERNEL_LINE, TRANSLATION

STREAMS = ["control", "stdout", "stderr"]


class Guest:
    """From start() on, `streams` are the sockets to read.

    `status` is COMMAND's exit status, and None until the guest has reported it.
    """

    def __init__(self, rank, options, folder, share):
        self.rank = rank
        self.status = None
        self.process = None
        self.streams = {}
        self.received = dict.fromkeys(STREAMS, 0)  # bytes
        self._written = {}  # bytes by stream, as reported by the guest
        self._options = options
        self._folder = folder / f"guest{rank}"
        self._share = share

    def start(self, image, accel, nics, environment, working_directory):
        self._folder.mkdir()
        self._write_files(image, environment, working_directory)
        theirs = {}
        for name in STREAMS:
            self.streams[name], theirs[name] = socket.socketpair()
        passed = [*theirs.values(), *nics]
        # The emulator must not outlive this process, whatever ends it.
        command = ["setpriv", "--pdeathsig", "KILL", "--",
                   *self._emulator(image, accel, nics, theirs)]
        with open(self._folder / "emulator", "wb") as messages:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=messages,
                                            stderr=messages, start_new_session=True,
                                            pass_fds=[sock.fileno() for sock in passed])
        for sock in passed:
            sock.close()

    def answer(self, line):
        """Answers a report of the guest on its control stream, if the guest still exists."""
        if "control" in self.streams:
            with contextlib.suppress(ConnectionError):
                self.streams["control"].send(line)

    def set_status(self, status, written=None):
        self.status = status
        self._written = written or {}

    def over(self):
        """Whether the status is known and all output has been received (or never will be)."""
        return self.status is not None and all(
            self.received[name] >= count for name, count in self._written.items()
            if name in self.streams)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def last_lines(self):
        """The last lines of kernel and emulator, for a guest that ended without a status."""
        lines = []
        for name in ["emulator", "console"]:
            file = self._folder / name
            if file.exists():
                lines += file.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if line.strip()][-40:]

    def _write_files(self, image, environment, working_directory):
        options, rank = self._options, self.rank
        variables = {
            "LAB_RANK": str(rank),
            "LAB_GUESTS": str(options.guests),
            "LAB_PEERS": " ".join(network.ipv4(peer) for peer in range(options.guests)),
            "LAB_SHARE": str(self._share),
        }
        settings = variables | {"modules": str(image.modules),
                                "rxe": "1" if rank in options.rxe else "0"}
        command = exports(environment | variables)
        command += f"cd {shlex.quote(working_directory)} || exit\n"
        command += f"exec {shlex.join(options.command)}\n"
        files = {
            "settings": "".join(f"{name}={shlex.quote(value)}\n"
                                for name, value in settings.items()),
            "command": command,
            "hosts": network.hosts_file(options.guests),
            "ip": network.ip_batch(rank, options.guests),
            "tc": network.tc_batch(options) if rank in options.knobs else "",
        }
        for name, text in files.items():
            (self._folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")

    def _emulator(self, image, accel, nics, theirs):
        options = self._options
        kernel_line = ["console=ttyS0", *KERNEL_LINE, "mitigations=off", *clock_line(accel),
                       f"lab.init={HERE / 'guest-init'}", f"lab.folder={self._folder}"]
        command = [
            shutil.which("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-no-reboot",
            "-display", "none", "-machine", "q35", *accel, "-smp", processors(options.cpus),
            "-m", str(options.memory), "-kernel", str(image.vmlinux),
            "-initrd", str(image.initramfs), "-append", " ".join(kernel_line),
            "-chardev", f"file,id=console,path={self._folder}/console",
            "-serial", "chardev:console",
            *shared_folder("root", "/", "readonly=on"), *shared_folder("share", self._share),
            "-device", "virtio-serial-pci",
        ]
        for name, sock in theirs.items():
            command += ["-chardev", f"socket,id={name},fd={sock.fileno()}",
                        "-device", f"virtserialport,chardev={name},name={name}"]
        return [*command, *network.flags(nics), "-device",
                f"virtio-net-pci,netdev=net,mac={network.mac(self.rank)},"
                f"host_mtu={network.MTU},romfile="]


def clock_line(accel):
    return ["tsc=reliable", *([f"tsc_early_khz={tsc.khz()}"] if accel == TRANSLATION else [])]


def processors(count):
    """At least maxcpus=2: with 1 the emulator (before QEMU 8) leaves out the guest's memory
    barriers, which writes to virtio queues need, and a queue may stop for ever."""
    return f"{count},maxcpus={max(count, 2)}"


def shared_folder(name, path, *flags):
    """A folder of the host, for the guest to mount by that name."""
    quoted = str(path).replace(",", ",,")
    described = ",".join(["local", f"id={name}", f"path={quoted}", "security_model=none",
                          "multidevs=remap", *flags])
    return ["-fsdev", described, "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]


def exports(environment):
    """Shell lines that set the variables whose names a shell can set."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()
                   if name.isidentifier() and name.isascii())
