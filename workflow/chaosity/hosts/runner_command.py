"""Make the command line that runs the runner on a host: locally, over OpenSSH or through Slurm.

OpenSSH keeps one connection per host open. Ansible's connection variables configure OpenSSH, and
ssh_config(5) explains the options of OpenSSH. OpenSSH always checks the host's key, and refuses an
unknown or changed key.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from chaosity.errors import UserError

LOCAL, SSH, SLURM, SIMULATED = "local", "ssh", "slurm", "simulated"
# Default folders of the programs that provisioning installs. If the user who logs in runs the
# programs, the folder is HOME_DIRECTORY below the home folder; if root runs the programs, the
# folder is ROOT_DIRECTORY. roles/inventory/vars/main.yml has the same rule.
HOME_DIRECTORY, ROOT_DIRECTORY = ".local/share/chaosity", "/opt/chaosity"
RUNNER_FILE = "chaosity-run.pyz"
# OpenSSH uses the first of two equal options, so REQUIRED_SSH_OPTIONS overrule options of the
# inventory.
REQUIRED_SSH_OPTIONS = {
    "StrictHostKeyChecking": "yes",
    "ControlMaster": "auto",
    "ControlPersist": "300",  # in seconds; the next point begins long before this time
}
# Options of OpenSSH that the inventory may overrule.
DEFAULT_SSH_OPTIONS = {
    "BatchMode": "yes",  # OpenSSH never asks for a password, since nobody watches a run
    "ConnectTimeout": "10",
    # A dead host is noticed after 15 s, even if its network address still answers.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
}
# Exit status of OpenSSH after a connection error; other statuses are from the remote program.
SSH_STATUS_OF_FAILED_CONNECTION = 255
PASSWORD_VARIABLE = "CHAOSITY_SSH_PASSWORD"
# Text in OpenSSH's messages -> cause of the error. In each of these causes, the word "it" means the
# host.
CAUSES_OF_SSH_ERRORS = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key has changed. If you expect this, "
    "remove the old key from the known hosts. If not, find out which machine answers",
    "Host key verification failed": "its host key is not known; log in once by hand, compare "
    "the key's fingerprint, and accept it",
    "Permission denied": "it refused the key or the password",
    "Connection refused": "nothing listens at its address and port",
    "timed out": "it does not answer",
    "Could not resolve": "its name cannot be resolved",
    "No route to host": "there is no route to it",
    "Connection closed": "it closed the connection",
    "Connection reset": "it closed the connection",
}


class TransportCommands(TypedDict):
    """The commands that reach a host and start the runner there, as host.json has them."""

    kind: str  # `LOCAL`, `SSH`, `SLURM` or `SIMULATED`
    # First words of a command that runs a program on the host; empty for this machine.
    way: list[str]
    runner: list[str]  # the command that starts the runner on the host


def runner_command_line(transport: TransportCommands, *arguments: str) -> list[str]:
    """Return the words of the command that starts the runner with some arguments, without a shell.

    OpenSSH passes the command as one text to a shell on the host, so each word of a command for
    OpenSSH is quoted for this shell.
    """
    words = [*transport["runner"], *arguments]
    return [*transport["way"], *([shlex.join(words)] if transport["kind"] == SSH else words)]


def control_socket_folder() -> Path:
    """Return a folder for the sockets of open connections; only this user may access it.

    The folder is in /tmp, because the path of a socket is limited to about 100 characters.

    Raises:
        UserError: the folder belongs to another user, or other users can access it.
    """
    folder = Path(tempfile.gettempdir()) / f"chaosity-ssh-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise UserError("other users can access the folder", str(folder), "delete it or set TMPDIR")
    return folder


def _option_words(options: Mapping[str, str]) -> list[str]:
    """Return options in the form of OpenSSH's command line."""
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _ssh_command(name: str, variables: Mapping[str, Any]) -> list[str]:
    """Return the command that reaches a host over OpenSSH, see `ssh_transport`."""
    if shutil.which("ssh") is None:
        raise UserError(
            "ssh is not installed on this machine", f"host {name}", "install the OpenSSH client"
        )
    port = variables.get("ansible_port")
    user = variables.get("ansible_user")
    key = variables.get("ansible_ssh_private_key_file")
    extra = " ".join(
        str(variables.get(f"ansible_ssh_{which}_args") or "") for which in ("common", "extra")
    )
    address = str(variables.get("ansible_host") or name)
    # The name of the socket is a hash of the complete command. If the name were OpenSSH's %C, two
    # hosts of the inventory with the same address but different keys or options would share a
    # connection and one check of the host key.
    own = hashlib.sha256(repr((name, address, port, user, key, extra)).encode()).hexdigest()[:16]
    return [
        "ssh",
        *_option_words({**REQUIRED_SSH_OPTIONS, "ControlPath": str(control_socket_folder() / own)}),
        *(["-p", str(port)] if port else []),
        *(["-l", str(user)] if user else []),
        *(["-i", str(key), "-o", "IdentitiesOnly=yes"] if key else []),
        *shlex.split(extra),
        *_option_words(DEFAULT_SSH_OPTIONS),
        "--",
        address,
    ]


