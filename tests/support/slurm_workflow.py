"""Runs the workflow through a real Slurm with two nodes on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from snakemake.utils import update_config

import playbooks
from broken_runs import run_program, start_program
from wait_until_true import files_of_running_program
from workflow_folder import SHORT, SMALL

HOSTS = ("nodea", "nodeb")
INVENTORY = Path(__file__).parents[1] / "slurm" / "hosts.yml"


def play(root: Path, *arguments: str) -> playbooks.Outcome:
    """Run slurm.yml on this machine as two nodes."""
    return playbooks.play(root, "-i", INVENTORY, *arguments, playbook="tests/slurm/slurm.yml")


class Checkout:
    """A separate checkout with a short config, in which commands run as a user types them."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        for name in ("templates", "build"):
            (folder / name).symlink_to(root / name)
        for name in ("workflow", "profiles", "config"):
            shutil.copytree(root / name, folder / name)
        # The link that lets Snakemake find the profile `cluster`.
        (folder / "cluster").symlink_to((root / "cluster").readlink())
        self.adjust("profiles/cluster/config.yaml", r"(status-checks): \d+", r"\1: 5")
        variables = {
            "ansible_connection": "local",
            "chaosity_storage_file": {"directory": str(folder / "scratch"), "bytes": 64 * 2**20},
        }
        inventory = {"all": {"vars": variables, "hosts": {name: {} for name in HOSTS}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
        self.configure(
            inventory="hosts.yml",
            experiments=["memory_bandwidth"],
            replicates=1,
            stopping=SHORT,
            working_set=SMALL,
        )

    def configure(self, **keys: Any) -> None:
        """Change keys of the config; of a mapping only the given keys."""
        path = self.folder / "config/config.yaml"
        config = yaml.safe_load(path.read_text())
        update_config(config, keys)
        path.write_text(yaml.safe_dump(config))

    def adjust(self, name: str, pattern: str, replacement: str) -> None:
        """Replace the only match of a pattern in a file."""
        path = self.folder / name
        text, count = re.subn(pattern, replacement, path.read_text())
        assert count == 1, f"{pattern} is {count} times in {name}"
        path.write_text(text)

    def start(self) -> subprocess.Popen[str]:
        """Start the command and do not wait."""
        return start_program("snakemake", "--profile", "cluster", folder=self.folder)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command and wait for its end."""
        return run_program("snakemake", "--profile", "cluster", *arguments, folder=self.folder)

    def records(self, host: str) -> list[Path]:
        """The current records of a host."""
        return files_of_running_program(self.folder / "results", f"{host}/*/*/*/rep*.json")

    def attempts(self, host: str) -> list[Path]:
        """All attempts of a host, sorted by the time of their end."""
        pattern = f"{host}/*/*/*/attempts/*.json"
        found = files_of_running_program(self.folder / "results", pattern)
        return sorted(found, key=lambda path: path.name.split(".", 1)[1])
