"""Make profiles anonymous: only listed kinds of facts are published.

Hosts get random names. Drives and GPUs get numbers. A text is published only if it is a name in
this project's own files (an experiment, a benchmark, a label), the name of a place that any machine
can have (`node3`), or the name of a product. All other texts are removed, since they can identify a
site. Reasons of failures contain paths and command lines. Names of components contain addresses and
serial numbers. Tables of the firmware contain serial numbers, and people's notes can contain
anything.

Vendors and people can write anything into the name of a product: an address, a path, an asset
number. So a product name is published only if it matches one of the known forms of product names.
No form has room for an e-mail address, a path, a name with dots or a UUID.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import (
    BENCHMARKS_FOLDER,
    EXPERIMENTS_FOLDER,
    PUBLISHED_FOLDER,
    yaml_file_names,
)
from chaosity.place_names import name_of_spread_target, parse_place_name
from chaosity.store.profile_database import PROFILE_KEYS, PROFILE_TABLES, ProfileTables
from chaosity.store.tidy_table_parquet import rows_to_table
from chaosity.topology.topology_discovery import MEMORY_KINDS

_NUMBERS_PATTERN = re.compile(r"[\d,-]{0,400}")
_CONFIGURATION_PATTERN = re.compile(
    r"(nps\d|snc\d|l3-as-numa|[\d-]{1,9}nodes?-(per-package|over-packages)|default|published)"
    r"(-flat|-cache|-hybrid)?"
)
_ANY_NAME_PATTERN = re.compile(r".{1,100}")
# The public part of a kernel release is the numbers at its begin: 6.1.0-18 of 6.1.0-18-amd64. The
# text after these numbers can be any name.
_KERNEL_RELEASE_PATTERN = re.compile(r"\d+(\.\d+)*(-\d+(\.\d+)*)?")
_DAY_PATTERN = re.compile(r"\d{4}-\d\d-\d\d")
_PUBLIC_RELATIONS = {"same_node", "same_nodes", "same_package", "other_package", "unknown"}
_PUBLIC_KINDS_OF_PLACES = {
    *("pu", "core", "l3", "core_kind", "node", "nodes", "package", "machine", "threads", "packed"),
    *("spread", "others", "interleave", "drive", "first_of_node", "all_of_node", "all_of_nodes"),
    *("all", "first_of_package", "all_of_package", "none", "file", "opencl", "policy"),
}
_DEVICE_KINDS = {"drive", "gpu"}
_PUBLIC_STATUSES = {"valid", "failed", "missing"}
# Facts of a topology that describe how the machine is built.
_PUBLIC_TOPOLOGY_KEYS = (
    "packages",
    "cores",
    "pus",
    "cache_line_bytes",
    "restricted",
    "configuration",
)
_PUBLIC_HOST_KEYS = (
    *("cpu_model", "cpu_vendor", "cpu_family", "cpu_model_number", "cpu_stepping"),
    *("architecture", "smt", "hypervisor"),
)
_PUBLIC_CACHE_KEYS = ("level", "kind", "size_bytes", "pus", "cpus", "index")
_PUBLIC_KEYS_OF_PARTS = {
    "nodes": (
        *("os_index", "package", "cpus", "usable_cpus", "memory_bytes", "present_bytes", "kind"),
        *("tier", "initiator", "target", "memory_side_cache_bytes"),
    ),
    "caches": _PUBLIC_CACHE_KEYS,
    "l3_domains": (*_PUBLIC_CACHE_KEYS, "nodes"),
    "nics": ("kind", "model", "node", "link_bytes_per_second"),
}
# Columns that are published unchanged, because they have only numbers or names of this project.
_COLUMNS_PUBLISHED_UNCHANGED = {
    *("packages", "cores", "pus", "nodes", "memory_bytes", "node", "size_bytes"),
    *("link_bytes_per_second", "replicate", "order", "threads", "drives", "file_backed"),
    *("distance", "metric", "value"),
}
# A part of a word in a product name: letters, or digits with or without letters. A part with digits
# has up to 17 signs in the model name of a drive (MTFDKCC15T3TFR), and up to 8 signs in the model
# name of a processor (5995WX).
_LETTERS_PATTERN = r"[A-Za-z]{1,15}(?![A-Za-z0-9])"
_WORD_WITH_DIGITS_PATTERN = r"(?=[A-Za-z]*\d)[A-Za-z0-9]{{1,{most}}}(?![A-Za-z0-9])"
_TRADEMARK_PATTERN = r"(?:\((?:R|TM|r|tm)\))?\+?"


def _pattern_of_words(most: int) -> str:
    """Return a regular expression for words whose parts with digits have at most `most` signs."""
    part = f"(?:{_LETTERS_PATTERN}|{_WORD_WITH_DIGITS_PATTERN.format(most=most)})"
    word = (
        rf"(?:{part}(?:-{part}){{0,2}}{_TRADEMARK_PATTERN}|\d{{1,4}}\.\d{{1,2}}[A-Za-z]{{0,2}}\+?)"
    )
    return rf"{word}(?:[ _](?:{word}|\({part}\))){{0,9}}"


# Examples: Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz; Intel Xeon Processor (Skylake, IBRS).
_PROCESSOR_MODEL_PATTERN = re.compile(
    rf"{_pattern_of_words(8)}(?: \([A-Za-z0-9-]{{1,20}}(?:, [A-Za-z]{{1,20}})*\))?"
    r"(?: @ \d\.\d{1,2}GHz)?"
)
_DEVICE_MODEL_PATTERN = re.compile(_pattern_of_words(17))
# A version of a device's firmware has up to 8 signs, as NVMe allows. No pattern for a version
# accepts four numbers, since four numbers could be an IP address.
_DEVICE_FIRMWARE_PATTERN = re.compile(r"(?=.{1,8}\Z)(?=.*\d)[A-Za-z0-9]+([._+-][A-Za-z0-9]+){0,2}")
_VERSION_PATTERN = re.compile(r"\d{1,3}(\.\d{1,4}){0,2}(?!\.?\d)((a|b|rc|\.dev|\.post)\d{1,5})?")
# Names of vendors without the dot at the end of the name, because some tools remove this dot.
_KNOWN_BIOS_VENDORS = (
    *("AMI", "American Megatrends Inc", "American Megatrends International, LLC", "Amazon EC2"),
    *("ASUSTeK COMPUTER INC", "Apple Inc", "Bochs", "Cisco Systems, Inc", "Dell Inc", "EDK II"),
    *("EFI Development Kit II / OVMF", "FUJITSU", "GIGABYTE", "Google", "HP", "HPE", "Huawei"),
    *("Hewlett Packard Enterprise", "IBM", "Insyde Corp", "Inspur", "Intel Corp", "Lenovo"),
    *("Intel Corporation", "Microsoft Corporation", "NVIDIA", "Phoenix Technologies Ltd", "QEMU"),
    *("Quanta", "SeaBIOS", "Silicon Graphics International Corp", "Supermicro", "U-Boot", "Xen"),
    *("VMware, Inc", "coreboot", "innotek GmbH"),
)
_BIOS_VENDOR_PATTERN = re.compile(
    rf"({'|'.join(sorted(map(re.escape, _KNOWN_BIOS_VENDORS), key=len, reverse=True))})\.?(?= |\Z)",
    re.I,
)
_BIOS_VERSION_PATTERN = re.compile(r"[A-Za-z]{0,2}\d{1,3}(\.\d{1,4}){0,2}[a-z]?")
_MICROCODE_PATTERN = re.compile(r"microcode 0x[0-9a-f]{1,8}")
_MEMORY_MODULES_PATTERN = re.compile(
    r"\d{1,4} x (No Module Installed|\d{1,6} [kMGT]i?B( (LP)?DDR\d?[A-Z]?| HBM\d?[A-Z]?| DRAM)?"
    r"( \d{3,5} (MT/s|MHz))?)"
)
# A rule takes a text of a column, and returns the text to publish, or None for no text.
_PublicTextOrNone = Callable[[str], str | None]


def anonymise_profiles(
    tables: ProfileTables, salt: bytes, *, with_names: bool = False
) -> ProfileTables:
    """Return profiles without anything that identifies a site.

    `salt` has random bytes, new for each bundle, so that nobody can find a name by hashing guesses.
    `with_names` keeps the names of hosts, and the serial numbers and slots of drives.
    """

    def alias(text: str, digits: int) -> str:
        return hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()[:digits]

    parts = []
    for profile in sorted(tables["profiles"]["id"]):
        own = {name: rows[rows[PROFILE_KEYS[name]] == profile] for name, rows in tables.items()}
        rows = own["measurements"]
        own["measurements"] = rows[rows["metric"].isin(_names_in_shipped_files()["metric"])]
        host = own["profiles"]["host"].iloc[0]
        public = {
            **dict.fromkeys(("id", "profile"), alias(profile, 16)),
            "host": host if with_names else f"host-{alias(host, 8)}",
        }
        rules = _publication_rules(own, with_names)
        parts.append({name: _published_rows(own[name], name, public | rules[name]) for name in own})
    return {name: pd.concat([part[name] for part in parts]) for name in PROFILE_TABLES}


def _published_rows(rows: pd.DataFrame, name: str, public: Mapping[str, object]) -> pd.DataFrame:
    """Return rows of a table without the values of columns that are not published.

    `public` maps a column to the values to publish, or to a rule: a function that takes a text of
    the column and returns the text to publish.
    """
    found: dict[str, Any] = {
        column: rows[column] for column in _COLUMNS_PUBLISHED_UNCHANGED & {*rows}
    }
    for column, value in public.items():
        found[column] = value
        if callable(value):
            texts = rows[column].dropna().unique()
            found[column] = rows[column].map({text: value(text) for text in texts})
    table = pd.DataFrame(found, index=rows.index)
    return rows_to_table(table, PROFILE_TABLES[name])


def _publication_rules(own: ProfileTables, with_names: bool) -> dict[str, dict[str, object]]:
    """Return table -> column -> rule or values to publish, for all tables of one profile."""
    shipped, (components, rows) = (
        _names_in_shipped_files(),
        (own["components"], own["measurements"]),
    )
    devices = _device_aliases(components, rows, with_names)
    serials = [[text] if isinstance(text, str) else [] for text in components["serial"]]

    def public_place(column: str) -> _PublicTextOrNone:
        alias = _alias_function(f"{column}_")
        return lambda name: _public_name(name, devices, shipped["word"]) or alias(name)

    def shipped_name(column: str) -> _PublicTextOrNone:
        alias = _alias_function(f"own_{column}_")
        return lambda name: name if name in shipped[column] else alias(name)

    # Each point of an experiment gets a number as its name, since its loads describe the point.
    numbers = rows.groupby(["experiment", "point"], sort=True).ngroup() + 1
    experiment = shipped_name("experiment")
    return {
        "profiles": {
            "origin": "published",
            "configuration": _rule_of_pattern(
                _ANY_NAME_PATTERN if with_names else _CONFIGURATION_PATTERN
            ),
            "cpu_model": public_processor_model,
            "memory": public_memory,
            "kernel": lambda text: (
                found[0] if (found := _KERNEL_RELEASE_PATTERN.match(text)) else None
            ),
            "firmware": public_host_firmware,
            **dict.fromkeys(("measured_from", "measured_to"), _day_of_time),
            "chaosity_version": public_version,
            "topology": lambda text: json.dumps(
                topology_without_private_facts(json.loads(text)), sort_keys=True
            ),
        },
        "components": {
            "component": devices.get,
            "kind": _rule_of_allowed_texts(_DEVICE_KINDS, "other"),
            "model": list(map(public_device_model, components["model"], serials)),
            "firmware": list(map(public_device_firmware, components["firmware"], serials)),
            "serial": components["serial"] if with_names else None,
        },
        "measurements": {
            "configuration": _rule_of_pattern(_CONFIGURATION_PATTERN),
            "experiment": experiment,
            "point": rows["experiment"].map(experiment) + "_" + numbers.astype(str),
            **{name: shipped_name(name) for name in ("load", "benchmark", "kernel")},
            "measured_at": _day_of_time,
            "status": _rule_of_allowed_texts(_PUBLIC_STATUSES, "missing"),
            "category": _rule_of_allowed_texts(shipped["category"], "other"),
            **{name: public_place(name) for name in ("initiator", "target")},
            **dict.fromkeys(
                ("initiator_kind", "target_kind"),
                _rule_of_allowed_texts(_PUBLIC_KINDS_OF_PLACES, "other"),
            ),
            **dict.fromkeys(
                ("initiator_nodes", "target_nodes", "seen_nodes"),
                _rule_of_pattern(_NUMBERS_PATTERN, None),
            ),
            "relation": _rule_of_allowed_texts(_PUBLIC_RELATIONS, "unknown"),
            "label": lambda text: (
                ", ".join(part for part in text.split(", ") if part in shipped["label"]) or None
            ),
            **dict.fromkeys(
                ("factors", "levels"),
                lambda text: _public_levels_json(text, devices, shipped["word"]),
            ),
        },
    }


def _rule_of_pattern(form: re.Pattern[str], other: str | None = "another") -> _PublicTextOrNone:
    return lambda text: text if form.fullmatch(text) else other


def _rule_of_allowed_texts(allowed: Container[str], other: str) -> _PublicTextOrNone:
    return lambda text: text if text in allowed else other


def _day_of_time(time: str) -> str | None:
    """Return the date of a time stamp without its time of day, which is private."""
    return time[:10] if _DAY_PATTERN.fullmatch(time[:10]) else None


def _alias_function(prefix: str) -> Callable[[str], str]:
    """Return a function that maps each name to `prefix` and a number, in the order of first use."""
    known: dict[str, str] = {}
    return lambda name: known.setdefault(name, f"{prefix}{len(known) + 1}")


def _device_aliases(
    components: pd.DataFrame, rows: pd.DataFrame, with_names: bool
) -> dict[str, str]:
    """Return name -> public name of each drive and GPU; public names are numbered by name."""
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
    """Return whether a name is "none" or the name of a place that any machine can have."""
    place = parse_place_name(name)
    return name == "none" or (place is not None and not place.may_reveal_host)


def topology_without_private_facts(topology: Mapping[str, Any]) -> dict[str, object]:
    """Return those facts of a topology's JSON that say how the machine is built."""
    found = _public_facts(topology, _PUBLIC_TOPOLOGY_KEYS) | {
        "host": _public_facts(topology.get("host") or {}, _PUBLIC_HOST_KEYS)
    }
    for name, keys in _PUBLIC_KEYS_OF_PARTS.items():
        items = topology.get(name) or []
        found[name] = [_public_facts(item, [key for key in keys if key in item]) for item in items]
    if isinstance(distances := topology.get("distances"), Mapping):
        found["distances"] = _public_facts(distances, ("nodes", "matrix"))
    return found


