"""What of a profile may leave the house: a list of what is let through, never one of what is not.

Names of hosts become random ones, drives and GPUs become numbers, and every text is either one that
this project itself ships (an experiment, a benchmark, a label), one that names a place in any
machine (`node3`), or the name of a product. All else is left out: reasons of failures hold paths
and command lines, names of components hold addresses and serials, firmware's tables hold serials,
people's notes hold anything.
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

from chaosity.config import BENCHMARKS, EXPERIMENTS, PUBLISHED, read_yaml, yaml_names
from chaosity.store.profile_database import (
    COMPONENT_COLUMNS,
    MEASUREMENT_COLUMNS,
    PROFILE_COLUMNS,
    Parts,
    frame,
)

# Names of places in a machine, as design/host_resources.py makes them.
_GROUP = r"((pu|core|l3_|node|package|kind)\d{1,6}|(efficiency|performance)_cores|machine)"
_UNITS = rf"({_GROUP}(_(threads|packed|spread)\d{{1,6}})?|nodes?[\d,-]{{1,200}})"
_PLACE = re.compile(
    rf"{_UNITS}|{_GROUP}(_{_GROUP}){{0,20}}_without_{_UNITS}"
    r"|(package\d{1,6}|nodes?[\d,-]{1,200}|all|unknown)drives\d{0,4}"
    r"|file\d{1,3}|opencl\d{1,3}|none"
)
_NUMBERS = re.compile(r"[\d,-]{0,400}")
_CONFIGURATION = re.compile(
    r"(nps\d|snc\d|l3-as-numa|[\d-]{1,9}nodes?-(per-package|over-packages)|default|published)"
    r"(-flat|-cache|-hybrid)?"
)
# Names of products: processors, drives, GPUs, memory modules, firmware.
_PRODUCT = re.compile(r"[A-Za-z0-9 ().,+/@_-]{1,100}")
# 6.1.0-18 of 6.1.0-18-amd64: who builds a kernel gives it any name.
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


class Names:
    """New names for old ones: the same one for the same, and no way back.

    Args:
        prefix: of the new names, which are numbered as they come.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix, self._known = prefix, {}

    def __call__(self, name: str) -> str:
        """The new name."""
        return self._known.setdefault(name, f"{self._prefix}{len(self._known) + 1}")


def anonymous(parts: Parts, salt: bytes, *, with_names: bool = False) -> Parts:
    """Profiles as others may see them.

    Args:
        parts: rows of some profiles.
        salt: random, of this bundle alone, so that nobody can try names until one fits.
        with_names: leave hosts' names, drives' serials and slots as they are.
    """

    def alias(text: str, digits: int) -> str:
        return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()[:digits]

    profiles, components, measurements = [], [], []
    for _, profile in parts.profiles.sort_values("id").iterrows():
        identity = alias(profile["id"], 16)
        host = profile["host"] if with_names else f"host-{alias(profile['host'], 8)}"
        own = parts.components[parts.components["profile"] == profile["id"]]
        rows = parts.measurements[parts.measurements["profile"] == profile["id"]]
        devices = _devices(own, rows, with_names)
        names = {"id": identity, "host": host}
        profiles.append({**_profile(profile, with_names), **names})
        for _, one in own.iterrows():
            components.append({**_component(one, devices, with_names), "profile": identity})
        measurements.append(_measurements(rows, devices).assign(profile=identity, host=host))
    return Parts(
        profiles=frame(profiles, PROFILE_COLUMNS),
        components=frame(components, COMPONENT_COLUMNS),
        measurements=pd.concat(measurements)[list(MEASUREMENT_COLUMNS)].astype(MEASUREMENT_COLUMNS),
    )


def _devices(own: pd.DataFrame, rows: pd.DataFrame, with_names: bool) -> dict[str, str]:
    """New names of drives and GPUs, numbered by their slots."""
    drives = set(own.loc[own["kind"] == "drive", "component"])
    drives |= {name for name in rows.loc[rows["target_kind"] == "drive", "target"].dropna()
               if not _PLACE.fullmatch(name)}  # fmt: skip
    gpus = set(own.loc[own["kind"] == "gpu", "component"])
    if with_names:
        return {name: name for name in drives | gpus}
    found = {name: f"drive{number}" for number, name in enumerate(sorted(drives), start=1)}
    return found | {name: f"gpu{number}" for number, name in enumerate(sorted(gpus), start=1)}


def _text(value: object, form: re.Pattern[str]) -> str | None:
    """A text that has a form, else nothing."""
    return value if isinstance(value, str) and form.fullmatch(value) else None


def _profile(profile: pd.Series, with_names: bool) -> dict[str, Any]:
    kernel = _KERNEL.match(str(profile["kernel"])) if pd.notna(profile["kernel"]) else None
    days = {key: str(profile[key])[:10] for key in ("measured_from", "measured_to")
            if pd.notna(profile[key])}  # fmt: skip
    products = ("cpu_model", "memory", "firmware", "chaosity_version")
    numbers = ("packages", "cores", "pus", "nodes", "memory_bytes")
    form = re.compile(r".{1,100}") if with_names else _CONFIGURATION
    topology = json.loads(profile["topology"]) if pd.notna(profile["topology"]) else {}
    return {
        "origin": "published",
        "configuration": _text(profile["configuration"], form) or "another",
        **{name: _text(profile[name], _PRODUCT) for name in products},
        **{name: profile[name] for name in numbers},
        **{name: _text(day, _DAY) for name, day in days.items()},
        "kernel": kernel[0] if kernel else None,
        "topology": json.dumps(public_topology(topology), sort_keys=True),
        "provenance": None,
        "fingerprint": None,
    }


