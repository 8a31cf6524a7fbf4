"""Runs the real workflow in a separate folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from chaosity.records.record_format import Record
from inventories import write_inventory
from wait_until_true import files_of_running_program

# Short times: they show that the workflow works, the measured values mean nothing.
SHORT = {
    # A pass takes some milliseconds; on a busy machine it can wait for 100.
    "memory_bandwidth": {"relative_precision": None, "min_seconds": 0.3, "max_seconds": 0.3},
    "storage_bandwidth": {"relative_precision": None, "min_seconds": 1, "max_seconds": 1},
    "storage_latency": {"relative_precision": None, "min_seconds": 1, "max_seconds": 1},
    "memory_latency": {"relative_precision": None, "min_seconds": 0.3, "max_seconds": 0.3},
    "memory_traffic": {"relative_precision": None, "min_seconds": 0.6, "max_seconds": 0.6},
    "core_to_core": {"relative_precision": None, "min_seconds": 0.3, "max_seconds": 0.3},
    "streaming_compute": {"relative_precision": None, "min_seconds": 0.3, "max_seconds": 0.3},
}
# Memory, storage, and both together: every kind of job that the workflow has.
EXPERIMENTS = ["memory_bandwidth", "storage_bandwidth", "interference"]
SMALL = {
    "times_last_level_cache": 0.05,
    "at_least_bytes": 16 * 2**20,
    "at_most_share_of_node": 0.5,
    "sweep_at_most_bytes": 16 * 2**20,
}
# A dry run that lists the measurements also of each of several hosts.
LISTING = ("--dry-run", "--quiet", "reason")


class Workflow:
    """A folder with an inventory and a config in which Snakemake runs."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.timeout = 300
        self.config: dict[str, Any] = {
            "inventory": str(folder / "hosts.yml"),
            "results": "results",
            "experiments": EXPERIMENTS,
            "replicates": 1,
            "stopping": SHORT,
            "working_set": SMALL,
        }
        self.host()

    def host(self, name: str = "localhost", **variables: Any) -> None:
        """Write an inventory with one host, which is this machine."""
        self.hosts({name: {"ansible_connection": "local", **variables}})

    def hosts(self, hosts: dict[str, dict[str, Any]]) -> None:
        """Write an inventory with these hosts and their variables."""
        write_inventory(self.folder / "hosts.yml", hosts)

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake; stdout contains its output and errors."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=self.timeout,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def command(self, *arguments: str) -> list[str]:
        """Write the config and return the Snakemake command that uses it."""
        (self.folder / "test.yaml").write_text(yaml.safe_dump(self.config))
        return [
            *(sys.executable, "-m", "snakemake"),
            *("--snakefile", str(self.root / "workflow/Snakefile")),
            *("--workflow-profile", str(self.root / "profiles/default")),
            *("--directory", str(self.folder), "--configfile", "test.yaml"),
            *arguments,
        ]

    def run(self, *arguments: str) -> str:
        """Run everything and return the output; the run must succeed."""
        done = self.snakemake(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def measure(self) -> str:
        """Only measure, without tables and reports, which takes half the time; must succeed."""
        return self.run("--", "measurements")

    def selected(self) -> set[tuple[str, str, str]]:
        """Measurements that a dry run lists: experiment, point, replicate."""
        text = self.run(*LISTING)
        pattern = r"experiment=(\S+), point=(\S+), replicate=(\d+)"
        return set(re.findall(pattern, text))

    def counts(self) -> Counter[str]:
        """Number of jobs of each rule that a dry run lists."""
        text = self.run(*LISTING)
        found = re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE)
        return Counter({name: int(count) for name, count in found})

    def records(self, host: str = "*", experiment: str = "*") -> dict[Path, Record]:
        """The current records of a host, or of all, by their files."""
        pattern = f"{host}/*/{experiment}/*/rep*.json"
        found = files_of_running_program(self.folder / "results", pattern)
        return {path: json.loads(path.read_text()) for path in found}

    def attempts(self, host: str = "*") -> list[Path]:
        """The files of all that was ever measured of a host, or of all."""
        pattern = f"{host}/*/*/*/attempts/*.json"
        return files_of_running_program(self.folder / "results", pattern)

    def path(self, pattern: str) -> Path:
        """Path of the only file below the results that matches the pattern."""
        [found] = (self.folder / "results").glob(pattern)
        return found
