"""What Slurm shows of a node, and what the health check program of the role monitor left there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from broken_runs import run_program
from wait_until_true import wait_until

Found = TypeVar("Found")

CONFIGURATION = Path("/etc/slurm/slurm.conf")
PROGRAM = Path("/usr/local/sbin/chaosity-monitor")
SETTINGS, STATE = Path("/etc/chaosity-monitor"), Path("/var/lib/chaosity-monitor")


def wait_for(condition: Callable[[], Found]) -> Found:
    """Wait until Slurm or a check did something; on a busy machine that takes minutes."""
    return wait_until(condition, 300, pause=0.5)


def last_check(node: str) -> dict[str, Any] | None:
    """Time, exit status and output of the last check of a node."""
    path = STATE / f"{node}.json"
    return json.loads(path.read_text()) if path.exists() else None


def wait_for_checks(node: str, number: int = 1) -> dict[str, Any]:
    """Wait for further checks of a node and return what `last_check` says of the last."""
    for _ in range(number):
        before = last_check(node)
        wait_for(partial(_is_checked_since, node, before))
    return last_check(node) or {}


def _is_checked_since(node: str, before: dict[str, Any] | None) -> bool:
    return last_check(node) not in (None, before)


def seen(node: str, key: str) -> str:
    """What Slurm shows of a node: State, Reason or Comment."""
    text = run_program("scontrol", "show", "node", node).stdout
    found = re.search(rf"^\s*{key}=(\S.*?)(?: \[\S+\]| ThreadsPerCore=.*)?$", text, re.MULTILINE)
    return found.group(1) if found else ""


def is_drained(node: str) -> bool:
    """Whether a node takes no jobs because somebody said so."""
    return "DRAIN" in seen(node, "State")


def traces_of_monitor() -> list[str]:
    """What is left of the role monitor, in files and in Slurm's daemons; its marks in comments."""
    shown = run_program("scontrol", "show", "config").stdout
    program = re.search(r"^HealthCheckProgram\s*= (.*)$", shown, re.MULTILINE)
    return [
        *(str(path) for path in (PROGRAM, SETTINGS, STATE) if path.exists()),
        *(line for line in CONFIGURATION.read_text().splitlines() if "HealthCheck" in line),
        *([program.group(0)] if program and program.group(1) != "(null)" else []),
        *re.findall(r"Comment=chaosity.*", run_program("scontrol", "show", "nodes").stdout),
    ]
