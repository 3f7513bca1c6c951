"""Hosts that are network namespaces on one bridge, each with its own sshd; keys and settings lie in
a temporary folder. The test has one more namespace on the bridge."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from limits import LIMIT_S

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def missing():
    """The reason why such hosts cannot be made here; empty: they can."""
    if SSHD is None:
        return "sshd is not installed (openssh-server)"
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "network namespaces cannot be made: run it as root"


class Hosts:
    """A context: hosts gpu01, gpu02, ... at 192.0.2.11, 192.0.2.12, ..."""

    def __init__(self, count=4):
        self.count = count
        self.prefix = f"ph{os.getpid()}"
        self.servers = []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        try:
            self._connect()
            self._serve()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
            server.wait()
        for name in (self.namespace(0), *map(self.namespace, range(1, self.count + 1)),
                     f"{self.prefix}-switch"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        self.folder.cleanup()

    def namespace(self, number):
        """The namespace of a host; 0: of the test."""
        return f"{self.prefix}-{number}"

    def address(self, number):
        return f"192.0.2.{10 + number if number else 1}"

    def _connect(self):
        switch = f"{self.prefix}-switch"
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number in range(self.count + 1):
            own = self.namespace(number)
            run("ip", "netns", "add", own)
            run("ip", "-n", own, "link", "add", "eth0", "type", "veth", "peer", "name",
                f"port{number}", "netns", switch)
            run("ip", "-n", own, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            for link in "lo", "eth0":
                run("ip", "-n", own, "link", "set", link, "up")
            run("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")

    def _serve(self):
        for name in "key", "hostkey":
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.root / name))
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own folder for its children
        settings = [f"Host gpu*\n  IdentityFile {self.root}/key\n  IdentitiesOnly yes\n"
                    "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
                    "  LogLevel ERROR\n  BatchMode yes\n  ConnectTimeout 20\n"]
        for number in range(1, self.count + 1):
            config = self.root / f"sshd{number}"
            config.write_text(f"ListenAddress {self.address(number)}\nHostKey {self.root}/hostkey\n"
                              f"AuthorizedKeysFile {self.root}/key.pub\nPidFile none\nUsePAM no\n"
                              "StrictModes no\nPermitRootLogin prohibit-password\n")
            self.servers.append(subprocess.Popen(
                ["ip", "netns", "exec", self.namespace(number), SSHD, "-D", "-e", "-f",
                 str(config)], stderr=subprocess.DEVNULL))
            settings.append(f"Host gpu{number:02}\n  HostName {self.address(number)}\n")
        (self.root / "ssh_config").write_text("".join(settings))
        for number in range(1, self.count + 1):
            self._until_it_serves(number)

    def _until_it_serves(self, number):
        give_up = time.monotonic() + LIMIT_S
        probe = ["ip", "netns", "exec", self.namespace(0), "ssh", "-F",
                 str(self.root / "ssh_config"), f"gpu{number:02}", "true"]
        while subprocess.run(probe, capture_output=True, check=False).returncode != 0:
            if time.monotonic() > give_up:
                raise OSError(f"sshd of host {number} does not serve: {' '.join(probe)}")
            time.sleep(0.05)

    @property
    def launch(self):
        """The value of --launch."""
        return f"ssh -F {self.root}/ssh_config {{host}}"

    def within(self, number, *command):
        """A command in the namespace of a host, or with 0 in the test's."""
        return ["ip", "netns", "exec", self.namespace(number), *command]

    def processes(self, number):
        """The PIDs in the namespace of a host."""
        own = os.stat(f"/run/netns/{self.namespace(number)}")
        found = []
        for process in pathlib.Path("/proc").glob("[1-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                if os.path.samestat(own, os.stat(process / "ns/net")):
                    found.append(int(process.name))
        return found

    def shape(self, number, rate):
        """Limits the rate at which a host sends."""
        run("tc", "-n", self.namespace(number), "qdisc", "add", "dev", "eth0", "root", "tbf",
            "rate", rate, "burst", "32kb", "latency", "20ms")

    def unshape(self, number):
        run("tc", "-n", self.namespace(number), "qdisc", "delete", "dev", "eth0", "root")
