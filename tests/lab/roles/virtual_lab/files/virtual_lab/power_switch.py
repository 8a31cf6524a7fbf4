"""Switches machines on and off. A machine is a QEMU process that outlives its caller."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from virtual_lab.errors import LabError
from virtual_lab.hardware_acceleration import qemu_accelerator
from virtual_lab.machine_folder import (
    BIOS,
    MACHINE,
    complete_description,
    create_drive_images,
    mode_in_settings,
    read_json,
    write_credentials,
    write_json,
)
from virtual_lab.qemu_arguments import CONSOLE, PID, QMP, qemu_arguments
from virtual_lab.qemu_monitor import QemuMonitor

# Seconds from the power button until the machine must be off; then QEMU is ended.
OFF_SECONDS = 90.0
# Seconds until the SSH server must answer. An emulated machine with 8 nodes and 30 drives took 34 s
# on two idle cores, and 140 s on two cores with ten other busy programs.
BOOT_SECONDS = 300.0
# An emulated kernel sometimes hangs at boot (1 of 5 with 16 processors on two cores).
BOOT_TRIES = 2


def power_state(folder: Path) -> str:
    """Return ``on`` or ``off``."""
    return "on" if _process(folder) else "off"


def start_machine(folder: Path) -> None:
    """Switch a machine on, and apply its pending firmware settings.

    Returns as soon as QEMU runs; `boot_machine` waits until the machine answers. A machine that is
    on stays on.

    Raises:
        LabError: its firmware settings name an unknown mode, or QEMU does not start.
    """
    with _alone(folder):
        if _process(folder):
            return
        # An older machine.json can lack keys that were added since.
        machine = complete_description(read_json(folder / MACHINE))
        mode = _apply_settings(folder)
        create_drive_images(folder, machine)
        write_credentials(folder)
        way = qemu_accelerator(
            Path(machine["image"]) / "vmlinuz", folder.parent / "accelerator.json"
        )
        command = qemu_arguments(machine, mode, folder.resolve(), way)
        answer = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode:
            said = " ".join(answer.stderr.split()) or "it said nothing"
            raise LabError(f"{folder.name}: QEMU did not start it: {said}")


def _apply_settings(folder: Path) -> str:
    """Make the pending firmware settings current, and return the mode that they select."""
    machine, bios = read_json(folder / MACHINE), read_json(folder / BIOS)
    settings = {**bios["current"], **bios["pending"]}
    mode = mode_in_settings(machine, settings)
    if mode not in machine["modes"]:
        known = ", ".join(known.upper() for known in machine["modes"])
        attribute = machine["firmware_attribute"]
        raise LabError(
            f"{folder.name}: its firmware has {attribute} set to {settings.get(attribute)!r};"
            f" it can do {known}"
        )
    if bios["pending"]:
        write_json(folder / BIOS, {"current": settings, "pending": {}})
    return mode


def stop_machine(folder: Path, force: bool = False, seconds: float = OFF_SECONDS) -> None:
    """Switch a machine off: by its power button, or by ending QEMU.

    Args:
        folder: the machine's folder.
        force: end QEMU at once.
        seconds: time from the power button until QEMU is ended.

    Raises:
        LabError: the QEMU process does not end.
    """
    with _alone(folder):
        if not force and _process(folder):
            _ask(folder, "system_powerdown")
            _until(lambda: not _process(folder), seconds)
        if _process(folder):
            _ask(folder, "quit")
            _until(lambda: not _process(folder), 10)
        if number := _process(folder):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
            _until(lambda: not _process(folder), 10)
        if _process(folder):
            raise LabError(f"{folder.name}: process {number} of QEMU does not end")


def restart_machine(folder: Path, force: bool = False) -> None:
    """Switch a machine off and on again; pending firmware settings become current."""
    stop_machine(folder, force)
    start_machine(folder)


def boot_machine(folder: Path, seconds: float = BOOT_SECONDS, tries: int = BOOT_TRIES) -> float:
    """Switch a machine on and wait until its SSH server answers; if it does not, try again.

    Args:
        folder: the machine's folder.
        seconds: time limit of each try.
        tries: number of tries.

    Returns:
        Seconds until the answer in the try that succeeded.

    Raises:
        LabError: no try succeeded; the message names the files with the console output.
    """
    port = read_json(folder / MACHINE)["ssh_port"]
    logs = []
    for number in range(1, tries + 1):
        since = time.monotonic()
        start_machine(folder)
        if _until(lambda: _answers(port) or not _process(folder), seconds) and _process(folder):
            return time.monotonic() - since
        stop_machine(folder, force=True)
        logs.append(folder / f"console-failed-{number}.log")
        (folder / CONSOLE).replace(logs[-1])
    raise LabError(
        f"{folder.name}: did not answer on 127.0.0.1:{port} within {seconds:.0f} s,"
        f" {tries} times; the console output is in {', '.join(map(str, logs))}"
    )


def _answers(port: int) -> bool:
    """Return whether an SSH server answers. QEMU accepts connections long before it does."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _ask(folder: Path, command: str) -> None:
    # A machine that is just ending may close the connection; the caller checks whether it ended.
    with suppress(LabError, OSError), QemuMonitor(folder / QMP) as monitor:
        monitor.execute(command)


def _process(folder: Path) -> int:
    """Return the number of the machine's QEMU process; 0 if it does not run.

    The file with the number remains when the process is killed, and Linux reuses numbers. So the
    command line of the process must name this machine's folder.
    """
    try:
        number = int((folder / PID).read_text())
        command = Path(f"/proc/{number}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    return number if f"{folder.resolve()}/".encode() in command else 0


def _until(happened: Callable[[], bool], seconds: float) -> bool:
    """Check a condition twice a second; return whether it became true within the time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep all other processes from switching the machine meanwhile."""
    with (folder / "power.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
