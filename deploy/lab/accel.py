"""Chooses the guests' acceleration: KVM if it works, else QEMU's own translation."""

import os
import pathlib
import subprocess

import image

TRANSLATION = ["-accel", "tcg,thread=multi", "-cpu", "max"]
HARDWARE = ["-accel", "kvm", "-cpu", "host"]
PROBE_SECONDS = 8  # a boot with KVM takes one or two, or hangs for ever


def flags(wanted, booted):
    if wanted == "tcg":
        return TRANSLATION
    works = os.access("/dev/kvm", os.R_OK | os.W_OK) and hardware_works(booted)
    if wanted == "kvm" and not works:
        raise image.Unavailable("KVM does not work on this machine: use --accel tcg")
    return HARDWARE if works else TRANSLATION


def hardware_works(booted):
    """Whether a kernel boots with KVM: tested once per boot of the host; the cache has the result.

    In a virtual machine /dev/kvm can often be opened, but a guest may never run.
    """
    host_boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with image.locked(image.cache_folder() / "kvm.lock"):
        memory = image.cache_folder() / "kvm"
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
               "-append", "quiet panic=-1 lab.probe"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
