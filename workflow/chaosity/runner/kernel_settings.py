"""Settings of the kernel that are changed for one run, and put back whatever becomes of it.

Three things put them back. A *guardian*, a process in a session of its own, waits for the end of
the process that asked, and so also sees it killed. Should it be killed too, a file holds the former
values: the next run that takes the lock puts them back first, unless the host has booted since.

Files are named below a root folder, as ``proc/sys/kernel/numa_balancing``, so that tests have their
own. Standard library alone, like all of the runner.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from chaosity.errors import UserError
from chaosity.records import write_atomically

NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
WEIGHTS = "sys/kernel/mm/mempolicy/weighted_interleave"
BOOT_ID = "proc/sys/kernel/random/boot_id"
# Where every user may make one: who only relies on settings holds it shared.
SETTINGS_LOCK = "tmp/chaosity-settings.lock"
# The values that are written back come from here, so it lies where only root may write.
FORMER_VALUES = "run/chaosity-settings.json"
ROOT = Path("/")
# Whether the kernel chooses the weights (Linux 6.16; 6.18 misnames the file). A weight that is
# written ends its choice, so this is put back after them.
_AUTO = ("auto", "__auto_type")

SettingValues = dict[str, str]


def open_lock_file(path: Path) -> int:
    """A descriptor of a lock's file, made if it is not there; it is for `fcntl.flock`."""
    try:  # without O_CREAT first: the kernel forbids it on another user's file in /tmp
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def read_setting(root: Path, name: str) -> str | None:
    """A setting's value, None where this kernel does not have it."""
    try:
        return (root / name).read_text().strip()
    except OSError:
        return None


def write_setting(root: Path, name: str, value: str) -> None:
    """Write a value in one go; a file that is not there is an error and is not made."""
    handle = os.open(root / name, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)


def restore_settings(root: Path) -> None:
    """Write the former values back that a run has left, unless the host has booted since.

    Who calls holds the lock alone.

    Raises:
        OSError: one cannot be written; the file stays for the next one.
    """
    try:
        left = json.loads((root / FORMER_VALUES).read_text())
    except FileNotFoundError:
        return
    except ValueError:
        left = {"boot_id": None, "former": {}}  # not written by `hold`, which writes whole files
    if left["boot_id"] == read_setting(root, BOOT_ID):
        for name, value in sorted(left["former"].items(), key=lambda one: _comes_last(one[0])):
            if read_setting(root, name) != value:
                write_setting(root, name, value)
    (root / FORMER_VALUES).unlink()


def _comes_last(name: str) -> bool:
    return Path(name).name in _AUTO


