"""The lock files of a host: where they are, how they are opened, and who has locked them.

Provisioning as root makes the lock files in /run/chaosity, where only root may write
(roles/runner). A host that root did not provision has the lock files in /tmp. In /tmp, any user can
put something else at the path of a lock file. So only a regular file is accepted as a lock file,
and opening it never waits.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
from pathlib import Path

from chaosity.errors import UserError
from chaosity.runner.observed_state import read_file_if_present

ROOT = Path("/")
MEASURING, SETTINGS = "measuring", "settings"
# Without O_NONBLOCK, opening a FIFO would wait for a writer; without O_NOFOLLOW, a symbolic link
# could lead to any file.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def lock_file_path(name: str, root: Path = ROOT) -> Path:
    """Return the path of a lock file: in /run/chaosity if provisioning made the file, else in /tmp.

    `name` is MEASURING or SETTINGS; `root` is the folder with `run` and `tmp`.
    """
    made = root / f"run/chaosity/{name}.lock"
    return made if made.exists() else root / f"tmp/chaosity-{name}.lock"


def open_lock_file(path: Path) -> int:
    """Return a file descriptor of a lock file; create the file if it is missing.

    Raises:
        UserError: the path is not a regular file, or this user may not open it.
    """
    remedy = "delete it, or run provision.yml as root, which makes the lock in /run/chaosity"
    try:
        handle = _open_or_create(path)
    except PermissionError:
        remedy = "ask to join the group that runner_lock_group of the inventory names"
        raise UserError("this user may not open the lock", str(path), remedy) from None
    except OSError as error:  # the error is ELOOP if the path is a symbolic link
        what = f"the lock cannot be opened: {error.strerror}"
        raise UserError(what, str(path), remedy) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError("the lock must be a regular file", str(path), remedy)
    return handle


def _open_or_create(path: Path) -> int:
    """Open a file, or create a file that everyone may read, whatever the umask is."""
    while True:
        try:  # The kernel forbids O_CREAT on other users' files in /tmp, so O_CREAT is tried last.
            return os.open(path, _OPEN_FLAGS)
        except FileNotFoundError:
            pass
        try:
            handle = os.open(path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:  # another process has created the file
            continue
        os.fchmod(handle, 0o644)
        return handle


def try_to_lock(handle: int, mode: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file without waiting; return whether the lock was obtained."""
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def describe_holders(handle: int) -> str:
    """Return a text that names the processes that locked an open file, and their users.

    The source is /proc/locks, proc_locks(5). If the process that locked the file has ended and left
    the lock to its children, or runs in another container, the text says that the process is
    unknown.
    """
    status = os.fstat(handle)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = (read_file_if_present("/proc/locks") or "").splitlines()
    # Example of a line: `1: FLOCK ADVISORY WRITE 1234 00:1a:5678 0 EOF`.
    numbers = [line.split()[4] for line in lines if "FLOCK" in line and device in line.split()]
    return ", ".join(map(_describe_process, numbers)) or "an unknown process"


def _describe_process(number: str) -> str:
    """Return a text with the number, the program and the user of a process."""
    try:
        program = Path(f"/proc/{number}/comm").read_text(encoding="utf-8").strip()
        user = Path(f"/proc/{number}").stat().st_uid
    except OSError:
        return "an unknown process"
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = str(user)
    return f"process {number} ({program}) of user {name}"
