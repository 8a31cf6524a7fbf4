"""Programs that are placed, and a root folder with the files of a kernel."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaosity.runner import linux_settings
from small_load import SAMPLES, small_point

WEIGHTS = f"{linux_settings.WEIGHTS}/node"
# Under nohup, or after `&` in a script, tests ignore these signals, and their programs would too.
SIGNALS_AS_USUAL = ("env", "--default-signal=HUP,INT")
PLACE = (*SIGNALS_AS_USUAL, sys.executable, "-m", "chaosity.place")


class Kernel:
    """Files that stand for a kernel's settings, with two nodes of which one has memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        nodes = "sys/devices/system/node"
        for name, text in {
            linux_settings.BOOT_ID: "this boot",
            linux_settings.NUMA_BALANCING: "1",
            f"{nodes}/has_memory": "0",
            f"{nodes}/node0/cpulist": "0-1",
            f"{nodes}/node1/cpulist": "",
            f"{WEIGHTS}0": "7",
            f"{linux_settings.WEIGHTS}/auto": "true",
        }.items():
            self.set(name, text)
        for folder in ("tmp", "run"):
            (root / folder).mkdir()

    def set(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def get(self, name: str) -> str:
        return (self.root / name).read_text().strip()

    @property
    def balancing(self) -> str:
        return self.get(linux_settings.NUMA_BALANCING)

    @property
    def left(self) -> bool:
        """Whether former values wait to be put back."""
        return (self.root / linux_settings.FORMER_VALUES).exists()

    def arguments(self, *arguments: str, policy: str = "uniform_all") -> list[str]:
        given = ("--root", str(self.root), "--policy", policy, "--workers", "0")
        return [*given, *arguments]

    def command(self, *arguments: str, policy: str = "uniform_all") -> list[str]:
        return [*PLACE, *self.arguments(*arguments, policy=policy)]

    def start(self, *arguments: str, policy: str = "uniform_all") -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments, policy=policy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, policy: str = "uniform_all") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments, policy=policy),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def placed_point(command: list[str], seconds: float, **load: Any) -> dict[str, Any]:
    """A point for the runner with one load, an imagined machine of 16 MiB on node 0.

    Args:
        command: that places it; its report is to be placed.json.
        seconds: how long it is measured.
        load: what is different from a load that is spawned.
    """
    whole = {
        "name": "program",
        "command": command,
        "start": "spawn",
        "stop": {"by": "runner", "signal": "TERM", "exit": [128 + signal.SIGTERM]},
        "progress": {**SAMPLES, "amount": "passes"},
        "metrics": {"passes_per_second": {"progress": True}},
        "valid": [],
        "memory_bytes": 16 << 20,
        "placement": {"cpus": "0", "memory_nodes": [0], "mapping": "mapping"},
    }
    stopping = {"relative_precision": None, "min_seconds": seconds, "max_seconds": seconds}
    return small_point(point={"stopping": stopping, "timeout_seconds": 60}, **{**whole, **load})


def report(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())
