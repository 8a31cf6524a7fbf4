"""The lock of a host's results, so that no two runs write the same records."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from chaosity.errors import UserError


def lock_results(results: Path) -> int:
    """Lock a host's results (``results/<host>``); return the open file.

    The kernel frees the lock when the process ends, also after a crash. Snakemake's own lock stays
    after a crash, so profiles/default turns it off.

    Raises:
        UserError: another run holds the lock.
    """
    results.mkdir(parents=True, exist_ok=True)
    handle = os.open(results / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(handle, 20).decode().strip()
        os.close(handle)
        what = f"another run (process {pid}) writes to this folder"
        raise UserError(what, str(results), "wait for the other run or stop it") from None
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    return handle
