"""Describe the machine in words, from its topology and its system component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaosity.components.component_differences import component_value_text, key_as_words
from chaosity.text_templates import fill_text, fixed_texts
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_model import Topology

# A component's document, or a part of it, as read from its JSON file.
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Fact:
    """A line of a list: name and value."""

    name: str
    value: str


@dataclass(frozen=True)
class FactGroup:
    """A titled list of facts."""

    name: str
    facts: tuple[Fact, ...]


def facts_of_templates(templates: Mapping[str, str], **values: object) -> list[Fact]:
    """Return a fact for each template with a text; `templates`: name of the fact -> template."""
    texts = {name: fill_text(template, **values) for name, template in templates.items()}
    return [Fact(name, text) for name, text in texts.items() if text]


def machine_facts(topology: Topology, system: HostFacts) -> list[Fact]:
    """Return lines on the machine's processor, structure, memory, drives and kernel."""
    return facts_of_templates(
        fixed_texts("machine"),
        topology=topology,
        system=system,
        drives=Counter(
            ((each.model or "NVMe drive").strip(), each.size_bytes) for each in topology.drives
        ),
        gpus=Counter(gpu.model or gpu.name or "unknown" for gpu in topology.compute_gpus),
    )


def system_component_fact_groups(system: Mapping[str, object]) -> list[FactGroup]:
    """Return all values of the system component, in groups."""
    groups: dict[str, dict[str, object]] = {"general": {}}
    for key, value in system.items():
        if isinstance(value, Mapping):
            groups[key] = dict(value)
        elif key != "component":
            groups["general"][key] = value
    groups.pop("tools", None)
    titles = {key: key_as_words(key) for key, values in groups.items() if values}
    return [
        FactGroup(title[:1].upper() + title[1:], tuple(map(_fact, groups[key].items())))
        for key, title in titles.items()
    ]


def _fact(item: tuple[str, object]) -> Fact:
    return Fact(key_as_words(item[0]), component_value_text(*item))