def public_processor_model(text: object) -> str | None:
    """Return `text` if it has the form of a processor's model name, else None."""
    return (
        text if isinstance(text, str) and _PROCESSOR_MODEL_PATTERN.fullmatch(text[:101]) else None
    )


def public_device_model(text: object, private: Collection[str] = ()) -> str | None:
    """Return `text` if it has the form of a drive's or GPU's model name, else None.

    Model numbers and serial numbers have the same form. So the result is None if `text` contains a
    text in `private`, such as the device's serial number.
    """
    return _text_unless_private(text, _DEVICE_MODEL_PATTERN, private)


def public_device_firmware(text: object, private: Collection[str] = ()) -> str | None:
    """Return `text` if it has the form of a version of a device's firmware, else None."""
    return _text_unless_private(text, _DEVICE_FIRMWARE_PATTERN, private)


def _text_unless_private(
    text: object, form: re.Pattern[str], private: Collection[str]
) -> str | None:
    if not isinstance(text, str) or not form.fullmatch(text[:101]):
        return None
    secrets = (secret.lower() for secret in private if secret)
    return None if any(secret in text.lower() for secret in secrets) else text


def public_host_firmware(text: object) -> str | None:
    """Return the vendor (if known), version and microcode in a text on the host's firmware."""
    if not isinstance(text, str):
        return None
    vendor = _BIOS_VENDOR_PATTERN.match(text)
    words = text[vendor.end() if vendor else 0 :].split()
    found = [vendor[0]] if vendor else []
    found += [word for word in words[:1] if vendor and _BIOS_VERSION_PATTERN.fullmatch(word)]
    found += [end for end in (" ".join(words[-2:]),) if _MICROCODE_PATTERN.fullmatch(end)]
    return " ".join(found) or None


