"""What Slurm says of its nodes: whether a job can start there, and what it would get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# States and flags in which no new job starts (sinfo(1), NODE STATE CODES). POWERED_DOWN and
# POWERING_UP are not among them: Slurm wakes such a node for a job.
UNUSABLE = {
    "DOWN": "down",
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "draining",
    "ERROR": "in error",
    "FAIL": "failing",
    "FAILING": "failing",
    "FUTURE": "not there yet",
    "INVAL": "not as it is configured",
    "INVALID_REG": "not as it is configured",
    "MAINT": "under maintenance",
    "NOT_RESPONDING": "not responding",
    "REBOOT_ISSUED": "rebooting",
    "UNKNOWN": "in an unknown state",
}


@dataclass(frozen=True)
class SlurmNode:
    """A node of Slurm's.

    Args:
        name: its name in Slurm.
        states: its state and flags, such as ``("IDLE", "DRAIN")``.
        reason: why it is drained or down, as a person or Slurm wrote it; may be empty.
        processors: what Slurm gives away there (without those reserved for the system).
        memory_mib: the same of memory; 0 where the site does not manage memory.
    """

    name: str
    states: tuple[str, ...]
    reason: str
    processors: int
    memory_mib: int

    @property
    def trouble(self) -> str | None:
        """Why no job can start there, as a clause for people; None when one can."""
        words = [UNUSABLE[state] for state in self.states if state in UNUSABLE]
        if not words:
            return None
        seen = " and ".join(dict.fromkeys(words))
        return f"node {self.name} is {seen}: reason {self.reason or 'not given'}"


def number(text: str, name: str) -> int:
    """A whole number of a node's description; 0 when it is not there."""
    match = re.search(rf"\b{name}=(\d+)", text)
    return int(match.group(1)) if match else 0


def parse_nodes(text: str) -> dict[str, SlurmNode]:
    """Nodes by name, from ``scontrol show node --oneliner``.

    A ``*`` behind the state means that the node does not answer, and other signs that it is asleep,
    waking or under maintenance; newer releases spell most of them as flags.
    """
    found = {}
    for line in text.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        state = re.search(r"\bState=(\S+)", line)
        if name is None or state is None:
            continue
        states = [word for word in re.split(r"[^A-Z_]+", state.group(1)) if word]
        if "*" in state.group(1):
            states.append("NOT_RESPONDING")
        # The reason stands last, with who gave it and when in brackets.
        reason = re.search(r"\bReason=(.*?)(?: \[[^\]]*\])?(?: Comment=.*)?$", line.rstrip())
        memory = number(line, "RealMemory") - number(line, "MemSpecLimit")
        found[name.group(1)] = SlurmNode(
            name=name.group(1),
            states=tuple(states),
            reason=reason.group(1).strip() if reason else "",
            processors=number(line, "CPUEfctv") or number(line, "CPUTot"),
            # Slurm's default of 1 MiB means that nobody said how much there is.
            memory_mib=memory if memory > 1 else 0,
        )
    return found


def unusable_nodes(nodes: Iterable[SlurmNode]) -> dict[str, str]:
    """The nodes on which no job can start, with why."""
    return {node.name: node.trouble for node in nodes if node.trouble}


def slurm_node_name(host: str, variables: Mapping[str, Any]) -> str:
    """The name that Slurm has for a host of the inventory.

    Args:
        host: its name in the inventory.
        variables: its variables; ``chaosity_slurm_node`` where the names differ.
    """
    return variables.get("chaosity_slurm_node", host)
