"""The arms of a comparison: NCCL over its own sockets or its own use of RDMA, over Pacecar on some
NIC, or over another net plugin. Checks NCCL's log for the network that was used.

An arm is written `socket`, `ib`, as the NIC's name in PACECAR_NICS or as the path of a plugin;
`+NAME=VALUE` adds to the environment of its ranks, as in soft:udp:lo+PACECAR_CC=swift.
"""

import dataclasses
import hashlib
import itertools
import pathlib
import re
import socket
import subprocess
import sys

from machine import ROOT
from toolkit import Broken

BASELINE = "socket"
BUILT_IN = {BASELINE: "Socket", "ib": "IB"}  # NCCL's own: its name in NCCL's log
PLUGIN_NAME = "libnccl-net-pacecar.so"
INSTALLED_PLUGIN = ROOT.parent.parent / PLUGIN_NAME
LOAD_LIMIT_S = 60
# Each rank has a host id of its own, so that NCCL accepts several ranks on one GPU and uses only
# the network between them. Features that need a GPU for one rank alone, or a second GPU, are off.
ALONE = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0",
         "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
         "NCCL_RAS_ENABLE": "0", "NCCL_IGNORE_CPU_AFFINITY": "1",
         "NCCL_NET_PLUGIN_REF_COUNT": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class Arm:
    name: str
    nic: str = ""  # of Pacecar
    plugin: str = ""  # another one's file
    settings: tuple = ()  # pairs

    def __str__(self):
        return self.name

    @property
    def network(self):
        """In NCCL's log; of another plugin it is not known."""
        if self.plugin:
            return ""
        return "Pacecar" if self.nic else BUILT_IN[self.name.split("+")[0]]


def parse(text):
    parts = text.split("+")
    # The NICs of a bond are joined by + as well.
    nics = list(itertools.takewhile(lambda part: "=" not in part, parts))
    nic = "+".join(nics)
    pairs = [tuple(setting.split("=", 1)) for setting in parts[len(nics):]]
    if not all(nics) or not nics or not all(len(pair) == 2 and NAME.fullmatch(pair[0])
                                            for pair in pairs):
        raise ValueError(f"'{text}' is no arm: write {' or '.join(BUILT_IN)}, a NIC as in "
                         "PACECAR_NICS such as soft:udp:lo, or the path of a plugin, each with "
                         "+NAME=VALUE for its environment")
    if "/" in nic:
        return Arm(text, plugin=nic, settings=tuple(pairs))
    return Arm(text, nic="" if nic in BUILT_IN else nic, settings=tuple(pairs))


def usual(devices=pathlib.Path("/sys/class/infiniband"), interface="lo"):
    """(arms that this host can run, a sentence for each arm that it cannot run)."""
    arms, notes = [parse(BASELINE), parse(f"soft:udp:{interface}")], []
    if interface == "lo":
        notes.append("soft:raw:lo is left out: an address has one such NIC, and so one rank")
    elif may_open_raw():
        arms.append(parse(f"soft:raw:{interface}"))
    else:
        notes.append(f"soft:raw:{interface} is left out: raw sockets need root or CAP_NET_RAW")
    found = sorted(devices.glob("*"))
    if not found:
        notes.append(f"there is no RDMA device in {devices}: software NICs only")
    for device in found:
        if any("ACTIVE" in state.read_text("ascii") for state in device.glob("ports/*/state")):
            arms.append(parse(device.name))
        else:
            notes.append(f"{device.name} is left out: none of its ports is active")
    return arms, notes


def may_open_raw():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP).close()
    except PermissionError:
        return False
    return True


def environment(arm, rank, plugin, log, interface="lo"):
    """Environment variables that a rank gets in addition to the inherited ones. NCCL's log goes to
    `log`, or else to standard output. Without `interface` NCCL chooses one."""
    result = {**ALONE, "NCCL_HOSTID": f"pacecar-rank-{rank}", "NCCL_NET": arm.network,
              "CPU_GPU_BUS": str(rank % 192 + 1),  # without a GPU: each rank has its own
              "NCCL_NET_PLUGIN": "none"}
    if log:
        result["NCCL_DEBUG_FILE"] = str(log)
    if interface:
        result["NCCL_SOCKET_IFNAME"] = interface
    if arm.plugin:
        del result["NCCL_NET"]
        result.update(NCCL_NET_PLUGIN=arm.plugin)
    if arm.nic:
        result.update(NCCL_NET_PLUGIN=str(plugin), PACECAR_NICS=arm.nic, PACECAR_REQUIRE="1")
    return {**result, **dict(arm.settings)}


def find_plugin(options):
    """Pacecar's plugin, after a check that the arms' plugins load; None if no arm needs it."""
    for arm in options.arms:
        if arm.plugin:
            check_plugin(pathlib.Path(arm.plugin))
    if not any(arm.nic for arm in options.arms):
        return None
    usual = [options.build / "net_plugin" / PLUGIN_NAME, INSTALLED_PLUGIN]
    for plugin in [options.plugin] if options.plugin else usual:
        if plugin.is_file():
            check_plugin(plugin.resolve())
            return plugin.resolve()
    raise Broken(f"{options.plugin or 'the plugin'} is missing: build it (cmake --preset release "
                 "&& cmake --build --preset release), install nccl-net-pacecar, or name it with "
                 "--plugin")


def check_plugin(plugin):
    """Loads the plugin in a process of its own for the loader's error: NCCL reports only that it
    found no plugin."""
    if not plugin.is_file():
        raise Broken(f"{plugin} is missing: build it, or name another plugin")
    load = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", str(plugin)]
    done = subprocess.run(load, capture_output=True, text=True, check=False, timeout=LOAD_LIMIT_S)
    if done.returncode != 0:
        why = (done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1]
        raise Broken(f"the plugin does not load here ({why}): install the missing library, or "
                     "name its folder in LD_LIBRARY_PATH")


def describe_plugin(plugin):
    if plugin is None:
        return None
    return {"path": str(plugin), "sha256": hashlib.sha256(plugin.read_bytes()).hexdigest()}


def complaint(arm, log):
    """Why a rank's log does not show the network of the arm; None when it does."""
    networks = set(re.findall(r"Using network (.+)", log))
    network = arm.network or next(iter(networks - set(BUILT_IN.values())), arm.plugin)
    if networks != {network}:
        return (f"NCCL used the network {', '.join(sorted(networks)) or '(none in its log)'}, not "
                f"{network}")
    if arm.nic and f"Pacecar on {arm.nic} (" not in log:
        return f"Pacecar's line in NCCL's log does not name {arm.nic} alone"
    paths = set(re.findall(r"(?:Channel|CollNet) .* via (.+)", log))
    if not any(path.startswith(f"NET/{network}/") for path in paths):
        return f"NCCL's log shows no connection over NET/{network}"
    others = sorted(path for path in paths if not path.startswith("NET/"))
    return f"some ranks were joined by {', '.join(others)}, past the network" if others else None
