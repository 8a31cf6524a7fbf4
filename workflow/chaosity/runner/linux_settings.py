"""Change kernel settings for one run, and restore the former values even if the run is killed.

Normally, the run restores the settings at its end. If the run is killed, a *guardian* restores the
settings, see `guardian_process`. If both the run and its guardian are killed, a file still has the
former values. The next run that takes the lock then first restores the settings from this file,
unless the host has booted since.

Settings are files below a root folder, such as ``proc/sys/kernel/numa_balancing``; tests use
another root folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from chaosity.errors import UserError
from chaosity.records.record_files import write_atomically
from chaosity.runner.guardian_process import Guardian, with_guardian
from chaosity.runner.lock_files import (
    ROOT,
    SETTINGS,
    describe_holders,
    lock_file_path,
    open_lock_file,
    try_to_lock,
)
from chaosity.runner.observed_state import read_file_if_present

NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
WEIGHTS = "sys/kernel/mm/mempolicy/weighted_interleave"
BOOT_ID = "proc/sys/kernel/random/boot_id"
# The file with former values is in /run, where only root may write, since these values are written
# back to the kernel.
FORMER_VALUES = "run/chaosity-settings.json"
# Names of the file that says whether the kernel chooses the weights of interleaving (since Linux
# 6.16; Linux 6.18 uses the second name by mistake). The kernel stops choosing when a weight is
# written, so this file is restored after the weights.
_NAMES_OF_AUTOMATIC_WEIGHTS_FILE = ("auto", "__auto_type")

SettingValues = dict[str, str]


def _write_setting(root: Path, name: str, value: str) -> None:
    """Write a value in one system call; a missing file is an error and is not created."""
    handle = os.open(root / name, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)


def _restore_settings(root: Path) -> None:
    """Restore the former values that a run left in a file, unless the host has booted since.

    The caller holds the exclusive lock. The file is deleted after all its values are restored.
    """
    try:
        left = json.loads((root / FORMER_VALUES).read_text())
    except FileNotFoundError:
        return
    except ValueError:
        # `hold_kernel_settings` writes only complete JSON, so another program wrote this file.
        left = {"boot_id": None, "former": {}}
    if left["boot_id"] == read_file_if_present(root / BOOT_ID):
        for name in sorted(
            left["former"], key=lambda name: Path(name).name in _NAMES_OF_AUTOMATIC_WEIGHTS_FILE
        ):
            if read_file_if_present(root / name) != left["former"][name]:
                _write_setting(root, name, left["former"][name])
    (root / FORMER_VALUES).unlink()


def restore_leftover_kernel_settings(root: Path = ROOT) -> None:
    """Restore the settings that a run left changed because its guardian was killed too.

    Raises:
        UserError: this user may not write the settings.
    """
    if not (root / FORMER_VALUES).exists():
        return
    handle = open_lock_file(lock_file_path(SETTINGS, root))
    try:
        if try_to_lock(handle):  # if the lock is taken, a running program will restore the settings
            _try_to_restore(root)
    finally:
        os.close(handle)


def _try_to_restore(root: Path) -> None:
    try:
        _restore_settings(root)
    except OSError as error:
        raise UserError(
            f"the file holds settings of an earlier run that cannot be restored: {error}",
            str(root / FORMER_VALUES),
            "start chaosity-place or chaosity-run once as root",
        ) from None


class HeldKernelSettings:
    """Kernel settings that a run changes; they are restored when the run ends.

    `former` is name -> former value of each setting that the run changes; a name is a path below
    `root`. If the run is killed, the guardian kills the programs of the run and restores the
    settings.
    """

    def __init__(self, root: Path, former: SettingValues, guardian: Guardian) -> None:
        self.root, self.former, self.guardian = root, former, guardian

    def change_kernel_settings(self, wanted: Mapping[str, str]) -> None:
        """Write values of settings that the run may change, and read them back.

        Raises:
            UserError: the kernel did not accept a value.
        """
        for name, value in wanted.items():
            if read_file_if_present(self.root / name) == value:
                continue
            with contextlib.suppress(OSError):
                _write_setting(self.root, name, value)
            if (now := read_file_if_present(self.root / name)) != value:
                raise UserError(
                    f"the setting is {now} after {value} was written", str(self.root / name)
                )

    def former_and_present_values(self) -> dict[str, dict[str, str | None]]:
        """Return name -> former and present value of each changed setting."""
        return {
            name: {"was": value, "is": read_file_if_present(self.root / name)}
            for name, value in self.former.items()
        }


@contextlib.contextmanager
def hold_kernel_settings(
    wanted: Mapping[str, str], root: Path = ROOT, varied: Collection[str] = ()
) -> Iterator[HeldKernelSettings]:
    """Give settings the wanted values while the block runs.

    Runs that change no setting may run at the same time; a run that changes a setting runs alone.

    `wanted` is name -> value. A name is a path below `root`, which contains `proc`, `sys`, `run`
    and `tmp`. `varied` are names of settings that the block itself changes again.

    Raises:
        UserError: this kernel lacks a setting, only root may write the setting, another run uses
            the settings, or the lock of the settings cannot be opened.
    """
    lock = open_lock_file(lock_file_path(SETTINGS, root))
    try:
        alone = try_to_lock(lock)
        if alone:
            _try_to_restore(root)
        different = {
            name: value
            for name, value in wanted.items()
            if _required_setting(root, name) != value or name in varied
        }
        if different and not alone:
            raise _held_error(different, lock)
        if not different:
            if not try_to_lock(lock, fcntl.LOCK_SH):
                raise _held_error(wanted, lock)
            with with_guardian(lambda: None) as guardian:
                yield HeldKernelSettings(root, {}, guardian)
            return
        for name, value in different.items():
            if not os.access(root / name, os.W_OK):
                now = read_file_if_present(root / name)
                what = f"the setting is {now} and must be {value}, but this user may not write it"
                remedy = "run as root, or write the value with playbooks/configure.yml"
                raise UserError(what, str(root / name), remedy)
        with _change_with_guardian(root, different, wanted) as held:
            yield held
    finally:
        os.close(lock)


def _required_setting(root: Path, name: str) -> str:
    value = read_file_if_present(root / name)
    if value is None:
        raise UserError("this kernel lacks the setting", str(root / name))
    return value


def _held_error(wanted: Mapping[str, str], lock: int) -> UserError:
    names = ", ".join(sorted({Path(name).name for name in wanted})) or "kernel settings"
    return UserError(
        f"{describe_holders(lock)} holds {names}, which apply to the whole machine",
        remedy="wait until that run ends; two runs can share only settings that neither changes",
    )


@contextlib.contextmanager
def _change_with_guardian(
    root: Path, different: SettingValues, wanted: Mapping[str, str]
) -> Iterator[HeldKernelSettings]:
    """Change settings, with a guardian that restores them if this process is killed."""
    names = [*wanted]
    if any(name.startswith(WEIGHTS) for name in different):
        auto = (f"{WEIGHTS}/{name}" for name in _NAMES_OF_AUTOMATIC_WEIGHTS_FILE)
        names += [name for name in auto if (root / name).exists()]
    former = {name: _required_setting(root, name) for name in names}
    document = {"boot_id": read_file_if_present(root / BOOT_ID), "former": former}
    write_atomically(root / FORMER_VALUES, json.dumps(document) + "\n")
    try:
        with with_guardian(lambda: _restore_settings(root)) as guardian:
            held = HeldKernelSettings(root, former, guardian)
            held.change_kernel_settings(different)
            yield held
    finally:
        _try_to_restore(root)  # restore what the guardian could not restore
