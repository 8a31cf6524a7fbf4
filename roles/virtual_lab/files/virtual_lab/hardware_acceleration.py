"""Finds out whether hardware acceleration works, by trying; its file being there means nothing.

A machine within a virtual machine may run its firmware well and stop at the kernel's first unusual
instruction. So the trial is the lab's own kernel, from its first instruction to the point where it
misses its root drive, where it panics and restarts, which ends QEMU.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from virtual_lab.qemu_arguments import EMULATION

HARDWARE = "kvm"
# Where it works, the trial takes a second or two.
_TRIAL_SECONDS = 10.0
_TRIAL = [
    *("qemu-system-x86_64", "-accel", HARDWARE, "-cpu", "max", "-smp", "2", "-machine", "q35"),
    *("-m", "256M", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"),
    *("-no-reboot", "-append", "console=ttyS0 panic=-1", "-kernel"),
]
_DEVICE = Path("/dev/kvm")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def accelerator(kernel: Path, notes: Path) -> str:
    """What to give to QEMU's ``-accel`` here.

    Args:
        kernel: the kernel that the machines boot.
        notes: file that keeps the answer until this machine is booted anew.
    """
    if not _DEVICE.exists():
        return EMULATION
    about = [str(kernel), _BOOT.read_text().strip()]
    try:
        known = json.loads(notes.read_text())
    except (OSError, ValueError):
        known = {}
    if known.get("about") != about:
        known = {"about": about, "works": _works(kernel)}
        notes.write_text(json.dumps(known) + "\n")
    return HARDWARE if known["works"] else EMULATION


def _works(kernel: Path) -> bool:
    try:
        answer = subprocess.run(
            [*_TRIAL, str(kernel)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and b"Kernel panic" in answer.stdout
