"""Make profiles anonymous: only listed kinds of facts are published.

Hosts get random names, drives and GPUs get numbers. A text is published only if it is a name in
this project's own files (an experiment, a benchmark, a label), the name of a place that exists in
any machine (`node3`), or the name of a product. All other texts are removed. Reasons of failures
contain paths and command lines. Names of components contain addresses and serial numbers. Tables of
the firmware contain serial numbers, and people's notes can contain anything.
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

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import BENCHMARKS, EXPERIMENTS, PUBLISHED, yaml_file_names
from chaosity.place_names import parse_place_name
from chaosity.store.profile_database import PROFILE_KEYS, TABLES, ProfileTables
from chaosity.store.public_product_names import (
    public_device_firmware,
    public_device_model,
    public_host_firmware,
    public_memory,
    public_processor,
    public_version,
)

_NUMBERS = re.compile(r"[\d,-]{0,400}")
_CONFIGURATION = re.compile(
    r"(nps\d|snc\d|l3-as-numa|[\d-]{1,9}nodes?-(per-package|over-packages)|default|published)"
    r"(-flat|-cache|-hybrid)?"
)
_ANY_NAME = re.compile(r".{1,100}")
# The public part of a kernel release: 6.1.0-18 of 6.1.0-18-amd64. The rest can be any name.
_KERNEL = re.compile(r"\d+(\.\d+)*(-\d+(\.\d+)*)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_RELATIONS = {"same_node", "same_nodes", "same_package", "other_package", "unknown"}
_KINDS = {
    *("pu", "core", "l3", "core_kind", "node", "nodes", "package", "machine", "threads", "packed"),
    *("spread", "others", "interleave", "drive", "first_of_node", "all_of_node", "all_of_nodes"),
    *("all", "first_of_package", "all_of_package", "none", "file", "opencl", "policy"),
}
_DEVICES = {"drive", "gpu"}
_STATUS = {"valid", "failed", "missing"}
# Facts of a topology that describe how the machine is built.
_TOPOLOGY = ("packages", "cores", "pus", "cache_line_bytes", "restricted", "configuration")
_HOST = (
    *("cpu_model", "cpu_vendor", "cpu_family", "cpu_model_number", "cpu_stepping"),
    *("architecture", "smt", "hypervisor"),
)
_CACHE = ("level", "kind", "size_bytes", "pus", "cpus", "index")
_PARTS = {
    "nodes": (
        *("os_index", "package", "cpus", "usable_cpus", "memory_bytes", "present_bytes", "kind"),
        *("tier", "initiator", "target", "memory_side_cache_bytes"),
    ),
    "caches": _CACHE,
    "l3_domains": (*_CACHE, "nodes"),
    "nics": ("kind", "model", "node", "link_bytes_per_second"),
}
# Columns that are published as they are: numbers, and names that this project gives.
_UNCHANGED = {
    *("packages", "cores", "pus", "nodes", "memory_bytes", "node", "size_bytes"),
    *("link_bytes_per_second", "replicate", "order", "threads", "drives", "file_backed"),
    *("distance", "metric", "value"),
}
# A function that returns what is published of a text, or None.
_Rule = Callable[[str], str | None]


def anonymise_profiles(
    tables: ProfileTables, salt: bytes, *, with_names: bool = False
) -> ProfileTables:
    """Return profiles without anything that identifies a site.

    Args:
        tables: rows of the profiles.
        salt: random bytes for this bundle only, so that nobody can find a name by trying names.
        with_names: keep names of hosts, and serials and slots of drives.
    """

    def _alias(text: str, digits: int) -> str:
        return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()[:digits]

    parts = []
    for profile in sorted(tables["profiles"]["id"]):
        own = {name: rows[rows[PROFILE_KEYS[name]] == profile] for name, rows in tables.items()}
        rows = own["measurements"]
        own["measurements"] = rows[rows["metric"].isin(_shipped()["metric"])]
        host = own["profiles"]["host"].iloc[0]
        public = {
            **dict.fromkeys(("id", "profile"), _alias(profile, 16)),
            "host": host if with_names else f"host-{_alias(host, 8)}",
        }
        parts.append(
            {
                name: _published_rows(own[name], TABLES[name], {**public, **columns})
                for name, columns in _public_columns(own, with_names).items()
            }
        )
    return {name: pd.concat([part[name] for part in parts]) for name in TABLES}


def _published_rows(
    rows: pd.DataFrame, columns: Mapping[str, str], public: Mapping[str, object]
) -> pd.DataFrame:
    """Return rows with the columns `public` and those that are published as they are.

    All other columns are empty. A rule in `public` gives what is published of the column's texts.
    """
    found: dict[str, Any] = {name: rows[name] for name in columns if name in _UNCHANGED}
    for name, value in public.items():
        found[name] = value
        if callable(value):
            texts = rows[name].dropna().unique()
            found[name] = rows[name].map({text: value(text) for text in texts})
    table = pd.DataFrame(found, index=rows.index)
    typed: pd.DataFrame = table.reindex(columns=list(columns)).astype(dict(columns))
    return typed


def _public_columns(own: ProfileTables, with_names: bool) -> dict[str, dict[str, object]]:
    """Return table -> column -> its rule, or its values, for the tables of one profile."""
    shipped, (components, rows) = _shipped(), (own["components"], own["measurements"])
    devices = _device_aliases(components, rows, with_names)
    serials = [[text] if isinstance(text, str) else [] for text in components["serial"]]

    def public_place(column: str) -> _Rule:
        alias = _aliases(f"{column}_")
        return lambda name: _known(name, devices, shipped["word"]) or alias(name)

    def shipped_name(column: str) -> _Rule:
        alias = _aliases(f"own_{column}_")
        return lambda name: name if name in shipped[column] else alias(name)

    # The points of an experiment get numbers, since the loads describe them.
    numbers = rows.groupby(["experiment", "point"], sort=True).ngroup() + 1
    experiment = shipped_name("experiment")
    return {
        "profiles": {
            "origin": "published",
            "configuration": _in_form(_ANY_NAME if with_names else _CONFIGURATION),
            "cpu_model": public_processor,
            "memory": public_memory,
            "kernel": lambda text: found[0] if (found := _KERNEL.match(text)) else None,
            "firmware": public_host_firmware,
            **dict.fromkeys(("measured_from", "measured_to"), _day),
            "chaosity_version": public_version,
            "topology": _public_topology,
        },
        "components": {
            "component": devices.get,
            "kind": _one_of(_DEVICES, "other"),
            "model": list(map(public_device_model, components["model"], serials)),
            "firmware": list(map(public_device_firmware, components["firmware"], serials)),
            "serial": components["serial"] if with_names else None,
        },
        "measurements": {
            "configuration": _in_form(_CONFIGURATION),
            "experiment": experiment,
            "point": rows["experiment"].map(experiment) + "_" + numbers.astype(str),
            **{name: shipped_name(name) for name in ("load", "benchmark", "kernel")},
            "measured_at": _day,
            "status": _one_of(_STATUS, "missing"),
            "category": _one_of(shipped["category"], "other"),
            **{name: public_place(name) for name in ("initiator", "target")},
            **dict.fromkeys(("initiator_kind", "target_kind"), _one_of(_KINDS, "other")),
            **dict.fromkeys(
                ("initiator_nodes", "target_nodes", "seen_nodes"), _in_form(_NUMBERS, None)
            ),
            "relation": _one_of(_RELATIONS, "unknown"),
            "label": lambda text: (
                ", ".join(part for part in text.split(", ") if part in shipped["label"]) or None
            ),
            **dict.fromkeys(
                ("factors", "levels"), lambda text: _levels(text, devices, shipped["word"])
            ),
        },
    }


def _in_form(form: re.Pattern[str], other: str | None = "another") -> _Rule:
    return lambda text: text if form.fullmatch(text) else other


def _one_of(allowed: Container[str], other: str) -> _Rule:
    return lambda text: text if text in allowed else other


def _day(time: str) -> str | None:
    """Return the day of a time; the time of day is private."""
    return time[:10] if _DAY.fullmatch(time[:10]) else None


def _aliases(prefix: str) -> Callable[[str], str]:
    """Return a function name -> new name; new names are numbered by the first use of a name."""
    known: dict[str, str] = {}
    return lambda name: known.setdefault(name, f"{prefix}{len(known) + 1}")


def _device_aliases(
    components: pd.DataFrame, rows: pd.DataFrame, with_names: bool
) -> dict[str, str]:
    """Return name -> new name of drives and GPUs, numbered by their slots."""
    drives = set(components.loc[components["kind"] == "drive", "component"])
    targets = rows.loc[rows["target_kind"] == "drive", "target"].dropna()
    drives |= {name for name in targets if not _is_public_place(name)}
    gpus = set(components.loc[components["kind"] == "gpu", "component"])
    return {
        name: name if with_names else f"{kind}{number}"
        for kind, names in (("drive", drives), ("gpu", gpus))
        for number, name in enumerate(sorted(names), start=1)
    }


def _is_public_place(name: str) -> bool:
    """Return whether any machine can have a place of this name, or the name is "none"."""
    place = parse_place_name(name)
    return name == "none" or (place is not None and not place.may_reveal_host)


def _public_topology(text: str) -> str:
    return json.dumps(topology_without_private_facts(json.loads(text)), sort_keys=True)


def topology_without_private_facts(topology: Mapping[str, Any]) -> dict[str, object]:
    """Return the facts of a topology's JSON that describe how the machine is built."""
    found = _facts(topology, _TOPOLOGY) | {"host": _facts(topology.get("host") or {}, _HOST)}
    for name, keys in _PARTS.items():
        items = topology.get(name) or []
        found[name] = [_facts(item, [key for key in keys if key in item]) for item in items]
    if isinstance(distances := topology.get("distances"), Mapping):
        found["distances"] = _facts(distances, ("nodes", "matrix"))
    return found


