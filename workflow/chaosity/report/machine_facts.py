"""Describe the machine in words, from its topology and its system component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaosity.text_templates import fill_text, fixed_texts
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_model import Topology
from chaosity.units import format_binary_bytes, format_quantity

# A component's document, or a part of it, as read from its JSON file.
Document = Mapping[str, Any]
# Items of longer lists, such as CPU flags, are only counted; the component file has all items.
_MOST_ITEMS = 12


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


def key_as_words(name: str) -> str:
    """Return a key as words, without its unit, since the value's text has the unit."""
    for suffix in ("_bytes", "_hertz", "_seconds"):
        name = name.removesuffix(suffix)
    text = name.replace("_", " ")
    return {"cpu": "CPU", "smt": "SMT", "numa": "NUMA"}.get(text, text)


def component_value_text(name: str, value: object) -> str:
    """Return a value of a component's document as text, with the unit that its key names."""
    if value is None or value == "":
        return "unknown" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return format_binary_bytes(value)
        return format_quantity(name, value) if name.endswith(("_hertz", "_seconds")) else str(value)
    if isinstance(value, list | tuple):
        if len(value) > _MOST_ITEMS:
            return f"{len(value)} values, see the component file"
        return ", ".join(component_value_text(name, item) for item in value) or "none known"
    if isinstance(value, Mapping):
        facts = map(_fact, value.items())
        return " ".join(f"{fact.name} {fact.value}" for fact in facts)
    return str(value)
