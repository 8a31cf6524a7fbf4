"""Reads and writes the files in a machine's folder: description, firmware settings, keys, disks.

Each start uses ``machine.json``. It may differ from the inventory, because drives are replaced and
become slow. ``description.json`` is the machine as the inventory last described it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from virtual_lab.errors import LabError
from virtual_lab.numa_layout import Machine, check_description
from virtual_lab.qemu_arguments import CREDENTIALS, DISK, DRIVES, drive_image_path

MACHINE, BIOS, DESCRIPTION = "machine.json", "bios.json", "description.json"
HOST_KEY = "ssh_host_ed25519_key"
# Defaults of a description.
_DISTANCES = {
    "same_node": 10,
    "same_package": 12,
    "other_package": 32,
    "memory_only": 20,
    "other_memory_only": 40,
}
_DEFAULTS: dict[str, Any] = {
    "interleaved_cpus": False,
    "memoryless_nodes": [],
    "memory_only_nodes": [],
    "nvme_multipath": False,
    "hmat": {},
    "drives": [],
    "firmware_attribute": "NumaNodesPerSocket",
}
_DRIVE = {"bytes": 256 * 2**20, "read_bytes_per_second": 0}


def read_json(path: Path) -> Any:
    """Return the content of a JSON file in a machine's folder.

    Raises:
        LabError: the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{path.parent.name}: cannot read {path}: {error}; run make lab") from None


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file in one step, so that no reader ever sees a half-written file."""
    replace_text(path, json.dumps(content, indent=1) + "\n")


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a text file in one step; the new file has its permissions from the start."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
    Path(file.name).replace(path)


def complete_description(description: Machine) -> dict[str, Any]:
    """Return a checked description with defaults for everything that was left out.

    Raises:
        LabError: the description is impossible.
    """
    machine = {**_DEFAULTS, **description}
    machine["distances"] = {**_DISTANCES, **description.get("distances", {})}
    usual = {**_DRIVE, **machine.pop("drive", {})}
    machine["drives"] = [{**usual, **drive} for drive in machine["drives"]]
    check_description(machine)
    return machine


def matches_description(folder: Path) -> bool:
    """Return whether ``machine.json`` was made from the present ``description.json``."""
    path = folder / MACHINE
    return path.exists() and read_json(path)["described_by"] == _digest(folder)


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / DESCRIPTION).read_bytes()).hexdigest()


def apply_description(folder: Path) -> None:
    """Write ``machine.json``, disk and firmware settings as described; the machine must be off.

    Raises:
        LabError: the description is impossible.
    """
    machine = complete_description(read_json(folder / DESCRIPTION))
    before = read_json(folder / MACHINE) if (folder / MACHINE).exists() else {}
    if before.get("image") != machine["image"] or not (folder / DISK).exists():
        _make_disk(folder, Path(machine["image"]))
    settings = read_json(folder / BIOS)["current"] if (folder / BIOS).exists() else {}
    if mode_in_settings(machine, settings) not in machine["modes"]:
        write_json(folder / BIOS, {"current": _first_settings(machine), "pending": {}})
    # Last, because this file means that all others exist.
    write_json(folder / MACHINE, {**machine, "described_by": _digest(folder)})


def _first_settings(machine: Machine) -> dict[str, str]:
    return {machine["firmware_attribute"]: machine["mode"].upper()}


def mode_in_settings(machine: Machine, settings: Machine) -> str:
    """Return the NUMA mode from firmware settings, in lower case; empty if they lack it."""
    return str(settings.get(machine["firmware_attribute"], "")).lower()


def _make_disk(folder: Path, image: Path) -> None:
    """Create the machine's own disk, which holds its differences from the shared image."""
    unfinished = folder / f"{DISK}.new"
    backing = ["-F", "raw", "-b", str(image / "root.img")]
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(unfinished)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise LabError(f"{folder.name}: qemu-img did not create the disk: {answer.stderr.strip()}")
    unfinished.replace(folder / DISK)


def create_drive_images(folder: Path, machine: Machine) -> None:
    """Create an image for each new drive, and delete the images of removed drives."""
    (folder / DRIVES).mkdir(exist_ok=True)
    wanted = {folder / drive_image_path(drive["serial"]): drive for drive in machine["drives"]}
    for path, drive in wanted.items():
        with path.open("ab") as file:
            # Sparse: the file takes no space before it is written.
            os.truncate(file.fileno(), drive["bytes"])
    for path in (folder / DRIVES).iterdir():
        if path not in wanted:
            path.unlink()


def write_credentials(folder: Path) -> None:
    """Write the machine's keys in the form in which systemd reads them from firmware tables.

    See "SYSTEM CREDENTIALS" in systemd.exec(5) and the SMBIOS strings in systemd(1).
    """
    target = folder / CREDENTIALS
    target.mkdir(mode=0o700, exist_ok=True)
    sources = {
        "host_key": folder / HOST_KEY,
        "authorized_keys": folder.parent / "id_ed25519.pub",
    }
    for name, source in sources.items():
        content = base64.b64encode(source.read_bytes()).decode()
        text = f"io.systemd.credential.binary:lab.{name}={content}"
        replace_text(target / name, text, mode=0o600)


def remove_machine(folder: Path) -> None:
    """Delete a machine's folder; the machine must be off."""
    shutil.rmtree(folder)
