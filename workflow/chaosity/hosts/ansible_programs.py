"""Start Ansible's programs alike from Snakemake and chaosity."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from chaosity.errors import UserError

PLAYBOOK = "ansible-playbook"


def ansible_command(program: str) -> list[str]:
    """Return the begin of the command that starts one of Ansible's programs.

    The program beside this Python is preferred, so the environment need not be active. Ansible
    insists on a locale with UTF-8, whatever the locale of this process is.

    Raises:
        UserError: Ansible is not installed, or this user lacks a home folder or an account, without
            which Ansible ends with an error that does not say so.
    """
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise UserError(f"{program} is not installed", remedy="run make in the repository")
    own = Path(os.environ.get("ANSIBLE_HOME") or "~/.ansible")
    with suppress(RuntimeError):  # this user has neither HOME nor an account
        own = own.expanduser()
    existing = next(folder for folder in (own, *own.parents) if folder.exists())
    if not own.is_absolute() or not os.access(existing, os.W_OK):
        what = f"the folder {own}, in which Ansible keeps files, cannot be written"
        raise UserError(what, remedy="set HOME to a folder that this user can write")
    if program == PLAYBOOK and not _has_account(user := os.geteuid()):
        what = f"the user {user} has no entry in /etc/passwd, and Ansible's playbooks need one"
        remedy = "add one; in a container, mount a file with one as /etc/passwd"
        raise UserError(what, remedy=remedy)
    return ["/usr/bin/env", "LC_ALL=C.UTF-8", found]


def _has_account(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True
