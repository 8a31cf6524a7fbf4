"""Connects sushy-tools, a Redfish emulator, to the lab's machines."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sushy_tools import error
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver

from virtual_bmc import firmware_settings
from virtual_lab import power_switch
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import MACHINE

# A fixed random UUID. Each machine's UUID is derived from it and the machine's name.
NAMESPACE = uuid.UUID("7f2d3c7e-51d9-4b43-9b57-0a5a9a1f0c11")
BUTTONS: dict[str, Callable[[Path], object]] = {
    "On": power_switch.start_machine,
    "ForceOn": power_switch.start_machine,
    "ForceOff": partial(power_switch.stop_machine, force=True),
    "GracefulShutdown": power_switch.stop_machine,
    "GracefulRestart": power_switch.restart_machine,
    "ForceRestart": partial(power_switch.restart_machine, force=True),
}


# sushy-tools has no type stubs, so its base class has the type Any.
class LabDriver(AbstractSystemsDriver):  # type: ignore[misc]
    """sushy-tools' driver for the machines whose folders are below the lab's folder.

    Args:
        lab: folder with a folder for each machine.
        say: writes a sentence to the log.
    """

    def __init__(self, lab: Path, say: Callable[[str], object]) -> None:
        self.lab, self.say = lab, say
        self._busy: dict[str, threading.Thread] = {}

    @property
    def driver(self) -> str:
        """Return the driver's name in the emulator's log."""
        return "<virtual lab>"

    @property
    def systems(self) -> list[str]:
        """Return the machines' names, which are their Redfish Ids."""
        return sorted(path.parent.name for path in self.lab.glob(f"*/{MACHINE}"))

    def folders(self) -> list[Path]:
        """Return the machines' folders."""
        return [self.lab / name for name in self.systems]

    def name(self, identity: str) -> str:
        """Return the name of the machine with this name or UUID."""
        for name in self.systems:
            if identity in (name, _uuid(name)):
                return name
        raise error.NotFound(f"the lab has no machine {identity}")

    def uuid(self, identity: str) -> str:
        """Return a machine's UUID, which is the same after each start."""
        return _uuid(self.name(identity))

    def folder(self, identity: str) -> Path:
        """Return a machine's folder."""
        return self.lab / self.name(identity)

    def get_power_state(self, identity: str) -> str:
        """Return `On` or `Off`."""
        return power_switch.power_state(self.folder(identity)).capitalize()

    def set_power_state(self, identity: str, state: str) -> None:
        """Begin a change of the power state; the answer does not wait until it is complete.

        Raises:
            error.Conflict: the previous change is not complete yet.
            error.BadRequest: the lab does not have this power state.
        """
        folder = self.folder(identity)
        if state not in BUTTONS:
            raise error.BadRequest(f"{folder.name} has no {state}; it has {', '.join(BUTTONS)}")
        if folder.name in self._busy and self._busy[folder.name].is_alive():
            raise error.Conflict(f"{folder.name} is still busy with the previous request")
        thread = threading.Thread(target=self._press, args=(folder, state), daemon=True)
        self._busy[folder.name] = thread
        thread.start()

    def wait(self, identity: str) -> None:
        """Wait until the last change of a machine's power state is complete."""
        self._busy[self.name(identity)].join()

    def _press(self, folder: Path, state: str) -> None:
        try:
            BUTTONS[state](folder)
        except (LabError, OSError) as problem:  # the request has been answered already
            self.say(f"{state} of {folder.name} failed: {problem}")

    def get_boot_device(self, identity: str) -> str:
        """Return `Hdd`: the lab's machines boot only from their drive."""
        return "Hdd"

    def set_boot_device(self, identity: str, boot_source: str) -> None:
        """Refuse every change: the lab's machines boot only from their drive."""
        raise error.NotSupportedError("the lab's machines start from their drive")

    def get_bios(self, identity: str) -> dict[str, str]:
        """Return the settings with which the machine booted."""
        return firmware_settings.current_settings(self.folder(identity))

    def set_bios(self, identity: str, attributes: dict[str, str]) -> None:
        """Store settings for the machine's next start.

        Raises:
            error.BadRequest: the machine does not have a setting, or does not allow its value.
        """
        try:
            firmware_settings.request_settings(self.folder(identity), attributes)
        except LabError as refusal:
            raise error.BadRequest(str(refusal)) from refusal

    def reset_bios(self, identity: str) -> None:
        """Store the machine's first mode for its next start."""
        defaults = firmware_settings.allowed_values(self.folder(identity))
        self.set_bios(identity, {name: values[0] for name, values in defaults.items()})


def _uuid(name: str) -> str:
    return str(uuid.uuid5(NAMESPACE, name))
