"""Makes profiles anonymous by lists of what may be published, never of what may not.

Hosts get random names, drives and GPUs get numbers. A text is published only when this project
ships it (an experiment, a benchmark, a label), or when it is the name of a place that exists in any
machine (`node3`), or the name of a product. Everything else is removed: reasons of failures contain
paths and command lines, names of components contain addresses and serials, firmware's tables
contain serials, and people's notes can contain anything.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from chaosity.checked_yaml_files import (
    BENCHMARKS,
    EXPERIMENTS,
    PUBLISHED,
    read_yaml,
    yaml_file_names,
)
from chaosity.place_names import parse_place_name
from chaosity.store.profile_database import (
    COMPONENT_COLUMNS,
    MEASUREMENT_COLUMNS,
    PROFILE_COLUMNS,
    ProfileTables,
)
from chaosity.store.tidy_table import Row, rows_to_table

_NUMBERS = re.compile(r"[\d,-]{0,400}")
_CONFIGURATION = re.compile(
    r"(nps\d|snc\d|l3-as-numa|[\d-]{1,9}nodes?-(per-package|over-packages)|default|published)"
    r"(-flat|-cache|-hybrid)?"
)
# Names of products: processors, drives, GPUs, memory modules, firmware.
_PRODUCT = re.compile(r"[A-Za-z0-9 ().,+/@_-]{1,100}")
# 6.1.0-18 of 6.1.0-18-amd64: the rest can be any name.
_KERNEL = re.compile(r"\d+(\.\d+)*(-\d+(\.\d+)*)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_RELATIONS = {"same_node", "same_nodes", "same_package", "other_package", "unknown"}
_KINDS = {
    *("pu", "core", "l3", "core_kind", "node", "nodes", "package", "machine", "threads", "packed"),
    *("spread", "others", "interleave", "drive", "first_of_node", "all_of_node", "all_of_nodes"),
    *("all", "first_of_package", "all_of_package", "none", "file", "opencl", "policy"),
}
_STATUS = {"valid", "failed", "missing"}
_NODE = (
    *("os_index", "package", "cpus", "usable_cpus", "memory_bytes", "present_bytes", "kind"),
    *("tier", "initiator", "target", "memory_side_cache_bytes"),
)
_HOST = (
    *("cpu_model", "cpu_vendor", "cpu_family", "cpu_model_number", "cpu_stepping"),
    *("architecture", "smt", "hypervisor"),
)
_TOPOLOGY = ("packages", "cores", "pus", "cache_line_bytes", "restricted", "configuration")
_CACHE = ("level", "kind", "size_bytes", "pus", "cpus", "index")


class _Aliases:
    """Gives new names to old names: equal names get equal aliases, and there is no way back.

    Args:
        prefix: of the new names, which are numbered in the order of their first use.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The new name."""
        return self._known.setdefault(name, f"{self._prefix}{len(self._known) + 1}")


def anonymise_profiles(
    tables: ProfileTables, salt: bytes, *, with_names: bool = False
) -> ProfileTables:
    """Profiles without anything that identifies a site.

    Args:
        tables: rows of some profiles.
        salt: random, for this bundle alone, so that nobody can find a name by trying names.
        with_names: keep names of hosts, and serials and slots of drives.
    """

    def alias(text: str, digits: int) -> str:
        return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()[:digits]

    profiles: list[Row] = []
    components: list[Row] = []
    measurements: list[pd.DataFrame] = []
    for _, profile in tables.profiles.sort_values("id").iterrows():
        identity = alias(profile["id"], 16)
        host = profile["host"] if with_names else f"host-{alias(profile['host'], 8)}"
        own = tables.components[tables.components["profile"] == profile["id"]]
        rows = tables.measurements[tables.measurements["profile"] == profile["id"]]
        devices = _device_aliases(own, rows, with_names)
        profiles.append({**_public_profile(profile, with_names), "id": identity, "host": host})
        for _, component in own.iterrows():
            row = _public_component(component, devices, with_names)
            components.append({**row, "profile": identity})
        public = _public_measurements(rows, devices)
        measurements.append(public.assign(profile=identity, host=host))
    return ProfileTables(
        profiles=rows_to_table(profiles, PROFILE_COLUMNS),
        components=rows_to_table(components, COMPONENT_COLUMNS),
        measurements=pd.concat(measurements)[list(MEASUREMENT_COLUMNS)].astype(MEASUREMENT_COLUMNS),
    )


def _device_aliases(
    components: pd.DataFrame, rows: pd.DataFrame, with_names: bool
) -> dict[str, str]:
    """New names of drives and GPUs, numbered by their slots."""
    drives = set(components.loc[components["kind"] == "drive", "component"])
    targets = rows.loc[rows["target_kind"] == "drive", "target"].dropna()
    drives |= {name for name in targets if not _is_public_place(name)}
    gpus = set(components.loc[components["kind"] == "gpu", "component"])
    if with_names:
        return {name: name for name in drives | gpus}
    found = {name: f"drive{number}" for number, name in enumerate(sorted(drives), start=1)}
    return found | {name: f"gpu{number}" for number, name in enumerate(sorted(gpus), start=1)}


def _is_public_place(name: str) -> bool:
    """Whether a name is one of a place that exists in any machine, or "none"."""
    place = parse_place_name(name)
    return name == "none" or (place is not None and not place.identifies_host)


def _text_of_form(value: object, form: re.Pattern[str]) -> str | None:
    """A text that has a form, else None."""
    return value if isinstance(value, str) and form.fullmatch(value) else None


def _public_profile(profile: pd.Series, with_names: bool) -> Row:
    kernel = _KERNEL.match(str(profile["kernel"])) if pd.notna(profile["kernel"]) else None
    days = {
        key: str(profile[key])[:10]
        for key in ("measured_from", "measured_to")
        if pd.notna(profile[key])
    }
    products = ("cpu_model", "memory", "firmware", "chaosity_version")
    numbers = ("packages", "cores", "pus", "nodes", "memory_bytes")
    form = re.compile(r".{1,100}") if with_names else _CONFIGURATION
    topology = json.loads(profile["topology"]) if pd.notna(profile["topology"]) else {}
    return {
        "origin": "published",
        "configuration": _text_of_form(profile["configuration"], form) or "another",
        **{name: _text_of_form(profile[name], _PRODUCT) for name in products},
        **{name: profile[name] for name in numbers},
        **{name: _text_of_form(day, _DAY) for name, day in days.items()},
        "kernel": kernel[0] if kernel else None,
        "topology": json.dumps(public_topology(topology), sort_keys=True),
        "provenance": None,
        "fingerprint": None,
    }


def public_topology(topology: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a topology's JSON that describe how the machine is built, and nothing else."""
    host = topology.get("host") or {}
    found: dict[str, Any] = {name: _value(topology.get(name)) for name in _TOPOLOGY}
    found["host"] = {name: _value(host.get(name)) for name in _HOST}
    found["nodes"] = _items(topology, "nodes", _NODE)
    found["caches"] = _items(topology, "caches", _CACHE)
    found["l3_domains"] = _items(topology, "l3_domains", (*_CACHE, "nodes"))
    if isinstance(distances := topology.get("distances"), Mapping):
        found["distances"] = {name: _value(distances.get(name)) for name in ("nodes", "matrix")}
    return found


