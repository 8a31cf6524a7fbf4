"""Finds out by a trial whether QEMU can use hardware acceleration here.

The device /dev/kvm alone proves nothing: inside a virtual machine, an accelerated machine may run
its firmware well and stop at the first unusual instruction of the kernel. So the trial boots the
lab's own kernel without a root drive: it panics and restarts, and the restart ends QEMU.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from virtual_lab.qemu_arguments import EMULATION

HARDWARE = "kvm"
# With working acceleration the trial takes a second or two.
_TRIAL_SECONDS = 10.0
_TRIAL = [
    *("qemu-system-x86_64", "-accel", HARDWARE, "-cpu", "max", "-smp", "2", "-machine", "q35"),
    *("-m", "256M", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"),
    *("-no-reboot", "-append", "console=ttyS0 panic=-1", "-kernel"),
]
_DEVICE = Path("/dev/kvm")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def qemu_accelerator(kernel: Path, notes: Path) -> str:
    """Return the value of QEMU's ``-accel`` for this computer: hardware or emulation.

    Args:
        kernel: path of the kernel that the machines boot.
        notes: file that keeps the result until this computer boots again.
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
