"""Reads and changes the firmware settings of a lab machine, for Redfish.

`bios.json` in the machine's folder holds them. The machine booted with the `current` settings; its
next start makes the `pending` settings current. Only the NUMA mode can be changed; the machine's
description gives the name of this setting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtual_lab.errors import LabError
from virtual_lab.machine_folder import BIOS, MACHINE, read_json, write_json


def allowed_values(folder: Path) -> dict[str, list[str]]:
    """Return the allowed values of each setting: the machine's modes in capitals."""
    machine = read_json(folder / MACHINE)
    return {machine["firmware_attribute"]: [mode.upper() for mode in machine["modes"]]}


def current_settings(folder: Path) -> dict[str, str]:
    """Return the settings with which the machine booted."""
    settings: dict[str, str] = read_json(folder / BIOS)["current"]
    return settings


def pending_settings(folder: Path) -> dict[str, str]:
    """Return all settings that the next start will use."""
    settings = read_json(folder / BIOS)
    return {**settings["current"], **settings["pending"]}


def request_settings(folder: Path, settings: dict[str, str]) -> None:
    """Store settings for the machine's next start.

    Raises:
        LabError: the machine does not have a setting, or does not allow its value.
    """
    allowed = allowed_values(folder)
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


def attribute_registry(folders: list[Path]) -> list[dict[str, Any]]:
    """Return the entries of the Redfish attribute registry, merged from all machines."""
    merged: dict[str, set[str]] = {}
    for folder in folders:
        for name, values in allowed_values(folder).items():
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