def ssh_transport(name: str, variables: Mapping[str, Any]) -> TransportCommands:
    """Return the transport of a host that is reached over OpenSSH.

    `variables` are the variables ``ansible_*`` of the host, with their meaning in Ansible's ssh
    connection, and the paths that the roles `runner` and `kernels` use.

    Raises:
        UserError: OpenSSH's client is not installed.
    """
    become = _is_true_in_inventory(variables.get("ansible_become"))
    default = ROOT_DIRECTORY if become else HOME_DIRECTORY
    installed = variables.get("chaosity_directory") or default
    folder = variables.get("runner_directory") or installed
    python = variables.get("runner_python") or "python3"
    tools = variables.get("kernels_directory") or f"{installed}/kernels"
    sudo = ["sudo", "-n"] if become else []
    runner = [*sudo, python, f"{folder}/{RUNNER_FILE}", "--tools", tools]
    return {"kind": SSH, "way": _ssh_command(name, variables), "runner": runner}


def _is_true_in_inventory(value: object) -> bool:
    """Return whether a value means true for Ansible; an INI inventory has texts like "false"."""
    return str(value).lower() in {"true", "yes", "on", "y", "t", "1", "1.0"}


def ssh_command_with_password(
    command: Sequence[str], password: str
) -> tuple[list[str], dict[str, str]]:
    """Return a command that connects with a password, and the environment variables for it.

    No argument list contains the password. OpenSSH calls ``chaosity-askpass``, which prints the
    password from an environment variable. Later commands use the same open connection, and need no
    password.
    """
    options = _option_words({"BatchMode": "no", "NumberOfPasswordPrompts": "1"})
    environment = {
        **os.environ,
        PASSWORD_VARIABLE: password,
        "SSH_ASKPASS": shutil.which("chaosity-askpass") or "chaosity-askpass",
        "SSH_ASKPASS_REQUIRE": "force",
    }
    return [command[0], *options, *command[1:]], environment


def print_password() -> None:
    """Print the password from the environment variable; OpenSSH runs this function as a program."""
    print(os.environ.get(PASSWORD_VARIABLE, ""))


def connection_error_cause(stderr: str) -> str:
    """Return why a connection failed, in plain words, or else OpenSSH's last line."""
    last = (stderr.strip().splitlines() or ["the connection ended without a message"])[-1]
    return next((cause for text, cause in CAUSES_OF_SSH_ERRORS.items() if text in stderr), last)


_ROOT = Path(__file__).resolve().parents[3]


def put_own_programs_first_in_path(root: Path = _ROOT) -> None:
    """Put the programs of this installation at the start of the search path.

    Rules call `chaosity` and `snakemake`, and measurements call the kernels in ``build/kernels``.
    """
    own = [str(root / "build" / "kernels"), str(Path(sys.executable).parent)]
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys(own + given))
