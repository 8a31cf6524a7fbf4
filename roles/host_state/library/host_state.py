#!/usr/bin/python
"""Ansible module: changes settings of a running kernel, and restores their original values."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.host_settings import (
    AUTOMATIC_WEIGHTS_FILE,
    CHANGED_ALONG_FILE,
    CLOCK_LIMIT_FILE,
    HUGE_PAGE_POOL_FILE,
    SMT,
    UNCORE,
    Values,
    file_values_of_settings,
    format_size,
)
from ansible.module_utils.kernel_files import NODES, REGISTER, SERVICE, Host, StateError

DOCUMENTATION = r"""
module: host_state
short_description: Change settings of a running kernel, save the original values and restore them
description:
  - Refuses what the host lacks before it changes anything, saves the first original value of each
    file that it writes, writes, and reads back.
  - All settings last until the next boot. Values that were saved in another boot are never written.
author: The Chaosity developers
options:
  settings: {description: Value by setting; null leaves it unchanged., type: dict, default: {}}
  restore: {description: Restore the saved values instead., type: bool, default: false}
  state_file: {description: File that keeps the original values., type: path, required: true}
  host: {description: The host's name in messages., type: str, required: true}
  root: {description: Folder that holds sys and proc., type: path, default: /}
"""
EXAMPLES = r"""
- name: Reserve huge pages
  host_state:
    settings: {huge_pages: {all: {2M: 512}, "3": {1G: 2}}, transparent_huge_pages: never}
    state_file: /var/lib/chaosity/host_state.json
    host: "{{ inventory_hostname }}"
"""
RETURN = r"""
needed: {description: Whether there is anything to do., type: bool, returned: always}
values: {description: "New value of each file that is changed.", type: dict, returned: always}
"""

# The runner's lock, so that no setting changes during a measurement: that of provisioning as root
# if it exists, else the one that every user may create (chaosity.runner.lock_files).
MEASUREMENT_LOCK_FILES = ("run/chaosity/measuring.lock", "tmp/chaosity-measuring.lock")
BOOT_ID_FILE = "proc/sys/kernel/random/boot_id"
WARNING_OF_STALE_FILE = (
    "has booted since {} was written, which undid it all: nothing of that file is written back"
)
WARNING_OF_OTHER_CPUS = (
    "has other CPUs with this setting of SMT: the next snakemake discovers and plans again"
)
WARNING_OF_UNSEEN_SETTING = (
    "has a setting that discovery does not see: edit the note in components/system.json"
)
PURPOSE_OF_SAVED_VALUES = (
    "values from before configure.yml; host_state_restore=true restores them until the next boot"
)


class _SavedValues:
    """The file with the original values, which are valid for one boot."""

    def __init__(self, path: str, host: Host) -> None:
        self.path, self.boot = Path(path), host.read(BOOT_ID_FILE)
        if not self.path.is_absolute():
            raise StateError(f"host_state_file is {path}; give a full path")
        self.exists = self.path.exists()
        try:
            content = json.loads(self.path.read_text()) if self.exists else {}
            self.stale = self.exists and content["boot_id"] != self.boot
            self.values: Values = {} if self.stale or not self.exists else dict(content["values"])
            self.made_folder = bool(content.get("made_folder"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(f"{path} does not hold what was saved ({error!r})") from None

    def save(self, values: Values) -> None:
        """Write the file completely or not at all; it is on disk before any setting changes."""
        if not self.path.parent.exists():
            self.made_folder = True
            self.path.parent.mkdir(parents=True)
            # All users may enter the folder, whatever the umask is: restoring reads it first
            # without root.
            self.path.parent.chmod(0o755)
        content = {
            "what": PURPOSE_OF_SAVED_VALUES,
            "boot_id": self.boot,
            "made_folder": self.made_folder,
        }
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w") as file:
            json.dump({**content, "values": values}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(0o644)
        new.replace(self.path)

    def remove(self) -> None:
        """Delete the file, and its folder if this module created it and it is empty."""
        self.path.unlink()
        if self.made_folder:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()


def _in_order_of_writing(host: Host, values: Values) -> Values:
    """Sort values so that each can be written.

    SMT siblings come first if they are switched on, and last if they are switched off. Between are
    freed huge pages, new huge pages by falling size, others, limits that move apart, limits that
    move together, then files that change with others. Large pages need contiguous memory, and small
    pages leave less of it. The kernel refuses a lower limit above the upper limit.
    """

    def rank(name: str) -> tuple[int, int]:
        if name == SMT:
            return (-1 if values[name] == "on" else 9), 0
        if limit := CLOCK_LIMIT_FILE.fullmatch(name):
            rises = int(values[name]) > int(host.read(name))
            return (3 if rises == (limit.group(1) == "max") else 4), 0
        pool = HUGE_PAGE_POOL_FILE.fullmatch(name)
        if not pool:
            return (5 if CHANGED_ALONG_FILE.fullmatch(name) else 2), 0
        return int(int(values[name]) > int(host.read(name))), -int(pool.group(2))

    return {name: values[name] for name in sorted(values, key=rank)}


def _write_and_read_back(host: Host, name: str, value: str) -> None:
    """Write one value and read it back.

    Raises:
        StateError: the host has another value afterwards.
    """
    if host.read(name) == value:  # the value changed together with that of another file
        return
    host.write(name, value)
    pool = HUGE_PAGE_POOL_FILE.fullmatch(name)
    if pool and int(host.read(name)) < int(value):
        # Memory is fragmented: let the kernel compact it, and request the pages again.
        with contextlib.suppress(OSError):
            host.write(f"{NODES}/node{pool.group(1)}/compact", "1")
        host.write(name, value)
    got = host.read(name)
    if got == value:
        return
    if not pool:
        raise StateError(f"/{name} is {got} after {value} was written")
    node, kib = pool.groups()
    free = format_size(host.node_memory_kib(node, "MemFree"))
    raise StateError(
        f"node {node} gives {got} instead of {value} huge pages of {format_size(int(kib))},"
        f" with {free} of memory free"
    )


def _write_all_values(host: Host, values: Values) -> list[str]:
    """Write all values, also after a failure.

    Returns:
        A sentence for each failure.
    """
    failures = []
    for name, value in _in_order_of_writing(host, values).items():
        try:
            _write_and_read_back(host, name, value)
        except OSError as error:
            if AUTOMATIC_WEIGHTS_FILE.fullmatch(name) and error.errno == errno.ENODEV:
                # The kernel knows no bandwidths by which it could choose weights, so it chose none
                # before either; only the weights had been set, and these are restored.
                continue
            failures.append(f"/{name} does not take {value}: {error.strerror}")
        except StateError as error:
            failures.append(str(error))
    return failures


@contextlib.contextmanager
def _hold_measurement_lock(host: Host) -> Iterator[None]:
    """Hold the measurement lock while settings change; fail if a measurement runs."""
    lock = (
        MEASUREMENT_LOCK_FILES[0]
        if host.exists(MEASUREMENT_LOCK_FILES[0])
        else MEASUREMENT_LOCK_FILES[1]
    )
    path = host.root / lock
    handle = _open_or_create(path, lock)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StateError(f"its lock /{lock} must be a regular file; delete it")
        try:  # only this call, since writing a setting can fail with the same error
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(f"it is measuring (/{lock} is held); try again afterwards") from None
        yield
    finally:
        os.close(handle)


def _open_or_create(path: Path, lock: str) -> int:
    """Open the lock file, or create it; another program may create it at the same time."""
    # Neither a link nor a FIFO, which any user can put into /tmp, is followed or waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:  # O_CREAT comes second: the kernel forbids it on another user's file in /tmp
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateError(f"its lock /{lock} cannot be opened: {error.strerror}") from None
        try:
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        os.fchmod(handle, 0o644)  # every user locks it, whatever the umask is
        return handle


def _save_and_change(host: Host, saved: _SavedValues, targets: Values, beside: list[str]) -> None:
    """Save the original values that are not saved yet, then write the new values.

    Raises:
        StateError: some values could not be written. All files have their former values again,
            except for those that the text names; restoring them later still works.
    """
    existed, known = saved.exists, dict(saved.values)
    before = {name: host.read(name) for name in [*targets, *beside]}
    saved.save({**before, **known})
    failures = _write_all_values(host, targets)
    if not failures:
        return
    if kept := _write_all_values(host, before):
        what = f"{'; '.join([*failures, *kept])}; host_state_restore=true restores all of them"
        raise StateError(what)
    if existed and not saved.stale:
        saved.save(known)
    else:
        saved.remove()
    raise StateError(f"{'; '.join(failures)}; all settings have their values from before again")


def _restore_saved_values(host: Host, saved: _SavedValues, targets: Values) -> None:
    """Write the saved values, then delete the file that has them.

    Raises:
        StateError: some values could not be written; the file is kept.
    """
    failures = _write_all_values(host, targets)
    if failures:
        raise StateError(f"{'; '.join(failures)}; {saved.path} still has what was there before")
    saved.remove()


def run(
    host: Host, state_file: str, wanted: dict[str, Any], restore: bool, check: bool
) -> dict[str, Any]:
    """Change or restore settings, or find out what would change.

    Args:
        host: the files of the host.
        state_file: path of the file with the original values.
        wanted: value by setting; None leaves it unchanged. Not used with `restore`.
        restore: restore the saved values instead.
        check: change nothing.

    Returns:
        The result for Ansible; `warning` is a sentence about the host or None.

    Raises:
        StateError: nothing was changed, or some values could not be written.
    """
    # The saved values are read under the lock too, because another controller may write them.
    with contextlib.nullcontext() if check else _hold_measurement_lock(host):
        return _run_under_lock(host, _SavedValues(state_file, host), wanted, restore, check)


def _run_under_lock(
    host: Host, saved: _SavedValues, wanted: dict[str, Any], restore: bool, check: bool
) -> dict[str, Any]:
    """Do the work of run(); the caller holds the lock unless nothing may change."""
    values, beside = (saved.values, []) if restore else file_values_of_settings(host, wanted)
    # Files of SMT siblings that are off cannot be read, and some do not exist.
    siblings_are_off = restore and values.get(SMT) == "on" != host.read(SMT)
    if siblings_are_off and not check:
        _write_and_read_back(host, SMT, "on")
    gone = [f"/{name}" for name in values if not host.exists(name)]
    if gone and not (siblings_are_off and check):
        raise StateError(f"{saved.path} is about {', '.join(gone)}, gone since; a boot resets all")
    before = {
        name: _read_or_unknown(host, name) if siblings_are_off else host.read(name)
        for name in values
    }
    targets = {name: value for name, value in values.items() if before[name] != value}
    needed = saved.exists if restore else bool(targets)
    if needed and not check:
        if restore:
            # All saved values, because writing a file may change other files too.
            _restore_saved_values(host, saved, values)
        else:
            _save_and_change(host, saved, targets, beside)
    kept = f"{saved.path}: kept\n" if restore and needed else ""
    return {
        "changed": needed,
        "needed": needed,
        "values": targets,
        "diff": {
            "before": _lines_of_values({name: before[name] for name in targets}) + kept,
            "after": _lines_of_values(targets),
        },
        "warning": _warning(saved, targets, needed, siblings_are_off),
    }


def _read_or_unknown(host: Host, name: str) -> str:
    """Return a file's value, or words for a file of a CPU that is off."""
    try:
        return host.read(name)
    except OSError:
        return "unknown while its CPU is off"


def _warning(
    saved: _SavedValues, targets: Values, needed: bool, siblings_are_off: bool
) -> str | None:
    """Return what a person should know about the host, or None."""
    unseen = any(REGISTER.fullmatch(name) or name.startswith(UNCORE) for name in targets)
    sentences = {
        WARNING_OF_STALE_FILE.format(saved.path): needed and saved.stale,
        WARNING_OF_OTHER_CPUS: siblings_are_off or SMT in targets,
        WARNING_OF_UNSEEN_SETTING: unseen,
    }
    return "; ".join(text for text, holds in sentences.items() if holds) or None


def _lines_of_values(values: Values) -> str:
    """Return a line "file: value" for each file."""
    names = {name: name if name == SERVICE else f"/{name}" for name in values}
    return "".join(f"{names[name]}: {value}\n" for name, value in values.items())


def main() -> None:
    """Read the task's options from Ansible, run, and return the result."""
    options = {
        "settings": {"type": "dict", "default": {}},
        "restore": {"type": "bool", "default": False},
        "state_file": {"type": "path", "required": True},
        "host": {"type": "str", "required": True},
        "root": {"type": "path", "default": "/"},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    asked = module.params
    try:
        answer = run(
            Host(asked["root"]),
            asked["state_file"],
            asked["settings"],
            asked["restore"],
            module.check_mode,
        )
    except (StateError, OSError) as error:
        module.fail_json(msg=f"{asked['host']}: {error}")
    warning = answer.pop("warning")
    if warning:
        module.warn(f"{asked['host']} {warning}")
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
