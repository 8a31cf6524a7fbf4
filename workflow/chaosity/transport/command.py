"""The command line that runs the runner on a host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LOCAL, SSH, SLURM = "local", "ssh", "slurm"


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
