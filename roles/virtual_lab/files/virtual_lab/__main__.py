"""``python -m virtual_lab COMMAND FOLDER``; see ``--help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from virtual_lab import drive_changes, power_switch
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import describe_anew, is_current, remove
from virtual_lab.system_image import build_image, image_name


def _state(given: argparse.Namespace) -> str:
    return power_switch.state(given.folder)


def _start(given: argparse.Namespace) -> str:
    power_switch.start(given.folder)
    return "on"


def _stop(given: argparse.Namespace) -> str:
    power_switch.stop(given.folder, given.force)
    return "off"


def _restart(given: argparse.Namespace) -> str:
    power_switch.restart(given.folder, given.force)
    return "on"


def _boot(given: argparse.Namespace) -> str:
    if power_switch.state(given.folder) == "on":
        # It may have been switched on by somebody who did not wait.
        power_switch.boot(given.folder, given.seconds)
        return "is already on"
    return f"answered after {power_switch.boot(given.folder, given.seconds):.0f} s"


def _prepare(given: argparse.Namespace) -> str:
    if is_current(given.folder):
        return "is already as described"
    power_switch.stop(given.folder)
    describe_anew(given.folder)
    return "is described anew"


def _remove(given: argparse.Namespace) -> str:
    power_switch.stop(given.folder, force=True)
    remove(given.folder)
    return "removed"


def _image(given: argparse.Namespace) -> str:
    return str(given.folder / image_name() if given.only_name else build_image(given.folder))


def _replace_drive(given: argparse.Namespace) -> str:
    drive_changes.replace_drive(given.folder, given.old, given.serial, given.read_bytes_per_second)
    return f"has {given.serial} in the place of {given.old}"


def _throttle(given: argparse.Namespace) -> str:
    drive_changes.throttle(given.folder, given.serial, given.read_bytes_per_second)
    return f"reads {given.serial} at {given.read_bytes_per_second} bytes per second"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="virtual_lab", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, act: Callable[[argparse.Namespace], str], text: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("folder", type=Path, metavar="FOLDER")
        command.set_defaults(act=act)
        return command

    add("state", _state, "say whether a machine is on or off")
    add("start", _start, "switch it on and do not wait for it")
    boot = add("boot", _boot, "switch it on and wait until its SSH server answers")
    boot.add_argument("--seconds", type=float, default=power_switch.BOOT_SECONDS)
    for name, act, text in (
        ("stop", _stop, "switch it off by its power button"),
        ("restart", _restart, "switch it off and on, making pending firmware settings current"),
    ):
        add(name, act, text).add_argument("--force", action="store_true", help="pull the plug")
    add("prepare", _prepare, "bring machine.json in line with description.json")
    add("remove", _remove, "pull the plug and remove all that is kept of it")
    image = add("image", _image, "build the system image in a cache folder")
    image.add_argument("--only-name", action="store_true", help="say what it would be called")
    replace = add("replace-drive", _replace_drive, "put another drive in a drive's place and boot")
    replace.add_argument("old", metavar="OLD_SERIAL")
    replace.add_argument("--serial", required=True)
    replace.add_argument("--read-bytes-per-second", type=int, help="as before unless given")
    throttle = add("throttle", _throttle, "limit a drive's reading, now and from now on")
    throttle.add_argument("serial", metavar="SERIAL")
    throttle.add_argument("read_bytes_per_second", type=int, metavar="BYTES_PER_SECOND")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one command; status 2 and one sentence when it cannot be done."""
    given = _parser().parse_args(arguments)
    given.folder = given.folder.resolve()
    try:
        print(given.act(given))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