def _facts(document: Mapping[str, object], keys: Iterable[str]) -> dict[str, object]:
    found = {key: _value(document.get(key)) for key in keys}
    return (
        found | {"model": public_device_model(document.get("model"))} if "model" in found else found
    )


def _value(value: object) -> object:
    """Return a number, a list of numbers, or a text that can be of a processor; else None."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, list):
        return [_value(item) for item in value]
    return public_processor(value) or (
        value if isinstance(value, str) and _NUMBERS.fullmatch(value) else None
    )


def _known(name: str, devices: Mapping[str, str], words: Container[str]) -> str | None:
    """Return the public name of a device, a place or a word in the project's files, else None."""
    return devices.get(name) or (name if _is_public_place(name) or name in words else None)


def _levels(text: str, devices: Mapping[str, str], words: Container[str]) -> str:
    """Return the levels that are numbers, places or words in the project's experiments."""
    try:
        levels = dict(json.loads(text))
    except (ValueError, TypeError):
        return "{}"
    found = {
        name: (_known(level, devices, words) or "other") if isinstance(level, str) else level
        for name, level in levels.items()
        if name in words and isinstance(level, (str, bool, int, float))
    }
    return json.dumps(found, sort_keys=True)


@cache
def _shipped() -> dict[str, frozenset[str]]:
    """Return kind -> all names of this kind in the project's files."""
    benchmarks, experiments, forms = (
        [read_yaml(folder / f"{name}.yaml") for name in yaml_file_names(folder)]
        for folder in (BENCHMARKS, EXPERIMENTS, PUBLISHED)
    )
    columns = [form.get("columns", {}) for form in forms]
    designs = [design for document in experiments for design in document["designs"].values()]
    loads = [load for design in designs for load in design["loads"].items()]
    # Names of factors, and levels that are words.
    words = {"bytes", "pages", "share", "mode", "responder", "placement", "alone", "serial"}
    words |= {"concurrent", "both_packages", "same_l3_domain", *_RELATIONS}
    words |= {"smt", "one_thread_per_core", "all_siblings"}
    for document in (*experiments, *forms):
        words |= {*document.get("factors", {}), *document.get("designs", {})}
    for _, load in loads:
        targets = load["target"] if isinstance(load["target"], list) else [load["target"]]
        words |= {policy for target in targets for policy in target.get("policies", ())}
        words |= {*load.get("kernel", ())}  # a factor can be the kernel of a load
        for name, levels in load.get("vary", {}).items():
            words |= {name, *(level for level in levels if isinstance(level, str))}

    def _names_under_key(key: str, *documents: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        """Return the values of a key in the documents, without templates."""
        values = {document.get(key) for listed in documents for document in listed}
        return frozenset(value for value in values if value and "{" not in value)

    return {
        "experiment": _names_under_key("experiment", experiments, forms),
        "benchmark": _names_under_key("benchmark", benchmarks, columns),
        "category": _names_under_key("category", benchmarks, columns),
        "load": _names_under_key("load", forms) | {name for name, _ in loads},
        "kernel": frozenset(
            {
                *(name for document in benchmarks for name in document.get("kernels", {})),
                *(name for _, load in loads for name in load.get("kernel", ())),
            }
        ),
        "metric": frozenset(name for document in benchmarks for name in document["metrics"]),
        "label": _names_under_key("label", benchmarks) | {"file-backed", "published by others"},
        "word": frozenset(words),
    }
