"""What the emulator asks of a kind of machine, answered for the lab's."""

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

# Any fixed identity serves; machines' are derived from it by name, so that they last.
NAMESPACE = uuid.UUID("7f2d3c7e-51d9-4b43-9b57-0a5a9a1f0c11")
BUTTONS: dict[str, Callable[[Path], object]] = {
    "On": power_switch.start,
    "ForceOn": power_switch.start,
    "ForceOff": partial(power_switch.stop, force=True),
    "GracefulShutdown": power_switch.stop,
    "GracefulRestart": power_switch.restart,
    "ForceRestart": partial(power_switch.restart, force=True),
}


# sushy-tools has no type stubs, so its base class has the type Any.
class LabDriver(AbstractSystemsDriver):  # type: ignore[misc]
    """The machines whose folders lie below the lab's, by name.

    Args:
        lab: folder with a folder for each machine.
        say: takes a sentence for the log.
    """

    def __init__(self, lab: Path, say: Callable[[str], object]) -> None:
        self.lab, self.say = lab, say
        self._busy: dict[str, threading.Thread] = {}

    @property
    def driver(self) -> str:
        """What the emulator's log calls this."""
        return "<virtual lab>"

    @property
    def systems(self) -> list[str]:
        """Names of the machines, which are their Redfish Ids."""
        return sorted(path.parent.name for path in self.lab.glob(f"*/{MACHINE}"))

    def folders(self) -> list[Path]:
        """The machines' folders."""
        return [self.lab / name for name in self.systems]

    def name(self, identity: str) -> str:
        """A machine's name, from its name or its UUID."""
        for name in self.systems:
            if identity in (name, _uuid(name)):
                return name
        raise error.NotFound(f"the lab has no machine {identity}")

    def uuid(self, identity: str) -> str:
        """A machine's UUID, the same at each start."""
        return _uuid(self.name(identity))

    def folder(self, identity: str) -> Path:
        """A machine's folder."""
        return self.lab / self.name(identity)

    def get_power_state(self, identity: str) -> str:
        """`On` or `Off`."""
        return power_switch.state(self.folder(identity)).capitalize()

    def set_power_state(self, identity: str, state: str) -> None:
        """Press a button; the machine takes its time, and the answer does not wait for it.

        Raises:
            error.Conflict: the machine is still busy with the button before.
            error.BadRequest: there is no such button.
        """
        folder = self.folder(identity)
        if state not in BUTTONS:
            raise error.BadRequest(f"{folder.name} has no {state}; it has {', '.join(BUTTONS)}")
        if folder.name in self._busy and self._busy[folder.name].is_alive():
            raise error.Conflict(f"{folder.name} is still busy with what was asked before")
        thread = threading.Thread(target=self._press, args=(folder, state), daemon=True)
        self._busy[folder.name] = thread
        thread.start()

    def wait(self, identity: str) -> None:
        """Wait until a machine has done what the button asked for."""
        self._busy[self.name(identity)].join()

    def _press(self, folder: Path, state: str) -> None:
        try:
            BUTTONS[state](folder)
        except (LabError, OSError) as problem:  # who asked has gone, so that only the log can tell
            self.say(f"{state} of {folder.name} failed: {problem}")

    def get_boot_device(self, identity: str) -> str:
        """The lab's machines start from their drive."""
        return "Hdd"

    def set_boot_device(self, identity: str, boot_source: str) -> None:
        """Nothing else is to be had."""
        raise error.NotSupportedError("the lab's machines start from their drive")

    def get_bios(self, identity: str) -> dict[str, str]:
        """Settings that the machine booted with."""
        return firmware_settings.current(self.folder(identity))

    def set_bios(self, identity: str, attributes: dict[str, str]) -> None:
        """Make settings wait for the next start.

        Raises:
            error.BadRequest: the machine does not have the setting or the value.
        """
        try:
            firmware_settings.change(self.folder(identity), attributes)
        except LabError as refusal:
            raise error.BadRequest(str(refusal)) from refusal

    def reset_bios(self, identity: str) -> None:
        """Go back to the machine's first mode at the next start."""
        defaults = firmware_settings.choices(self.folder(identity))
        self.set_bios(identity, {name: values[0] for name, values in defaults.items()})


def _uuid(name: str) -> str:
    return str(uuid.uuid5(NAMESPACE, name))