def public_topology(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Of a topology's JSON what says how the machine is built, and no more."""
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
    """A number, a list of them, or a text that may name a product; else nothing."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, list):
        return [_value(one) for one in value]
    return _text(value, _PRODUCT) or _text(value, _NUMBERS)


def _component(one: pd.Series, devices: Mapping[str, str], with_names: bool) -> dict[str, Any]:
    return {
        "component": devices[one["component"]],
        "kind": one["kind"],
        "model": _text(one["model"], _PRODUCT),
        "firmware": _text(one["firmware"], _PRODUCT),
        **{name: one[name] for name in ("node", "size_bytes", "link_bytes_per_second")},
        "serial": one["serial"] if with_names else None,
    }


def _measurements(rows: pd.DataFrame, devices: Mapping[str, str]) -> pd.DataFrame:
    """The tidy table, column by column."""
    own = {kind: Names(f"own_{kind}_") for kind in ("experiment", "benchmark", "load", "kernel")}
    places = {"initiator": Names("initiator_"), "target": Names("target_")}
    shipped = _shipped()

    def place(kind: str) -> Callable[[str], str]:
        return lambda name: _known(name, devices, shipped["word"]) or places[kind](name)

    def known(kind: str) -> Callable[[str], str]:
        return lambda name: name if name in shipped[kind] else own[kind](name)

    def one_of(allowed: Iterable[str], other: str | None) -> Callable[[str], str | None]:
        return lambda text: text if text in allowed else other

    def form(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
        return lambda text: _text(text, pattern)

    rules: dict[str, Callable[[str], str | None]] = {
        "configuration": lambda text: _text(text, _CONFIGURATION) or "another",
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
        "measured_at": lambda text: _text(text[:10], _DAY),
    }
    rows = rows[rows["metric"].isin(shipped["metric"])]
    columns: dict[str, Any] = {
        name: rows[name] for name in ("replicate", "order", "threads", "drives", "file_backed",
                                      "distance", "metric", "value")
    }  # fmt: skip
    for name, rule in rules.items():
        texts = list(rows[name].dropna().unique())
        columns[name] = rows[name].map({text: rule(text) for text in texts})
    found = pd.DataFrame(columns, index=rows.index).assign(reason=None)
    return found.assign(point=_points(rows, found))


def _label(text: str, allowed: Iterable[str]) -> str | None:
    return ", ".join(part for part in text.split(", ") if part in allowed) or None


def _known(name: str, devices: Mapping[str, str], words: Container[str]) -> str | None:
    """What a device, a place or one of the project's own words is called; None of another name."""
    return devices.get(name) or _text(name, _PLACE) or (name if name in words else None)


def _levels(text: str, devices: Mapping[str, str], words: Container[str]) -> str:
    """Levels that are numbers, places or words of the shipped experiments."""
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
    """A number for each point of an experiment; its loads say what it is."""
    numbers = rows.groupby(["experiment", "point"], sort=True).ngroup()
    return public["experiment"].astype(str) + "_" + (numbers + 1).astype(str)


@cache
def _shipped() -> dict[str, frozenset[str]]:
    """All names that come with the project, by what they name."""
    benchmarks = [read_yaml(BENCHMARKS / f"{name}.yaml") for name in yaml_names(BENCHMARKS)]
    experiments = [read_yaml(EXPERIMENTS / f"{name}.yaml") for name in yaml_names(EXPERIMENTS)]
    forms = [read_yaml(PUBLISHED / f"{name}.yaml") for name in yaml_names(PUBLISHED)]
    columns = [form.get("columns", {}) for form in forms]
    designs = [design for one in experiments for design in one["designs"].values()]
    loads = [load for design in designs for load in design["loads"].items()]
    kernels = {name for one in benchmarks for name in one.get("kernels", {})}
    used = {name for _, load in loads for name in load.get("kernel", ())}
    # Factors and levels: their names, and the words that they take.
    words = {"bytes", "pages", "share", "mode", "responder", "placement", "alone", "serial",
             "concurrent", "both_packages", *_RELATIONS}  # fmt: skip
    words |= {name for one in experiments for part in ("factors", "designs")
              for name in one.get(part, {})}  # fmt: skip
    for _, load in loads:
        targets = load["target"] if isinstance(load["target"], list) else [load["target"]]
        words |= {policy for target in targets for policy in target.get("policies", ())}
        for name, levels in load.get("vary", {}).items():
            words |= {name, *(level for level in levels if isinstance(level, str))}
    for form in forms:
        words |= set(form.get("factors", {}))
    return {
        "experiment": frozenset(
            {*(one["experiment"] for one in experiments),
             *(form["experiment"] for form in forms if form.get("experiment"))}
        ),
        "benchmark": frozenset(
            {*(one["benchmark"] for one in benchmarks),
             *(one["benchmark"] for one in columns if "{" not in one.get("benchmark", "{"))}
        ),
        "category": frozenset(
            {*(one["category"] for one in benchmarks),
             *(one["category"] for one in columns if "{" not in one.get("category", "{"))}
        ),
        "load": frozenset(
            {*(name for name, _ in loads), *(form["load"] for form in forms if form.get("load"))}
        ),
        "kernel": frozenset(kernels | used),
        "metric": frozenset({name for one in benchmarks for name in one["metrics"]}),
        "label": frozenset({"file-backed", "published by others",
                            *(one["label"] for one in benchmarks if one.get("label"))}),
        "word": frozenset(words),
    }  # fmt: skip
