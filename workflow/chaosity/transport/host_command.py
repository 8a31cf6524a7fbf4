"""OpenSSH with one kept connection a host, from the variables that Ansible itself uses.

Options: ssh_config(5). The host's key is always checked: an unknown or changed one is refused.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaosity.errors import UserError

LOCAL, SSH, SLURM = "local", "ssh", "slurm"
# Where provisioning puts the runner unless the inventory says otherwise, seen from the home folder.
RUNNER_DIRECTORY = ".local/share/chaosity"
RUNNER_FILE = "chaosity-run.pyz"
# Of two equal options OpenSSH takes the first, so these outrank what the inventory adds.
REQUIRED_OPTIONS = {
    "StrictHostKeyChecking": "yes",
    "ControlMaster": "auto",
    "ControlPersist": "300",  # seconds; the next point comes long before
}
# These may be set otherwise by the inventory.
DEFAULT_OPTIONS = {
    "BatchMode": "yes",  # never ask: nobody may be there
    "ConnectTimeout": "10",
    # A host that died is noticed after 15 s, though its network address still answers.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
}
# OpenSSH's own exit status for an error of its own; other ones are the remote program's.
CONNECTION_FAILED = 255
PASSWORD_VARIABLE = "CHAOSITY_SSH_PASSWORD"


@dataclass(frozen=True)
class Transport:
    """How to run the runner on a host.

    Args:
        kind: `LOCAL`, `SSH` or `SLURM`.
        way: the command that leads to the host; empty for this machine.
        runner: the command that is the runner there.
    """

    kind: str
    way: tuple[str, ...]
    runner: tuple[str, ...]

    def command(self, *arguments: str) -> list[str]:
        """The runner's command line with these arguments, for a process without a shell.

        OpenSSH hands one text to a shell on the host, so there every word is quoted for it.
        """
        words = [*self.runner, *arguments]
        return [*self.way, *([shlex.join(words)] if self.kind == SSH else words)]

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads back."""
        return asdict(self)

    @staticmethod
    def from_json(document: dict[str, Any]) -> Transport:
        """A transport as `to_json` wrote it."""
        way: Sequence[str] = document["way"]
        return Transport(document["kind"], tuple(way), tuple(document["runner"]))


def control_socket_folder() -> Path:
    """A folder for the sockets of kept connections, which only this user may use.

    It lies in /tmp because the path of a socket may have no more than about 100 characters.

    Raises:
        UserError: somebody else made it.
    """
    folder = Path(tempfile.gettempdir()) / f"chaosity-ssh-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise UserError("is not this user's alone", str(folder), "remove it or set TMPDIR")
    return folder


def option_words(given: Mapping[str, str]) -> list[str]:
    """Options as OpenSSH's command line wants them."""
    return [word for key, value in given.items() for word in ("-o", f"{key}={value}")]


def ssh_command(name: str, variables: Mapping[str, Any]) -> list[str]:
    """The command that reaches a host.

    Args:
        name: the host's name in the inventory.
        variables: its ``ansible_*`` variables, as they mean to Ansible's ssh connection.

    Raises:
        UserError: OpenSSH's client is not installed.
    """
    if shutil.which("ssh") is None:
        raise UserError("ssh is not installed", f"host {name}", "install the OpenSSH client")
    port = variables.get("ansible_port")
    user = variables.get("ansible_user")
    key = variables.get("ansible_ssh_private_key_file")
    extra = " ".join(
        str(variables.get(f"ansible_ssh_{which}_args") or "") for which in ("common", "extra")
    )
    return [
        "ssh",
        *option_words({**REQUIRED_OPTIONS, "ControlPath": str(control_socket_folder() / "%C")}),
        *(["-p", str(port)] if port else []),
        *(["-l", str(user)] if user else []),
        *(["-i", str(key), "-o", "IdentitiesOnly=yes"] if key else []),
        *shlex.split(extra),
        *option_words(DEFAULT_OPTIONS),
        "--",
        str(variables.get("ansible_host") or name),
    ]


def ssh_transport(name: str, variables: Mapping[str, Any]) -> Transport:
    """The transport of a host that is reached over OpenSSH.

    Args:
        name: the host's name in the inventory.
        variables: its variables: ``ansible_*``, and those of the role `runner` and `kernels` that
            say where things are.
    """
    folder = variables.get("runner_directory") or RUNNER_DIRECTORY
    python = variables.get("runner_python") or "python3"
    tools = variables.get("kernels_directory")
    become = ["sudo", "-n"] if variables.get("ansible_become") else []
    runner = [*become, python, f"{folder}/{RUNNER_FILE}", *(["--tools", tools] if tools else [])]
    return Transport(SSH, tuple(ssh_command(name, variables)), tuple(runner))


def with_password(command: Sequence[str], password: str) -> tuple[list[str], dict[str, str]]:
    """A command that opens the connection by password, and the environment it needs.

    The password is in no argument list: OpenSSH asks ``chaosity-askpass`` for it, which reads its
    environment. Later commands use the connection that was opened, and need none.
    """
    once = option_words({"BatchMode": "no", "NumberOfPasswordPrompts": "1"})
    ask = shutil.which("chaosity-askpass") or "chaosity-askpass"
    environment = {
        **os.environ,
        PASSWORD_VARIABLE: password,
        "SSH_ASKPASS": ask,
        "SSH_ASKPASS_REQUIRE": "force",
    }
    return [command[0], *once, *command[1:]], environment


def print_password() -> None:
    """Print the password that the environment holds; OpenSSH calls it."""
    print(os.environ.get(PASSWORD_VARIABLE, ""))


def connection_error_cause(stderr: str) -> str:
    """What OpenSSH said, in words that name the cause; its own last line where there is none."""
    said = stderr.strip().splitlines()
    causes = {
        "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key has changed; if that is right, "
        "remove the old key from the known hosts, if not, find out who answers there",
        "Host key verification failed": "its host key is not known; log in once by hand, compare "
        "the key's fingerprint, and accept it",
        "Permission denied": "it refused the key or the password",
        "Connection refused": "nothing listens at its address and port",
        "timed out": "it does not answer",
        "Could not resolve": "its name cannot be resolved",
        "No route to host": "there is no route to it",
        "Connection closed": "it closed the connection",
    }
    for sign, cause in causes.items():
        if any(sign in line for line in said):
            return cause
    return said[-1] if said else "the connection ended without a word"
