"""A private OpenSSH server on the loopback interface, with its own keys, for the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from wait_until_true import wait_until


def make_key_pair(path: Path) -> Path:
    """Make a key pair without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def free_port() -> int:
    """A TCP port on which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """An sshd that accepts one key; `stop` cuts every session, like a host that dies.

    Args:
        folder: an empty folder, which every user who logs in must be able to enter.
        umask: the umask of the sessions; -1: that of this process.
    """

    def __init__(self, folder: Path, umask: int = -1) -> None:
        self.folder, self.port, self.umask = folder, free_port(), umask
        self.host_key, self.user_key = (
            make_key_pair(folder / "host"),
            make_key_pair(folder / "user"),
        )
        keys = folder / "authorized"
        keys.write_text((folder / "user.pub").read_text())
        public = " ".join((folder / "host.pub").read_text().split()[:2])
        self.known = folder / "known_hosts"
        self.known.write_text(f"[127.0.0.1]:{self.port} {public}\n")
        self.config = folder / "sshd_config"
        self.config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {keys}\nPidFile {folder}/pid\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nPermitRootLogin yes\nLogLevel INFO\n"
            "Subsystem sftp internal-sftp\n"  # what Ansible copies files with
        )

    def start(self) -> None:
        """Start the server and wait until it listens."""
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of Debian drops its rights
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        self.process = subprocess.Popen(
            [program, "-D", "-f", self.config, "-E", self.folder / "log"],
            start_new_session=True,
            umask=self.umask,
        )
        wait_until(self.is_listening, 10, pause=0.05)

    def is_listening(self) -> bool:
        """Whether a client can connect; the log says why not."""
        assert self.process.poll() is None, self.log
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def log(self) -> str:
        """The content of the server's log file."""
        return (self.folder / "log").read_text()

    @property
    def variables(self) -> dict[str, object]:
        """The inventory variables that lead to this server."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_ssh_private_key_file": str(self.user_key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known}",
        }

    def stop(self) -> None:
        """Kill the server, then all its sessions: a cut client finds nothing that listens."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        sessions = children.read_text().split() if children.exists() else []
        for pid in [str(self.process.pid), *sessions]:
            subprocess.run(["kill", "-KILL", pid], check=False, stderr=subprocess.DEVNULL)
        self.process.wait()


@contextlib.contextmanager
def running_server(folder: Path, umask: int = -1) -> Iterator[Server]:
    """A server that is stopped afterwards; `folder` is made unless it is there."""
    folder.mkdir(exist_ok=True)
    server = Server(folder, umask)
    server.start()
    try:
        yield server
    finally:
        server.stop()
