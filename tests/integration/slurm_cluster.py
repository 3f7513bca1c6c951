"""A private Slurm cluster on this machine: munged, slurmctld, and a slurmd in each of several
network namespaces that a bridge joins. Nodes are n1, n2, ...; their interface is eth0.

The cluster runs in namespaces for processes, mounts, host names and the network, which the program
that uses the cluster enters first (`enter`). When that program ends, the kernel ends the rest.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

from limits import LIMIT_S

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "ip", "unshare")
INSIDE = "SLURM_CLUSTER_INSIDE"
SKIPPED = 77
CONFIGURATION = """
ClusterName=test
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=1
NodeName=n[1-{nodes}] CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
# Runs a node: it prints "ready" once it has its network namespace, and waits for its interface.
NODE = """
hostname {name}; ip link set lo up; echo ready
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip address add {address}/24 dev eth0; ip link set eth0 up
exec slurmd -D -N {name} >/dev/null 2>&1
"""


def enter():
    """Restarts the program in its own namespaces, or ends it with a sentence and status 77."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.environ.get(INSIDE):
        return
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        skip(f"no {', '.join(missing)} here: install slurmd slurmctld slurm-client munge iproute2")
    flags = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = subprocess.run(["unshare", *flags, "true"], check=False, capture_output=True, text=True)
    if os.geteuid() != 0 or tried.returncode != 0:
        skip("no namespaces for the nodes of a cluster can be made: run as root "
             f"({tried.stderr.strip()})")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(SKIPPED)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          timeout=LIMIT_S).stdout


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} has not happened in {LIMIT_S} s")
        time.sleep(0.05)


class Cluster:
    def __init__(self, root, nodes):
        """Starts the cluster in `root`, an empty folder. The daemons end with the namespaces."""
        self.root = pathlib.Path(root)
        self.root.chmod(0o755)  # munged checks the mode
        self.daemons = []
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        configuration = self.root / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(root=self.root, nodes=nodes))
        os.environ["SLURM_CONF"] = str(configuration)
        self.join_network()
        self.start_munged()
        (self.root / "state").mkdir()
        self.daemon("slurmctld", "-D")
        for number, name in enumerate(self.nodes, 1):
            self.start_node(name, f"192.0.2.{number}", f"port{number}")
        until(lambda: run("sinfo", "-h", "-o", "%D %t").strip() == f"{nodes} idle",
              "that all nodes are idle")

    def join_network(self):
        names = ["127.0.0.1 localhost", "192.0.2.254 head"]
        names += [f"192.0.2.{number} {name}" for number, name in enumerate(self.nodes, 1)]
        hosts = self.root / "hosts"
        hosts.write_text("\n".join(names) + "\n")
        run("mount", "--bind", str(hosts), "/etc/hosts")
        run("hostname", "head")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge0", "type", "bridge")
        run("ip", "address", "add", "192.0.2.254/24", "dev", "bridge0")
        run("ip", "link", "set", "bridge0", "up")

    def start_munged(self):
        folder = self.root / "munge"
        folder.mkdir(mode=0o755)
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(64))
        self.daemon("munged", "--foreground", f"--key-file={key}", f"--socket={folder}/socket",
                    f"--pid-file={folder}/pid", f"--log-file={folder}/log",
                    f"--seed-file={folder}/seed", "--force")
        until((folder / "socket").exists, "that munged listens")

    def start_node(self, name, address, port):
        (self.root / f"spool-{name}").mkdir()
        script = NODE.format(name=name, address=address)
        node = subprocess.Popen(["unshare", "--net", "--uts", "bash", "-c", script], text=True,
                                stdout=subprocess.PIPE)
        node.stdout.readline()
        node.stdout.close()
        self.daemons.append(node)
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
            str(node.pid))
        run("ip", "link", "set", port, "master", "bridge0", "up")

    def daemon(self, *command):
        self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @staticmethod
    def submit(*command, folder, **changes):
        """Runs `sbatch COMMAND...` in `folder`; returns the job's number."""
        done = subprocess.run(["sbatch", "--parsable", *map(str, command)], cwd=folder,
                              env={**os.environ, **changes}, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"sbatch {command}: {done.stderr}")
        return done.stdout.strip()

    @staticmethod
    def wait(job):
        """Waits for the job; returns its exit status, of an array the worst. (`sbatch --wait` would
        poll every 10 s only.)"""
        until(lambda: not run("squeue", "-h", "-j", job).strip(), f"the end of job {job}")
        fields = run("scontrol", "show", "job", "-o", job).split()
        return max(int(word.split("=")[1].split(":")[0]) for word in fields
                   if word.startswith("ExitCode="))
