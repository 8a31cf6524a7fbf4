"""Describe the machine in words, from its topology and its system component."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from chaosity import __version__
from chaosity.components.component_differences import component_value_text, key_as_words
from chaosity.report.html_pages_and_inline_svg import svg_as_image
from chaosity.report.run import Run
from chaosity.text_templates import fill_text, fixed_texts
from chaosity.topology.topology_model import Node

# Name -> value, or part of the host -> name -> value.
Facts = dict[str, str]
FactGroups = dict[str, Facts]


@dataclass(frozen=True)
class MachineSection:
    """The machine's parts: facts, its nodes with their numbers of drives, and lstopo's drawing."""

    facts: Facts
    nodes: tuple[Node, ...]
    drives_of_nodes: Mapping[int | None, int]
    drawing: str | None


def facts_of_templates(templates: Mapping[str, str], **values: object) -> Facts:
    """Return each fact with a text; `templates`: name of the fact -> template."""
    texts = {name: fill_text(template, **values) for name, template in templates.items()}
    return {name: text for name, text in texts.items() if text}


def machine_section(run: Run) -> MachineSection:
    """Return what is in the machine.

    Raises:
        UserError: the drawing is not an SVG file.
    """
    topology, file = run.topology, run.drawing_file
    drawing = svg_as_image(file.read_bytes(), "topology", str(file)) if file else None
    return MachineSection(
        facts=facts_of_templates(
            fixed_texts("machine"),
            topology=topology,
            system=run.system,
            drives=Counter(
                ((each.model or "NVMe drive").strip(), each.size_bytes) for each in topology.drives
            ),
            gpus=Counter(gpu.model or gpu.name or "unknown" for gpu in topology.compute_gpus),
        ),
        nodes=topology.nodes,
        drives_of_nodes=Counter(drive.node for drive in topology.drives),
        drawing=drawing,
    )


def host_state_section(run: Run) -> FactGroups:
    """Return the versions of programs, and all values of the system component."""
    groups: dict[str, dict[str, object]] = {"general": {}}
    for key, value in run.system.items():
        if isinstance(value, Mapping):
            groups[key] = dict(value)
        elif key != "component":
            groups["general"][key] = value
    groups.pop("tools", None)
    state = {"Programs": _programs(run)}
    for key, values in groups.items():
        if values:
            title = key_as_words(key)
            state[title[:1].upper() + title[1:]] = {
                key_as_words(name): component_value_text(name, value)
                for name, value in values.items()
            }
    return state


def _programs(run: Run) -> Facts:
    """Return the version of each program, or several versions if records differ."""
    versions: dict[str, dict[str, None]] = defaultdict(dict)
    for programs in (run.system.get("tools"), *(each.programs for each in run.summaries)):
        for name, version in programs.items() if isinstance(programs, Mapping) else ():
            versions[name][str(version)] = None
    versions["chaosity"] = {__version__: None}
    return {name: ", ".join(found) for name, found in sorted(versions.items())}
