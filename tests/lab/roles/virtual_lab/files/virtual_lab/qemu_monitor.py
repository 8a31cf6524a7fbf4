"""Sends commands to a running QEMU over its socket (QMP: one JSON object per line)."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from virtual_lab.errors import LabError


class QemuMonitor:
    """A connection to the monitor of one machine.

    Args:
        path: path of the machine's QMP socket.
        seconds: time limit for an answer.

    Raises:
        LabError: QEMU does not answer on the socket.
    """

    def __init__(self, path: Path, seconds: float = 10) -> None:
        self._where = path.parent.name
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        try:
            self._connect(path)
            self._answers = self._socket.makefile("r", encoding="utf-8")
            self._answers.readline()  # the greeting
            self.execute("qmp_capabilities")
        except (OSError, ValueError) as error:
            self._socket.close()
            raise LabError(f"{self._where}: QEMU does not answer at {path}: {error}") from None

    def _connect(self, path: Path) -> None:
        # A socket's path may have 107 characters; this name of the folder is always short.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)

    def execute(self, command: str, **arguments: Any) -> Any:
        """Execute a QMP command and return its result.

        Raises:
            LabError: QEMU refuses the command.
            OSError: the connection broke.
        """
        question = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        for line in self._answers:
            answer = json.loads(line)
            if "error" in answer:
                raise LabError(f"{self._where}: QEMU refuses {command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise ConnectionError(f"{self._where}: QEMU closed the connection")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answers.close()
        self._socket.close()
