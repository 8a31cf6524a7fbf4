"""``python -m virtual_lab COMMAND FOLDER``; see ``--help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from virtual_lab import power_switch, replace_or_slow_drive
from virtual_lab.build_system_disk import build_image, image_name
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import apply_description, matches_description, remove_machine


def _state(given: argparse.Namespace) -> str:
    return power_switch.power_state(given.folder)


def _start(given: argparse.Namespace) -> str:
    power_switch.start_machine(given.folder)
    return "on"


def _stop(given: argparse.Namespace) -> str:
    power_switch.stop_machine(given.folder, given.force)
    return "off"


def _restart(given: argparse.Namespace) -> str:
    power_switch.restart_machine(given.folder, given.force)
    return "on"


def _boot(given: argparse.Namespace) -> str:
    if power_switch.power_state(given.folder) == "on":
        # `start` may have switched the machine on without waiting for it.
        power_switch.boot_machine(given.folder, given.seconds)
        return "is already on"
    return f"answered after {power_switch.boot_machine(given.folder, given.seconds):.0f} s"


def _prepare(given: argparse.Namespace) -> str:
    if matches_description(given.folder):
        return "is already as described"
    power_switch.stop_machine(given.folder)
    apply_description(given.folder)
    return "has its new description"


def _remove(given: argparse.Namespace) -> str:
    power_switch.stop_machine(given.folder, force=True)
    remove_machine(given.folder)
    return "removed"


def _image(given: argparse.Namespace) -> str:
    return str(given.folder / image_name() if given.only_name else build_image(given.folder))


def _replace_drive(given: argparse.Namespace) -> str:
    replace_or_slow_drive.replace_drive(
        given.folder, given.old, given.serial, given.read_bytes_per_second
    )
    return f"has {given.serial} instead of {given.old}"


def _throttle(given: argparse.Namespace) -> str:
    replace_or_slow_drive.limit_read_rate(given.folder, given.serial, given.read_bytes_per_second)
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

    add("state", _state, "print whether a machine is on or off")
    add("start", _start, "switch a machine on without waiting until it answers")
    boot = add("boot", _boot, "switch a machine on and wait until its SSH server answers")
    boot.add_argument("--seconds", type=float, default=power_switch.BOOT_SECONDS)
    for name, act, text in (
        ("stop", _stop, "switch a machine off by its power button"),
        (
            "restart",
            _restart,
            "switch a machine off and on again, and apply its firmware settings",
        ),
    ):
        add(name, act, text).add_argument(
            "--force", action="store_true", help="end QEMU without a shutdown"
        )
    add("prepare", _prepare, "rewrite machine.json if description.json has changed")
    add("remove", _remove, "end the machine's QEMU and delete its folder")
    image = add("image", _image, "build the system image in a cache folder")
    image.add_argument(
        "--only-name", action="store_true", help="print the image's path without building it"
    )
    replace = add("replace-drive", _replace_drive, "replace a drive by another")
    replace.add_argument("old", metavar="OLD_SERIAL")
    replace.add_argument("--serial", required=True)
    replace.add_argument(
        "--read-bytes-per-second", type=int, help="read limit (default: as the old drive)"
    )
    throttle = add("throttle", _throttle, "limit a drive's read rate, now and after later starts")
    throttle.add_argument("serial", metavar="SERIAL")
    throttle.add_argument("read_bytes_per_second", type=int, metavar="BYTES_PER_SECOND")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, or 2 after an error message."""
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
