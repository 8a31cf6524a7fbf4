"""Starts and stops the lab's BMC: python -m virtual_bmc start|stop|serve FOLDER ...

`start` makes what is missing and comes back when the BMC answers; its last word is what it did.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

# It imports a web server; on a busy emulated machine that takes a while.
START_SECONDS = 60
STOP_SECONDS = 10


def running(folder: Path) -> int | None:
    """The process that serves from this folder, if any.

    A number in a file may since belong to somebody else, so the process has to name the folder.
    """
    try:
        number = int((folder / "pid").read_text())
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return number if b"serve" in words and bytes(folder) in words else None


def answers(port: int) -> bool:
    """Whether something listens on the loopback port."""
    with socket.socket() as attempt:
        attempt.settimeout(1)
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def start(options: argparse.Namespace) -> str:
    """Start the BMC unless it runs, and say which."""
    from virtual_bmc import account_and_certificate

    folder: Path = options.folder
    if running(folder):
        return "runs already"
    if answers(options.port):
        sys.exit(f"the lab's BMC cannot start: something else listens on port {options.port}")
    folder.mkdir(parents=True, exist_ok=True)
    account_and_certificate.make_account(folder, options.user)
    account_and_certificate.make_certificate(folder)
    log = folder / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "virtual_bmc",
                "serve",
                folder,
                "--lab",
                options.lab,
                "--port",
                str(options.port),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    (folder / "pid").write_text(str(process.pid))
    for _ in range(START_SECONDS * 10):
        if answers(options.port):
            return "started"
        if process.poll() is not None:
            break
        time.sleep(0.1)
    stop(options)
    sys.exit(f"the lab's BMC does not start; the end of {log}: {log.read_text()[-300:].strip()}")


def stop(options: argparse.Namespace) -> str:
    """Stop the BMC if it runs, and say which."""
    number = running(options.folder)
    if not number:
        return "did not run"
    os.kill(number, signal.SIGTERM)
    for _ in range(STOP_SECONDS * 10):
        if not running(options.folder):
            break
        time.sleep(0.1)
    else:
        os.kill(number, signal.SIGKILL)
    (options.folder / "pid").unlink(missing_ok=True)
    return "stopped"


def serve(options: argparse.Namespace) -> str:
    """Be the BMC."""
    from virtual_bmc import redfish_service

    redfish_service.serve(options.folder, options.lab, options.port)
    return "ended"


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(prog="virtual_bmc")
    parser.add_argument("command", choices=["start", "stop", "serve"])
    parser.add_argument("folder", type=Path, help="the BMC's own folder")
    parser.add_argument("--lab", type=Path, help="folder with a folder for each machine")
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--user", default="lab")
    options = parser.parse_args()
    # The name by which the process is known again.
    options.folder = options.folder.resolve()
    commands = {"start": start, "stop": stop, "serve": serve}
    print(commands[options.command](options))


if __name__ == "__main__":
    main()
