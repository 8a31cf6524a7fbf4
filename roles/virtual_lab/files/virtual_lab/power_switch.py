"""Switches machines on and off: real QEMU processes that outlive the one who started them."""

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
from virtual_lab.hardware_acceleration import accelerator
from virtual_lab.machine_folder import (
    BIOS,
    MACHINE,
    complete,
    make_drives,
    mode_of,
    read_json,
    write_credentials,
    write_json,
)
from virtual_lab.qemu_arguments import CONSOLE, PID, QMP, qemu_arguments
from virtual_lab.qemu_monitor import Monitor

# How long a machine may take to follow its power button before its plug is pulled.
OFF_SECONDS = 90.0
# How long it may take until its SSH server answers. With 8 nodes and 30 drives, emulated, 34 s were
# seen on two idle cores and 140 s on two that ten others wanted.
BOOT_SECONDS = 300.0
# Kernels hang in their start under emulation now and then (1 of 5 with 16 processors on two cores).
BOOT_TRIES = 2


def state(folder: Path) -> str:
    """``on`` or ``off``."""
    return "on" if _process(folder) else "off"


def start(folder: Path) -> None:
    """Switch a machine on, with the firmware settings that were waiting for that.

    Returns as soon as it runs; `boot` waits until it can be reached. Nothing happens when it is on.

    Raises:
        LabError: its settings name no mode of it, or QEMU does not start it.
    """
    with _alone(folder):
        if _process(folder):
            return
        # Completed, for it may be older than some of what can be described now.
        machine = complete(read_json(folder / MACHINE))
        mode = _apply_settings(folder)
        make_drives(folder, machine)
        write_credentials(folder)
        way = accelerator(Path(machine["image"]) / "vmlinuz", folder.parent / "accelerator.json")
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
    """Make pending firmware settings the current ones; returns the mode that they ask for."""
    machine, bios = read_json(folder / MACHINE), read_json(folder / BIOS)
    settings = {**bios["current"], **bios["pending"]}
    mode = mode_of(machine, settings)
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


def stop(folder: Path, force: bool = False, seconds: float = OFF_SECONDS) -> None:
    """Switch a machine off: by its power button, or by pulling the plug.

    Args:
        folder: the machine's folder.
        force: pull the plug at once.
        seconds: how long it may take to follow its power button.

    Raises:
        LabError: it is still on after all.
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


def restart(folder: Path, force: bool = False) -> None:
    """Switch a machine off and on again, which makes pending firmware settings current."""
    stop(folder, force)
    start(folder)


def boot(folder: Path, seconds: float = BOOT_SECONDS, tries: int = BOOT_TRIES) -> float:
    """Switch a machine on and wait until its SSH server answers; try once more if it does not.

    Args:
        folder: the machine's folder.
        seconds: how long each try may take.
        tries: how many there are.

    Returns:
        Seconds that it took.

    Raises:
        LabError: it did not answer; says where its console's words are.
    """
    port = read_json(folder / MACHINE)["ssh_port"]
    logs = []
    for number in range(1, tries + 1):
        since = time.monotonic()
        start(folder)
        if _until(lambda: _answers(port) or not _process(folder), seconds) and _process(folder):
            return time.monotonic() - since
        stop(folder, force=True)
        logs.append(folder / f"console-failed-{number}.log")
        (folder / CONSOLE).replace(logs[-1])
    raise LabError(
        f"{folder.name}: did not answer on 127.0.0.1:{port} within {seconds:.0f} s,"
        f" {tries} times; its consoles' words are in {', '.join(map(str, logs))}"
    )


def _answers(port: int) -> bool:
    """Whether an SSH server greets. QEMU itself accepts connections long before there is one."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _ask(folder: Path, command: str) -> None:
    # A machine that is just ending may hang up; whether it ended is looked at after.
    with suppress(LabError, OSError), Monitor(folder / QMP) as monitor:
        monitor.ask(command)


def _process(folder: Path) -> int:
    """Number of the machine's QEMU process, 0 when there is none.

    The file with the number outlives a process that was killed, and numbers are given anew; so the
    process is asked whether it is this machine's.
    """
    try:
        number = int((folder / PID).read_text())
        command = Path(f"/proc/{number}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    return number if f"{folder.resolve()}/".encode() in command else 0


def _until(happened: Callable[[], bool], seconds: float) -> bool:
    """Whether something happened within a time; it is looked for twice a second."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else switches the machine meanwhile."""
    with (folder / "power.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
