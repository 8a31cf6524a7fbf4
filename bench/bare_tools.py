"""A short run of the workflow on this machine, and the tools of its points without the workflow."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from chaosity.runner.devices_of_point import HeldDrives, check_and_link_drives

ROOT = Path(__file__).resolve().parents[1]


def run_workflow(folder: Path, *arguments: str, file_bytes: int, **config: Any) -> None:
    """Run Snakemake in a folder; on a machine without NVMe drives, loads read a file.

    Args:
        folder: where the inventory, the config and the results are written.
        arguments: further arguments of Snakemake.
        file_bytes: size of the file.
        config: keys that differ from the default config.
    """
    host = {
        "ansible_connection": "local",
        "chaosity_storage_file": {"directory": str(folder / "drive"), "bytes": file_bytes},
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"localhost": host}}}))
    config = {"results": "results", "inventory": str(folder / "hosts.yml"), **config}
    (folder / "bench.yaml").write_text(yaml.safe_dump(config))
    command = [
        "snakemake",
        *("--snakefile", str(ROOT / "workflow/Snakefile")),
        *("--workflow-profile", str(ROOT / "profiles/default")),
        *("--directory", str(folder), "--configfile", "bench.yaml", "--quiet"),
        *arguments,
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)


def read_point(path: Path, folder: Path) -> dict:
    """Return a point with one load, after writing its files and links to drives in the folder."""
    point: dict = json.loads(path.read_text())
    [load] = point["loads"]
    folder.mkdir(exist_ok=True)
    for name, text in load["files"].items():
        (folder / name).write_text(text)
    check_and_link_drives(load, folder, HeldDrives())
    return point


def run_bare(point: dict, folder: Path) -> float:
    """Run the command of a point's load without runner and workflow; return the seconds."""
    [load] = point["loads"]
    began = time.monotonic()
    subprocess.run(load["command"], cwd=folder, check=True, capture_output=True)
    return time.monotonic() - began
