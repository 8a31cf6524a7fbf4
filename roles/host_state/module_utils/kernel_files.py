"""Reads and writes files of a running kernel: below /sys and /proc, MSRs, and irqbalance.

This module runs on the hosts, so it needs only the standard library of Python 3.9 or later.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

NODES = "sys/devices/system/node"
SERVICE = "irqbalance.service"
# A register of a CPU: its file, and its number behind an @.
REGISTER = re.compile(r"(dev/cpu/\d+/msr)@(0x[0-9a-f]+)")


class StateError(Exception):
    """A setting is impossible or did not work; the message is one sentence with the reason."""


class Host:
    """The settings of a host: files below `root`, named relative to it, and irqbalance."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def find_files(self, pattern: str) -> list[str]:
        """Return the names of matching files, sorted by the numbers in them."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])

    def read_words(self, name: str) -> list[str]:
        """Return all words of a file, without brackets; for a choice, the possible values."""
        return re.sub(r"[\[\]]", "", (self.root / name).read_text()).split()

    def read(self, name: str) -> str:
        """Return a file's value; for a choice, the word in brackets."""
        if name == SERVICE:
            # A service that failed or is stopping is restored as stopped.
            return "active" if self.service_state()["ActiveState"] == "active" else "inactive"
        if register := REGISTER.fullmatch(name):
            with (self.root / register.group(1)).open("rb", buffering=0) as file:
                content = os.pread(file.fileno(), 8, int(register.group(2), 16))
            return hex(int.from_bytes(content, "little"))
        text = (self.root / name).read_text().strip()
        chosen = re.search(r"\[(\S+)\]", text)
        return chosen.group(1) if chosen else text

    def write(self, name: str, value: str) -> None:
        """Write a value with a single write; a missing file is an error and is not created."""
        if name == SERVICE:
            self._systemctl("start" if value == "active" else "stop", SERVICE)
            return
        if register := REGISTER.fullmatch(name):
            with (self.root / register.group(1)).open("r+b", buffering=0) as file:
                content = int(value, 16).to_bytes(8, "little")
                os.pwrite(file.fileno(), content, int(register.group(2), 16))
            return
        handle = os.open(self.root / name, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, value.encode())
        finally:
            os.close(handle)

    def exists(self, name: str) -> bool:
        """Return whether a file or the file of a register exists; irqbalance always does."""
        return name == SERVICE or (self.root / name.partition("@")[0]).exists()

    def node_memory_kib(self, node: str, what: str) -> int:
        """Return `MemTotal` or `MemFree` of a node, in KiB."""
        text = (self.root / f"{NODES}/node{node}/meminfo").read_text()
        found = re.search(rf"{what}: *(\d+) kB", text)
        if found is None:
            raise StateError(f"node {node} does not report {what}")
        return int(found.group(1))

    def service_state(self) -> dict[str, str]:
        """Return systemd's LoadState and ActiveState of irqbalance."""
        lines = self._systemctl("show", "--property=LoadState,ActiveState", SERVICE)
        return dict(line.split("=", 1) for line in lines)

    @staticmethod
    def _systemctl(*arguments: str) -> list[str]:
        if not shutil.which("systemctl"):
            raise StateError("systemd is missing, which starts and stops the service")
        answer = subprocess.run(
            ["systemctl", *arguments], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            raise StateError(answer.stderr.splitlines()[0])
        return answer.stdout.splitlines()
