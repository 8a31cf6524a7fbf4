"""Keep which components a host had at each check: firmware, kernel, settings, drives, memory.

``check_components.jsonl`` has a line for each check that saw other components than the one before:
``{"since": ..., "content": {component: document}}``, with the documents that discovery makes. The
folder ``components`` is not touched, since its changes request new measurements.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from chaosity.components.component_differences import component_differences
from chaosity.components.component_history import (
    read_component_histories,
    read_states,
    state_at,
)
from chaosity.components.make_component_documents import Components, make_component_documents
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.records.atomic_writes_and_record_files import time_in_file_name
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_json import read_topology
from chaosity.transport.measure_point_on_host import DiscoveredHostDocument
from chaosity.transport.runner_command import SIMULATED, SLURM, runner_command_line

STATES_FILE = "check_components.jsonl"
# A description takes a second; a check is too short to wait for a hung driver.
_DESCRIBE_SECONDS = 10.0


def present_components(host: DiscoveredHostDocument, folder: Path) -> Components | None:
    """Return the components that a host has now; None if it does not describe itself in time."""
    transport = host["transport"]
    with suppress(OSError, subprocess.SubprocessError, UserError):
        if transport["kind"] == SIMULATED:
            topology = read_topology(folder / "topology.json")
            return make_component_documents(topology) if topology else None
        if transport["kind"] == SLURM:  # the check runs on the node
            transport = {**transport, "way": []}
        with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
            subprocess.run(
                runner_command_line(transport, "--describe"),
                input=b'{"needs": []}',
                stdout=file,
                stderr=subprocess.DEVNULL,
                timeout=_DESCRIBE_SECONDS,
                check=True,
            )
            return make_component_documents(discover_topology(file.name))
    return None


def keep_components(folder: Path, moment: str, components: Components) -> None:
    """Add the components that a check saw, if they differ from those of the last check."""
    path = folder / STATES_FILE
    states, content = read_states(path), json.loads(json.dumps(components))
    if states and states[-1].content == content:
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"since": moment, "content": content}, sort_keys=True) + "\n")


class ComponentLog:
    """The components of a host at any time, from its discoveries and its checks.

    Args:
        folder: ``results/HOST/CONFIGURATION``.

    Raises:
        UserError: the file of the checks' components is no such file.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / STATES_FILE
        self.discovered = read_component_histories(folder / "components")
        with malformed_as_user_error("the file has no components of checks", str(path)):
            self.seen: list[tuple[str, Components]] = [
                (str(state.since), {name: dict(each) for name, each in state.content.items()})  # type: ignore[call-overload]
                for state in read_states(path)
                if state.content is not None
            ]

    def may_differ(self, before: str, after: str) -> bool:
        """Return whether a component has another state at one time than at another."""
        times = {since for since, _ in self.seen}
        times |= {state.since for states in self.discovered.values() for state in states}
        return any(before < time <= after for time in times)

    def differences(self, before: str, after: str) -> list[tuple[str, str]]:
        """Return component and what changed of it from one time to another, in words.

        A discovery can be days late, so what the checks saw counts more.
        """
        seen, known = [], []
        for moment in (before, after):
            seen.append(next((own for since, own in reversed(self.seen) if since <= moment), {}))
            stamp = time_in_file_name(moment)
            states = {name: state_at(stamp, each) for name, each in self.discovered.items()}
            known.append({name: state.content or {} for name, state in states.items()})
        if not all(seen):
            seen = [{}, {}]
        found = [
            (name, "is missing" if name in seen[0] else "is new")
            for name in sorted(seen[0].keys() ^ seen[1].keys())
        ]
        told = {name for name, _ in found}
        for name in sorted({*known[0], *seen[0]} - told):
            old, new = (
                {**of_run.get(name, {}), **of_check.get(name, {})}
                for of_run, of_check in zip(known, seen, strict=True)
            )
            found += [
                (name, f"{each.key} {each.text or 'changed'}")
                for each in component_differences(old, new)
            ]
        return found

    def replacements(self, component: str) -> Iterator[tuple[str, str]]:
        """Yield when a component was replaced, and the two serial numbers in words."""
        found: dict[tuple[object, object], str] = {}
        by_runs = [
            (state.since, state.content or {}) for state in self.discovered.get(component, ())
        ]
        by_checks = [(since, own.get(component, {})) for since, own in self.seen]
        for states in (by_runs, by_checks):
            serials = [(since, own["serial"]) for since, own in states if own.get("serial")]
            for (_, old), (since, new) in pairwise(serials):
                if old != new:
                    found[old, new] = min(since, found.get((old, new), since))
        for (old, new), since in found.items():
            yield since, f"serial {old} \N{RIGHTWARDS ARROW} {new}"
