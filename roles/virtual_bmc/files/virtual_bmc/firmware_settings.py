"""The firmware settings of a lab machine, as Redfish talks of them.

`bios.json` in the machine's folder holds them: `current` is what it booted with, `pending` what
waits for its next start, when the lab's power switch makes the one into the other. One setting can
be changed, the mode, whose name the machine's description gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtual_lab.errors import LabError
from virtual_lab.machine_folder import BIOS, MACHINE, read_json, write_json


def choices(folder: Path) -> dict[str, list[str]]:
    """Possible values of each setting: the machine's modes in capitals, as firmware has them."""
    machine = read_json(folder / MACHINE)
    return {machine["firmware_attribute"]: [mode.upper() for mode in machine["modes"]]}


def current(folder: Path) -> dict[str, str]:
    """The settings with which the machine booted."""
    settings: dict[str, str] = read_json(folder / BIOS)["current"]
    return settings


def pending(folder: Path) -> dict[str, str]:
    """What it boots with next."""
    settings = read_json(folder / BIOS)
    return {**settings["current"], **settings["pending"]}


def change(folder: Path, settings: dict[str, str]) -> None:
    """Make settings wait for the next start.

    Raises:
        LabError: the machine has no such setting, or no such value of it.
    """
    allowed = choices(folder)
    for name, value in settings.items():
        if name not in allowed:
            raise LabError(f"{folder.name} has no setting {name}; it has {', '.join(allowed)}")
        if value not in allowed[name]:
            raise LabError(
                f"{name} of {folder.name} cannot be {value}; it can be {', '.join(allowed[name])}"
            )
    document = read_json(folder / BIOS)
    document["pending"].update(settings)
    write_json(folder / BIOS, document)


def registry(folders: list[Path]) -> list[dict[str, Any]]:
    """The attribute registry's entries: a Redfish service has one for all of its machines."""
    merged: dict[str, set[str]] = {}
    for folder in folders:
        for name, values in choices(folder).items():
            merged.setdefault(name, set()).update(values)
    return [
        {
            "AttributeName": name,
            "ReadOnly": False,
            "Type": "Enumeration",
            "Value": [{"ValueName": value, "ValueDisplayName": value} for value in sorted(values)],
        }
        for name, values in sorted(merged.items())
    ]