def public_memory(text: object) -> str | None:
    """Return the parts of a text of the form "16 x 32 GB DDR4 3200 MT/s"; None without any."""
    kinds = text.split(", ") if isinstance(text, str) else []
    return ", ".join(kind for kind in kinds if _MEMORY_MODULES_PATTERN.fullmatch(kind)) or None


def public_version(text: object) -> str | None:
    """Return the public part of a version of Chaosity: 0.1.0 of 0.1.0+g129bb35a."""
    found = _VERSION_PATTERN.match(text) if isinstance(text, str) else None
    return found[0] if found else None


def _public_facts(document: Mapping[str, object], keys: Iterable[str]) -> dict[str, object]:
    found = {key: _public_value(document.get(key)) for key in keys}
    model = {"model": public_device_model(document.get("model"))}
    return found | model if "model" in found else found


def _public_value(value: object) -> object:
    """Return a number, or a text that is a number or has a processor's name form; else None."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, list):
        return [_public_value(item) for item in value]
    is_number = isinstance(value, str) and _NUMBERS_PATTERN.fullmatch(value)
    return value if is_number else public_processor_model(value)


def _public_name(name: str, devices: Mapping[str, str], words: Container[str]) -> str | None:
    """Return the public name of a device, a place or a word of the project's files, else None."""
    return devices.get(name) or (name if _is_public_place(name) or name in words else None)


