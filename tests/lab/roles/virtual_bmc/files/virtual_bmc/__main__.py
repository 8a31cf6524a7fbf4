"""Starts and stops the lab's BMC: python -m virtual_bmc start|stop|serve FOLDER ...

`start` creates missing keys and returns when the BMC answers. Each command prints what it did.
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

# The BMC imports a web server, which takes long on a busy emulated machine.
START_SECONDS = 60
STOP_SECONDS = 10


def _server_process(folder: Path) -> int | None:
    """Return the number of the process that serves this folder; None if it does not run.

    Linux reuses process numbers, so the command line of the process must name the folder.
    """
    try:
        number = int((folder / "pid").read_text())
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return number if b"serve" in words and bytes(folder) in words else None


def _port_is_open(port: int) -> bool:
    """Return whether a program listens on this loopback port."""
    with socket.socket() as attempt:
        attempt.settimeout(1)
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _start(options: argparse.Namespace) -> str:
    """Start the BMC unless it runs; return what was done."""
    from virtual_bmc import account_and_certificate

    folder: Path = options.folder
    if _server_process(folder):
        return "runs already"
    if _port_is_open(options.port):
        sys.exit(
            f"the lab's BMC cannot start: another program listens on port {options.port};"
            " choose another port with --port"
        )
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
        if _port_is_open(options.port):
            return "started"
        if process.poll() is not None:
            break
        time.sleep(0.1)
    _stop(options)
    sys.exit(f"the lab's BMC does not start; the end of {log}: {log.read_text()[-300:].strip()}")


def _stop(options: argparse.Namespace) -> str:
    """Stop the BMC if it runs; return what was done."""
    number = _server_process(options.folder)
    if not number:
        return "did not run"
    os.kill(number, signal.SIGTERM)
    for _ in range(STOP_SECONDS * 10):
        if not _server_process(options.folder):
            break
        time.sleep(0.1)
    else:
        os.kill(number, signal.SIGKILL)
    (options.folder / "pid").unlink(missing_ok=True)
    return "stopped"


def _serve(options: argparse.Namespace) -> str:
    """Serve requests in this process until it is ended."""
    from virtual_bmc import redfish_service

    redfish_service.serve_redfish(options.folder, options.lab, options.port)
    return "ended"


def main() -> None:
    """Run the command from the command line and print what it did."""
    parser = argparse.ArgumentParser(prog="virtual_bmc")
    parser.add_argument("command", choices=["start", "stop", "serve"])
    parser.add_argument("folder", type=Path, help="the BMC's own folder")
    parser.add_argument("--lab", type=Path, help="folder with a folder for each machine")
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--user", default="lab")
    options = parser.parse_args()
    # The full path identifies the process, see _server_process().
    options.folder = options.folder.resolve()
    commands = {"start": _start, "stop": _stop, "serve": _serve}
    print(commands[options.command](options))


if __name__ == "__main__":
    main()
