"""Runs the project's playbooks for real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
NOBODY = 65534
# Reading is allowed, so that the user without rights reaches an interpreter in somebody's home.
WITHOUT_ROOT = [
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
]


@dataclass(frozen=True)
class Outcome:
    """How a play ended."""

    status: int
    said: str

    def count(self, word: str) -> int:
        """A number of the recap, over all hosts: ok, changed, failed, ..."""
        recap = self.said.split("PLAY RECAP")[-1]
        return sum(int(number) for number in re.findall(rf"\b{word}=(\d+)", recap))

    def says(self, *sentences: str) -> bool:
        """Whether it said them, however the lines were broken."""
        flat = " ".join(self.said.split())
        return all(sentence in flat for sentence in sentences)

    def check_refused(self, sentences: Mapping[str, Sequence[str]]) -> None:
        """See that exactly these hosts failed, and that it said the sentences of each."""
        assert self.count("failed") == len(sentences), self.said
        for host, own in sentences.items():
            assert re.search(rf"^{host} .* failed=1 ", self.said, re.MULTILINE), self.said
            assert self.says(*own), f"{host}: {own}\n{self.said}"


def play(
    root: Path,
    *arguments: str | Path,
    playbook: str,
    extra: dict[str, Any] | None = None,
    before: list[str] | None = None,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """Run a playbook of a checkout.

    Args:
        root: the checkout.
        arguments: to ansible-playbook.
        playbook: its file in the checkout.
        extra: variables that outrank all others.
        before: a program, with arguments, that runs ansible-playbook.
        environment: variables of the process that differ from ours.
    """
    variables = ["--extra-vars", json.dumps(extra)] if extra else []
    answer = subprocess.run(
        [*(before or []), PLAYBOOK, playbook, *variables, *arguments],
        cwd=root,
        env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(answer.returncode, answer.stdout + answer.stderr)