def _public_levels_json(text: str, devices: Mapping[str, str], words: Container[str]) -> str:
    """Return the levels of a JSON text as JSON again, only for factors in `words`."""
    try:
        levels = dict(json.loads(text))
    except (ValueError, TypeError):
        return "{}"
    found = {
        name: (_public_name(level, devices, words) or "other") if isinstance(level, str) else level
        for name, level in levels.items()
        if name in words and isinstance(level, (str, bool, int, float))
    }
    return json.dumps(found, sort_keys=True)


@cache
def _names_in_shipped_files() -> dict[str, frozenset[str]]:
    """Return kind of name (experiment, benchmark, ...) -> all its names in the project's files."""
    benchmarks, experiments, forms = (
        [read_yaml(folder / f"{name}.yaml") for name in yaml_file_names(folder)]
        for folder in (BENCHMARKS_FOLDER, EXPERIMENTS_FOLDER, PUBLISHED_FOLDER)
    )
    columns = [form.get("columns", {}) for form in forms]
    designs = [design for document in experiments for design in document["designs"].values()]
    loads = [load for design in designs for load in design["loads"].items()]
    # Words that are published: names of factors, and levels that are texts.
    words = {"bytes", "pages", "share", "mode", "responder", "placement", "alone", "serial"}
    words |= {"concurrent", "both_packages", "same_l3_domain", *_PUBLIC_RELATIONS}
    words |= {"smt", "one_thread_per_core", "all_siblings"}
    words |= {name_of_spread_target(kind) for kind in MEMORY_KINDS}
    for document in (*experiments, *forms):
        words |= {*document.get("factors", {}), *document.get("designs", {})}
    for _, load in loads:
        targets = load["target"] if isinstance(load["target"], list) else [load["target"]]
        words |= {policy for target in targets for policy in target.get("policies", ())}
        words |= {*load.get("kernel", ())}  # a factor can be the kernel of a load
        for name, levels in load.get("vary", {}).items():
            words |= {name, *(level for level in levels if isinstance(level, str))}

    def _names_under_key(key: str, *documents: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        """Return the values of `key` in all documents, without values that contain a template."""
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
