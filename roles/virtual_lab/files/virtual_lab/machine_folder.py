"""What is kept of a machine in its folder: description, firmware settings, identity, disks.

``machine.json`` is the truth at each start, and may differ from the inventory since drives are
replaced and degrade. ``description.json`` is what the inventory said last.
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
from virtual_lab.numa_layout import Machine, check
from virtual_lab.qemu_arguments import CREDENTIALS, DISK, DRIVES, drive_image

MACHINE, BIOS, DESCRIPTION = "machine.json", "bios.json", "description.json"
HOST_KEY = "ssh_host_ed25519_key"
# What a description may leave out.
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
    """The content of a JSON file of a machine's folder.

    Raises:
        LabError: it is missing or damaged.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{path.parent.name}: cannot read {path}: {error}; run lab.yml") from None


def write_json(path: Path, content: Any) -> None:
    """Replace a file as a whole, so that nobody ever reads half of it."""
    replace_text(path, json.dumps(content, indent=1) + "\n")


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file as a whole, with permissions that it has from the start."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
    Path(file.name).replace(path)


def complete(description: Machine) -> dict[str, Any]:
    """A description with everything that it left out, checked.

    Raises:
        LabError: no machine can be made of it.
    """
    machine = {**_DEFAULTS, **description}
    machine["distances"] = {**_DISTANCES, **description.get("distances", {})}
    usual = {**_DRIVE, **machine.pop("drive", {})}
    machine["drives"] = [{**usual, **drive} for drive in machine["drives"]]
    check(machine)
    return machine


def is_current(folder: Path) -> bool:
    """Whether ``machine.json`` was made from the ``description.json`` that lies beside it."""
    path = folder / MACHINE
    return path.exists() and read_json(path)["described_by"] == _digest(folder)


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / DESCRIPTION).read_bytes()).hexdigest()


def describe_anew(folder: Path) -> None:
    """Make ``machine.json`` and what belongs to it from the description; the machine is off.

    Raises:
        LabError: no machine can be made of the description.
    """
    machine = complete(read_json(folder / DESCRIPTION))
    before = read_json(folder / MACHINE) if (folder / MACHINE).exists() else {}
    if before.get("image") != machine["image"] or not (folder / DISK).exists():
        _make_disk(folder, Path(machine["image"]))
    settings = read_json(folder / BIOS)["current"] if (folder / BIOS).exists() else {}
    if mode_of(machine, settings) not in machine["modes"]:
        write_json(folder / BIOS, {"current": _first_settings(machine), "pending": {}})
    # Last, for it says that all the rest is there.
    write_json(folder / MACHINE, {**machine, "described_by": _digest(folder)})


def _first_settings(machine: Machine) -> dict[str, str]:
    return {machine["firmware_attribute"]: machine["mode"].upper()}


def mode_of(machine: Machine, settings: Machine) -> str:
    """The mode in firmware settings, in lower case; empty if they do not contain it."""
    return str(settings.get(machine["firmware_attribute"], "")).lower()


def _make_disk(folder: Path, image: Path) -> None:
    """A disk of the machine's own that takes what differs from the image that all share."""
    unfinished = folder / f"{DISK}.new"
    backing = ["-F", "raw", "-b", str(image / "root.img")]
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(unfinished)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise LabError(f"{folder.name}: qemu-img made no disk: {answer.stderr.strip()}")
    unfinished.replace(folder / DISK)


def make_drives(folder: Path, machine: Machine) -> None:
    """Make the images of drives that are new and remove those of drives that are gone."""
    (folder / DRIVES).mkdir(exist_ok=True)
    wanted = {folder / drive_image(drive["serial"]): drive for drive in machine["drives"]}
    for path, drive in wanted.items():
        with path.open("ab") as file:
            # Sparse: it takes no space until somebody writes.
            os.truncate(file.fileno(), drive["bytes"])
    for path in (folder / DRIVES).iterdir():
        if path not in wanted:
            path.unlink()


def write_credentials(folder: Path) -> None:
    """Put the machine's identity into the form in which systemd takes it from firmware tables.

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


def remove(folder: Path) -> None:
    """Remove all that is kept of a machine; it is off."""
    shutil.rmtree(folder)
