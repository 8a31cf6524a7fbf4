#!/usr/bin/python
"""Ansible module: sets what a running kernel lets one set, and gives back what was there before."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.host_settings import (
    ALONG,
    AUTO,
    NODES,
    POOL,
    SERVICE,
    Host,
    StateError,
    Values,
    expand,
    size,
)

DOCUMENTATION = r"""
module: host_state
short_description: Set a running kernel's knobs, remember what was there, and give it back
description:
  - Refuses what the host lacks before it changes anything, saves the first original value of each
    file that it writes, writes, and reads back.
  - All of it lasts until the next boot. What was saved in another boot is never written.
author: The Chaosity developers
options:
  settings: {description: Setting to value; null leaves it alone., type: dict, default: {}}
  restore: {description: Give back what was saved instead., type: bool, default: false}
  state_file: {description: Where the original values are kept., type: path, required: true}
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
values: {description: "What each file that is changed is to hold.", type: dict, returned: always}
"""

# The runner's, so that nothing changes under a measurement.
LOCK = "tmp/chaosity-measuring.lock"
BOOT = "proc/sys/kernel/random/boot_id"
STALE = "has booted since {} was written, which undid it all: nothing of that file is written back"
WHY = "values from before configure.yml, which restore.yml gives back within the same boot"


class Saved:
    """The file with the original values, and the boot that they belong to."""

    def __init__(self, path: str, host: Host) -> None:
        self.path, self.boot = Path(path), host.read(BOOT)
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

    def keep(self, values: Values) -> None:
        """Write the file whole or not at all, on the disk before any setting changes."""
        self.made_folder |= not self.path.parent.exists()
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = {"what": WHY, "boot_id": self.boot, "made_folder": self.made_folder}
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w") as file:
            json.dump({**content, "values": values}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(0o644)
        new.replace(self.path)

    def drop(self) -> None:
        """Remove the file, and the folder if it was made for it and nothing else is in it."""
        self.path.unlink()
        if self.made_folder:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()


def ordered(host: Host, values: Values) -> Values:
    """First what gives memory back, then the largest pages, then the rest, then what changes along.

    Large pages need memory in one piece, of which small ones leave less.
    """

    def rank(name: str) -> tuple[int, int]:
        pool = POOL.fullmatch(name)
        if not pool:
            return (3 if ALONG.fullmatch(name) else 2), 0
        return int(int(values[name]) > int(host.read(name))), -int(pool.group(2))

    return {name: values[name] for name in sorted(values, key=rank)}


def put(host: Host, name: str, value: str) -> None:
    """Write one value and read it back.

    Raises:
        StateError: the host has another value afterwards.
    """
    if host.read(name) == value:  # it changed along with another
        return
    host.write(name, value)
    pool = POOL.fullmatch(name)
    if pool and int(host.read(name)) < int(value):
        # Memory in pieces: have the kernel put them together, and ask once more.
        with contextlib.suppress(OSError):
            host.write(f"{NODES}/node{pool.group(1)}/compact", "1")
        host.write(name, value)
    got = host.read(name)
    if got == value:
        return
    if not pool:
        raise StateError(f"/{name} is {got} after {value} was written")
    node, kib = pool.groups()
    free = size(host.memory_kib(node, "MemFree"))
    raise StateError(
        f"node {node} gives {got} instead of {value} huge pages of {size(int(kib))},"
        f" with {free} of memory free"
    )


def put_all(host: Host, values: Values) -> list[str]:
    """Write all values, whatever becomes of one of them.

    Returns:
        What did not work, a sentence each.
    """
    failures = []
    for name, value in ordered(host, values).items():
        try:
            put(host, name, value)
        except OSError as error:
            if AUTO.fullmatch(name) and error.errno == errno.ENODEV:
                # The kernel knows no bandwidths to choose weights by, so it chose none before
                # either: the weights, which are given back, are all there was.
                continue
            failures.append(f"/{name} does not take {value}: {error.strerror}")
        except StateError as error:
            failures.append(str(error))
    return failures


@contextlib.contextmanager
def alone(host: Host) -> Iterator[None]:
    """Keep measurements away while settings change, and never change them under one."""
    path = host.root / LOCK
    try:  # without O_CREAT first: the kernel forbids it on another user's file in /tmp
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StateError(f"it is measuring (/{LOCK} is held); try again afterwards") from None
    finally:
        os.close(handle)


def change(host: Host, saved: Saved, targets: Values, beside: list[str]) -> None:
    """Save what has not been saved yet, then write.

    Raises:
        StateError: some of it did not work; it can be given back all the same.
    """
    saved.keep({**{name: host.read(name) for name in [*targets, *beside]}, **saved.values})
    failures = put_all(host, targets)
    if failures:
        raise StateError(f"{'; '.join(failures)}; restore.yml gives back what was there before")


def give_back(host: Host, saved: Saved, targets: Values) -> None:
    """Write what was saved and forget it.

    Raises:
        StateError: some of it did not work; what was saved is kept.
    """
    failures = put_all(host, targets)
    if failures:
        raise StateError(f"{'; '.join(failures)}; {saved.path} still has what was there before")
    saved.drop()


def run(
    host: Host, state_file: str, wanted: dict[str, Any], restore: bool, check: bool
) -> dict[str, Any]:
    """Do what is asked, or find out what would be done.

    Args:
        host: whose settings.
        state_file: where the host keeps what was there before.
        wanted: setting to value, None to leave it alone; without meaning for `restore`.
        restore: give back what was saved instead.
        check: change nothing.

    Returns:
        What Ansible is told; `warning` is a sentence about the host or None.

    Raises:
        StateError: nothing was changed, or not all of it worked.
    """
    # What is saved is read under the lock too: another controller may be about to write it.
    with contextlib.nullcontext() if check else alone(host):
        return _run(host, Saved(state_file, host), wanted, restore, check)


def _run(
    host: Host, saved: Saved, wanted: dict[str, Any], restore: bool, check: bool
) -> dict[str, Any]:
    """The same, with the lock held where anything may change."""
    values, beside = (saved.values, []) if restore else expand(host, wanted)
    gone = [f"/{name}" for name in values if name != SERVICE and not (host.root / name).exists()]
    if gone:
        raise StateError(f"{saved.path} is about {', '.join(gone)}, gone since; a boot resets all")
    before = {name: host.read(name) for name in values}
    targets = {name: value for name, value in values.items() if before[name] != value}
    needed = saved.exists if restore else bool(targets)
    if needed and not check:
        if restore:
            # Not only what differs now: what is written may change others along.
            give_back(host, saved, values)
        else:
            change(host, saved, targets, beside)
    kept = f"{saved.path}: kept\n" if restore and needed else ""
    return {
        "changed": needed,
        "needed": needed,
        "values": targets,
        "diff": {
            "before": text({name: before[name] for name in targets}) + kept,
            "after": text(targets),
        },
        "warning": STALE.format(saved.path) if needed and saved.stale else None,
    }


def text(values: Values) -> str:
    """A line for each file."""
    names = {name: name if name == SERVICE else f"/{name}" for name in values}
    return "".join(f"{names[name]}: {value}\n" for name, value in values.items())


def main() -> None:
    """Run as Ansible runs it."""
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