def restore_leftover_settings(root: Path = ROOT) -> None:
    """Put back what a run has left that was killed together with its guardian.

    Raises:
        UserError: it cannot be written back by this user.
    """
    if not (root / FORMER_VALUES).exists():
        return
    handle = open_lock_file(root / SETTINGS_LOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _try_to_put_back(root)
    except BlockingIOError:
        return  # somebody runs with these settings now, and puts them back
    finally:
        os.close(handle)


def _try_to_put_back(root: Path) -> None:
    try:
        restore_settings(root)
    except OSError as error:
        raise UserError(
            f"holds settings that an earlier run has left and that cannot be put back: {error}",
            str(root / FORMER_VALUES),
            "start chaosity-place or chaosity-run once as root",
        ) from None


class HeldSettings:
    """Settings as a run wants them, until it ends.

    Args:
        root: the folder that holds `proc`, `sys`, `run` and `tmp`.
        former: what they were, by name; only what the run changes.
        pipe: where the guardian listens; None without one.
    """

    def __init__(self, root: Path, former: SettingValues, pipe: int | None) -> None:
        self.root, self.former, self._pipe = root, former, pipe

    def watch(self, group: int) -> None:
        """Have a process group killed if this process is killed."""
        if self._pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # somebody killed the guardian
                os.write(self._pipe, f"{group}\n".encode())

    def change(self, wanted: Mapping[str, str]) -> None:
        """Write values and read them back; they are among those that the run may change.

        Raises:
            UserError: one was not taken.
        """
        for name, value in wanted.items():
            if read_setting(self.root, name) == value:
                continue
            with contextlib.suppress(OSError):
                write_setting(self.root, name, value)
            if (now := read_setting(self.root, name)) != value:
                raise UserError(f"is {now} after {value} was written", str(self.root / name))

    def report(self) -> dict[str, dict[str, str | None]]:
        """Name to what it was and is now."""
        return {
            name: {"was": value, "is": read_setting(self.root, name)}
            for name, value in self.former.items()
        }


@contextlib.contextmanager
def hold_settings(
    wanted: Mapping[str, str], root: Path = ROOT, varied: Collection[str] = ()
) -> Iterator[HeldSettings]:
    """Give settings the wanted values while the block runs.

    Two runs that change nothing may go on at once; one that changes something is alone.

    Args:
        wanted: name below `root` to value.
        root: see `Held`.
        varied: names among them that get other values while the block runs.

    Raises:
        UserError: this kernel lacks a setting, only root may write it, or another run holds it.
    """
    lock = open_lock_file(root / SETTINGS_LOCK)
    try:
        alone = _lock(lock, fcntl.LOCK_EX)
        if alone:
            _try_to_put_back(root)
        different = {
            name: value
            for name, value in wanted.items()
            if _now(root, name) != value or name in varied
        }
        if different and not alone:
            raise _taken(different)
        if not different:
            if not _lock(lock, fcntl.LOCK_SH):
                raise _taken(wanted)
            yield HeldSettings(root, {}, None)
            return
        for name, value in different.items():
            if not os.access(root / name, os.W_OK):
                raise UserError(
                    f"is {read_setting(root, name)} and would have to be {value}, which this user may not "
                    "write", str(root / name),
                    "run as root, or have it set by configure.yml",
                )  # fmt: skip
        with _guarded(root, different, wanted) as held:
            yield held
    finally:
        os.close(lock)


def _lock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _now(root: Path, name: str) -> str:
    value = read_setting(root, name)
    if value is None:
        raise UserError("is not there: this kernel lacks the setting", str(root / name))
    return value


def _taken(wanted: Mapping[str, str]) -> UserError:
    names = ", ".join(sorted({Path(name).name for name in wanted})) or "kernel settings"
    return UserError(
        f"another program that was started with chaosity-place holds {names}, which are the whole "
        "machine's",
        remedy="wait for its end; two can run at once when neither has to change a setting",
    )


@contextlib.contextmanager
def _guarded(
    root: Path, different: SettingValues, wanted: Mapping[str, str]
) -> Iterator[HeldSettings]:
    """Change settings with a guardian behind."""
    beside = [f"{WEIGHTS}/{name}" for name in _AUTO]
    weights = any(name.startswith(WEIGHTS) for name in different)
    names = [*wanted, *(name for name in beside if weights and (root / name).exists())]
    former = {name: _now(root, name) for name in names}
    document = {"boot_id": read_setting(root, BOOT_ID), "former": former}
    write_atomically(root / FORMER_VALUES, json.dumps(document) + "\n")
    reading, writing = os.pipe()
    guardian = os.fork()
    if guardian == 0:
        os.close(writing)
        _guard(root, reading)
    os.close(reading)
    try:
        held = HeldSettings(root, former, writing)
        held.change(different)
        yield held
    finally:
        with contextlib.suppress(BrokenPipeError):  # somebody killed the guardian
            os.write(writing, b"end\n")
        os.close(writing)
        os.waitpid(guardian, 0)
        _try_to_put_back(root)  # nothing, unless the guardian could not


def _guard(root: Path, pipe: int) -> None:
    """The guardian's life: wait for the end of the process that writes, then put back.

    It keeps the lock, which it has from that process, until it has done so.
    """
    try:
        os.setsid()
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(which, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):  # who reads the program's output must not wait for this
            os.dup2(nothing, standard)
        told = b""
        while more := os.read(pipe, 64):
            told += more
        words = told.split()
        if words and words[-1] != b"end":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(words[-1]), signal.SIGKILL)
        restore_settings(root)
    finally:
        os._exit(0)