def _items(topology: Mapping[str, Any], name: str, keys: Iterable[str]) -> list[dict[str, Any]]:
    listed = topology.get(name) or []
    return [{key: _value(item[key]) for key in keys if key in item} for item in listed]


def _value(value: Any) -> Any:
    """A number, a list of numbers, or a text that can be the name of a product; else None."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, list):
        return [_value(item) for item in value]
    return _text_of_form(value, _PRODUCT) or _text_of_form(value, _NUMBERS)


def _public_component(component: pd.Series, devices: Mapping[str, str], with_names: bool) -> Row:
    return {
        "component": devices[component["component"]],
        "kind": component["kind"],
        "model": _text_of_form(component["model"], _PRODUCT),
        "firmware": _text_of_form(component["firmware"], _PRODUCT),
        **{name: component[name] for name in ("node", "size_bytes", "link_bytes_per_second")},
        "serial": component["serial"] if with_names else None,
    }


def _public_measurements(rows: pd.DataFrame, devices: Mapping[str, str]) -> pd.DataFrame:
    """The tidy table, column by column."""
    own = {kind: _Aliases(f"own_{kind}_") for kind in ("experiment", "benchmark", "load", "kernel")}
    places = {"initiator": _Aliases("initiator_"), "target": _Aliases("target_")}
    shipped = _shipped()

    def place(kind: str) -> Callable[[str], str]:
        return lambda name: _known(name, devices, shipped["word"]) or places[kind](name)

    def known(kind: str) -> Callable[[str], str]:
        return lambda name: name if name in shipped[kind] else own[kind](name)

    def one_of(allowed: Iterable[str], other: str | None) -> Callable[[str], str | None]:
        return lambda text: text if text in allowed else other

    def form(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
        return lambda text: _text_of_form(text, pattern)

    rules: dict[str, Callable[[str], str | None]] = {
        "configuration": lambda text: _text_of_form(text, _CONFIGURATION) or "another",
        "experiment": known("experiment"),
        "status": one_of(_STATUS, "missing"),
        "load": known("load"),
        "benchmark": known("benchmark"),
        "category": one_of(shipped["category"], "other"),
        "kernel": known("kernel"),
        "initiator": place("initiator"),
        "initiator_kind": one_of(_KINDS, "other"),
        "initiator_nodes": form(_NUMBERS),
        "target": place("target"),
        "target_kind": one_of(_KINDS, "other"),
        "target_nodes": form(_NUMBERS),
        "relation": one_of(_RELATIONS, "unknown"),
        "seen_nodes": form(_NUMBERS),
        "label": lambda text: _label(text, shipped["label"]),
        "factors": lambda text: _levels(text, devices, shipped["word"]),
        "levels": lambda text: _levels(text, devices, shipped["word"]),
        "measured_at": lambda text: _text_of_form(text[:10], _DAY),
    }
    rows = rows[rows["metric"].isin(shipped["metric"])]
    columns: dict[str, Any] = {
        name: rows[name]
        for name in (
            "replicate",
            "order",
            "threads",
            "drives",
            "file_backed",
            "distance",
            "metric",
            "value",
        )
    }
    for name, rule in rules.items():
        texts = list(rows[name].dropna().unique())
        columns[name] = rows[name].map({text: rule(text) for text in texts})
    found = pd.DataFrame(columns, index=rows.index).assign(reason=None)
    return found.assign(point=_points(rows, found))


def _label(text: str, allowed: Iterable[str]) -> str | None:
    return ", ".join(part for part in text.split(", ") if part in allowed) or None


def _known(name: str, devices: Mapping[str, str], words: Container[str]) -> str | None:
    """The public name of a device, a place or a word that the project ships, else None."""
    return devices.get(name) or (name if _is_public_place(name) or name in words else None)


def _levels(text: str, devices: Mapping[str, str], words: Container[str]) -> str:
    """The levels that are numbers, places or words of the shipped experiments."""
    found: dict[str, Any] = {}
    try:
        levels = dict(json.loads(text))
    except (ValueError, TypeError):
        return "{}"
    for name, level in levels.items():
        if name not in words:
            continue
        if isinstance(level, (bool, int, float)):
            found[name] = level
        elif isinstance(level, str):
            found[name] = _known(level, devices, words) or "other"
    return json.dumps(found, sort_keys=True)


def _points(rows: pd.DataFrame, public: pd.DataFrame) -> pd.Series:
    """A numbered name for each point of an experiment; the loads describe the point."""
    numbers = rows.groupby(["experiment", "point"], sort=True).ngroup()
    return public["experiment"].astype(str) + "_" + (numbers + 1).astype(str)


@cache
def _shipped() -> dict[str, frozenset[str]]:
    """All names that the project ships, by their kind."""
    benchmarks = [read_yaml(BENCHMARKS / f"{name}.yaml") for name in yaml_file_names(BENCHMARKS)]
    experiments = [read_yaml(EXPERIMENTS / f"{name}.yaml") for name in yaml_file_names(EXPERIMENTS)]
    forms = [read_yaml(PUBLISHED / f"{name}.yaml") for name in yaml_file_names(PUBLISHED)]
    columns = [form.get("columns", {}) for form in forms]
    designs = [design for document in experiments for design in document["designs"].values()]
    loads = [load for design in designs for load in design["loads"].items()]
    # Names of factors, and levels that are words.
    words = {"bytes", "pages", "share", "mode", "responder", "placement", "alone", "serial"}
    words |= {"concurrent", "both_packages", *_RELATIONS}
    for document in (*experiments, *forms):
        words |= {*document.get("factors", {}), *document.get("designs", {})}
    for _, load in loads:
        targets = load["target"] if isinstance(load["target"], list) else [load["target"]]
        words |= {policy for target in targets for policy in target.get("policies", ())}
        for name, levels in load.get("vary", {}).items():
            words |= {name, *(level for level in levels if isinstance(level, str))}

    def names(key: str, *documents: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        """The values of a key; a form may have a template, which is not a name."""
        values = {document.get(key) for listed in documents for document in listed}
        return frozenset(value for value in values if value and "{" not in value)

    return {
        "experiment": names("experiment", experiments, forms),
        "benchmark": names("benchmark", benchmarks, columns),
        "category": names("category", benchmarks, columns),
        "load": names("load", forms) | {name for name, _ in loads},
        "kernel": frozenset(
            {
                *(name for document in benchmarks for name in document.get("kernels", {})),
                *(name for _, load in loads for name in load.get("kernel", ())),
            }
        ),
        "metric": frozenset(name for document in benchmarks for name in document["metrics"]),
        "label": names("label", benchmarks) | {"file-backed", "published by others"},
        "word": frozenset(words),
    }
