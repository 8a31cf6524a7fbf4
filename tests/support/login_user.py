"""A user without rights who logs in over the tests' sshd, and what sudo allows this user."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sshd import Server, running_server

SUDOERS = Path("/etc/sudoers.d")
EVERYTHING = "NOPASSWD: ALL"
WITH_PASSWORD = "ALL"


@dataclass(frozen=True)
class LoginUser:
    """A user who logs in over OpenSSH with a key."""

    name: str
    home: Path
    server: Server

    @property
    def variables(self) -> dict[str, object]:
        """The inventory variables that lead to this user on this machine."""
        return {
            **self.server.variables,
            "ansible_user": self.name,
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    @contextlib.contextmanager
    def allowed(self, what: str) -> Iterator[None]:
        """Let sudo run some commands as root for this user; `what` as in sudoers(5)."""
        file = SUDOERS / self.name
        file.write_text(f"{self.name} ALL=(root) {what}\n")
        file.chmod(0o440)
        try:
            subprocess.run(["visudo", "--check", "--file", file], check=True, capture_output=True)
            yield
        finally:
            file.unlink()


@contextlib.contextmanager
def login_user(umask: int) -> Iterator[LoginUser]:
    """Make a user with a home folder and a server that accepts this user; remove both after."""
    if os.geteuid() != 0 or shutil.which("sudo") is None:
        pytest.skip("only root makes users, and sudo must be installed")
    name = f"chaosity-{os.getpid()}"
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
    try:
        # Without any password, rather than locked: sshd without PAM refuses locked users.
        subprocess.run(["usermod", "--password", "*", name], check=True)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            with running_server(Path(folder), umask) as server:
                (Path(folder) / "authorized").chmod(0o644)
                yield LoginUser(name, Path("~" + name).expanduser(), server)
    finally:
        # Kept connections take a moment to end, and userdel refuses until then.
        for _ in range(100):
            if subprocess.run(["pkill", "-KILL", "-u", name], check=False).returncode:
                break
            time.sleep(0.1)
        subprocess.run(["userdel", "--remove", name], check=True, stderr=subprocess.DEVNULL)
