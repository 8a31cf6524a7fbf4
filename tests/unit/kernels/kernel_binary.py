"""Builds and runs chaosity-bandwidth; the tests here all use the real binary."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[3] / "roles" / "kernels" / "files"

ARRAYS = {"read": 1, "fill": 1, "copy": 2, "scale": 2, "add": 3, "triad": 3}
KERNELS = [*ARRAYS, *(f"{name}_nt" for name in ARRAYS if name != "read")]

Start = Callable[[list[str]], subprocess.Popen]  # what the fixture `start` is


def build(folder: Path, *variables: str) -> Path:
    """Builds into a folder, with make variables such as EXTRA=-g; returns the binary."""
    command = ["make", "-s", "-j2", "-C", str(SOURCES), f"BUILD={folder}", *variables]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return folder / "chaosity-bandwidth"


@dataclass(frozen=True)
class Run:
    """One finished run: exit code, what it said on stderr, its events."""

    code: int
    stderr: str
    events: list[dict]

    @property
    def ready(self) -> dict:
        (event,) = [event for event in self.events if event["event"] == "ready"]
        return event

    @property
    def samples(self) -> list[dict]:
        return [event for event in self.events if event["event"] == "sample"]

    @property
    def done(self) -> dict:
        assert self.events[-1]["event"] == "done"
        return self.events[-1]


def arguments(kernel: str, cpus: str, array_bytes: int, *more: str) -> list[str]:
    """The three options that are always needed, and more."""
    return ["--kernel", kernel, "--cpus", cpus, "--array-bytes", str(array_bytes), *more]


def run(command: list[str], **options: object) -> Run:
    """Runs a command to its end and reads its JSON lines."""
    options = {
        "capture_output": True,
        "text": True,
        "timeout": 120,
        "stdin": subprocess.DEVNULL,
    } | options
    ended = subprocess.run(command, **options)
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    return Run(ended.returncode, ended.stderr, events)


def refusal(command: list[str], **options: object) -> str:
    """The one sentence on stderr of a run that must refuse with exit code 2 and print nothing."""
    refused = run(command, **options)
    assert refused.code == 2, refused
    assert refused.events == []
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("chaosity-bandwidth: ")
    return sentence
