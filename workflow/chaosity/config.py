"""Reads and checks YAML files: config, experiments, benchmarks, host variables.

Every schema is closed, so that a key that nobody reads is an error with the file, the key and what
is allowed, before any job runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from chaosity.errors import UserError
from chaosity.units import has_unit

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "workflow" / "schemas"
CONFIG = ROOT / "workflow" / "config" / "config.yaml"
EXPERIMENTS = ROOT / "workflow" / "experiments"
BENCHMARKS = ROOT / "templates" / "benchmarks"
COUNTERS = ROOT / "templates" / "counters"
PUBLISHED = ROOT / "templates" / "published"
# Keys of the config that hold nothing but numbers. Snakemake (9.27) reads what stands within braces
# on its command line (--config 'levels={latency_by_size: {bytes: 3}}') as texts.
NUMBER_KEYS = ("sample", "levels", "stopping", "working_set")


@cache
def schema_validator(name: str) -> Draft202012Validator:
    """The validator of ``workflow/schemas/<name>.schema.yaml``."""
    text = (SCHEMAS / f"{name}.schema.yaml").read_text(encoding="utf-8")
    return Draft202012Validator(yaml.safe_load(text))


def read_yaml(path: Path) -> Any:
    """The document in a YAML file.

    Raises:
        UserError: it is missing or no YAML; the error names line and column.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", str(path)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise UserError(f"is no YAML: {getattr(error, 'problem', error)}", place) from error


def suggest_allowed(name: str, allowed: Iterable[str]) -> str:
    """What is allowed, and which of it was probably meant."""
    known = sorted(str(one) for one in allowed)
    near = difflib.get_close_matches(str(name), known, n=1)
    listed = f"allowed: {', '.join(known) or 'nothing'}"
    return f"did you mean {near[0]}? {listed}" if near else listed


def validation_user_error(error: ValidationError, where: str) -> UserError:
    """A validation error as one sentence: file, key, and what is allowed."""
    key = ".".join(str(step) for step in error.absolute_path) or "the document"
    place = f"{where}, {key}"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = error.schema.get("properties", {})
        extra = next(iter(set(error.instance) - set(allowed)))
        return UserError(f"there is no key {extra!r}", place, suggest_allowed(extra, allowed))
    if error.validator == "required":
        missing = next(k for k in error.validator_value if k not in error.instance)
        return UserError(f"the key {missing!r} is missing", place)
    if error.validator == "enum":
        remedy = suggest_allowed(error.instance, map(str, error.validator_value))
        return UserError(f"{error.instance!r} is not known", place, remedy)
    if error.validator == "type":
        return UserError(f"{error.instance!r} is not of type {error.validator_value}", place)
    return UserError(error.message, place)


def most_specific_error(error: ValidationError) -> ValidationError:
    """The most telling error below one; among alternatives, that of the one that fits best."""
    while error.context:
        nearest = max(error.context, key=lambda e: (len(e.absolute_path), e.validator == "enum"))
        error = nearest
    return error


def validate_document(document: Any, name: str, where: str) -> None:
    """Check a document against a closed schema.

    Raises:
        UserError: it does not fit; one sentence names the key and what is allowed.
    """
    error = best_match(schema_validator(name).iter_errors(document))
    if error is not None:
        raise validation_user_error(most_specific_error(error), where)


def yaml_names(folder: Path) -> list[str]:
    """Names of the YAML files in a folder, without the ending."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_named_yaml(folder: Path, name: str, where: str, what: str) -> dict[str, Any]:
    """The YAML file of an experiment or a benchmark, checked.

    Raises:
        UserError: there is none of this name, or its content is not as it should be.
    """
    if name not in yaml_names(folder):
        raise UserError(
            f"there is no {what} {name!r}", where, suggest_allowed(name, yaml_names(folder))
        )
    path = folder / f"{name}.yaml"
    document = read_yaml(path)
    validate_document(document, what, path_in_repository(path))
    if document[what] != name:
        raise UserError(f"names itself {document[what]!r}", path_in_repository(path))
    return document


def load_experiment(name: str, where: str = "config, experiments") -> dict[str, Any]:
    """An experiment's YAML file, checked with its figures."""
    document = load_named_yaml(EXPERIMENTS, name, where, "experiment")
    place = f"{path_in_repository(EXPERIMENTS)}/{name}.yaml"
    for index, figure in enumerate(document.get("figures", [])):
        validate_document(figure, "figure", f"{place}, figures.{index}")
    check_relative(document, place)
    return document


def check_relative(document: Mapping[str, Any], where: str) -> None:
    """Check what an experiment's derived metrics are called and of which load they are.

    Raises:
        UserError: there is no such load, a name is taken, or it says a unit, which no ratio has.
    """
    loads = {load for design in document["designs"].values() for load in design["loads"]}
    names = set()
    for index, entry in enumerate(document.get("relative", [])):
        place, name = f"{where}, relative.{index}", entry["name"]
        if entry["load"] not in loads:
            known = suggest_allowed(entry["load"], loads)
            raise UserError(f"there is no load {entry['load']!r}", place, known)
        if name in names or name == entry["metric"]:
            raise UserError(f"the name {name!r} is taken", place, "choose another")
        if has_unit(name):
            raise UserError(
                f"the name {name!r} says a unit, and a ratio has none", place,
                "leave the unit out, or let the name end in _ratio",
            )  # fmt: skip
        names.add(name)


def load_benchmark(name: str, where: str = "config, benchmarks") -> dict[str, Any]:
    """A benchmark's YAML file, checked.

    Raises:
        UserError: a metric asks for a counter that the file does not list.
    """
    document = load_named_yaml(BENCHMARKS, name, where, "benchmark")
    listed = document.get("counters", [])
    for metric, source in document["metrics"].items():
        if "counter" in source and source["counter"] not in listed:
            place = f"{path_in_repository(BENCHMARKS)}/{name}.yaml, metrics.{metric}"
            remedy = suggest_allowed(source["counter"], listed)
            raise UserError(f"{source['counter']!r} is not among `counters`", place, remedy)
    return document


def path_in_repository(path: Path) -> str:
    """A path as a person in the repository would name it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def varied_names(experiment: Mapping[str, Any]) -> set[str]:
    """What an experiment varies beside its sides, as the config's `levels` calls it."""
    designs = experiment["designs"].values()
    loads = [load for design in designs for load in design["loads"].values()]
    names = {"kernel": "kernel", "sizes": "bytes"}
    found = {name for key, name in names.items() for load in loads if key in load}
    return found | {name for load in loads for name in load.get("vary", {})}


def parse_numbers(part: Any) -> Any:
    """A part of the config with numbers where it has their texts."""
    if isinstance(part, Mapping):
        return {key: parse_numbers(value) for key, value in part.items()}
    read = yaml.safe_load(part) if isinstance(part, str) and part else part
    return part if isinstance(read, (str, dict, list)) else read


def check_config(config: Mapping[str, Any], where: str = "config") -> dict[str, Any]:
    """The config, checked beyond what its schema can say.

    Raises:
        UserError: an unknown experiment, benchmark, category or parameter, or times that
            contradict each other.
    """
    checked = {
        **config,
        **{key: parse_numbers(config[key]) for key in NUMBER_KEYS if key in config},
    }
    validate_document(checked, "config", where)
    experiments = {
        name: load_experiment(name, f"{where}, experiments") for name in checked["experiments"]
    }
    checked["levels"] = checked["levels"] or {}
    for name, levels in checked["levels"].items():
        varied = varied_names(experiments.get(name) or load_experiment(name, f"{where}, levels"))
        for level in levels:
            if level not in varied:
                raise UserError(
                    f"{name} varies no {level!r}",
                    f"{where}, levels.{name}",
                    suggest_allowed(level, varied),
                )
    for category, name in checked["benchmarks"].items():
        benchmark = load_benchmark(name, f"{where}, benchmarks.{category}")
        if benchmark["category"] != category:
            raise UserError(
                f"{name} serves {benchmark['category']}", f"{where}, benchmarks.{category}"
            )
        if category not in checked["stopping"]:
            raise UserError(f"the key {category!r} is missing", f"{where}, stopping")
        given = checked["parameters"].get(name, {})
        for key in given:
            if key not in benchmark.get("parameters", {}):
                raise UserError(
                    f"{name} has no parameter {key!r}",
                    f"{where}, parameters.{name}",
                    suggest_allowed(key, benchmark.get("parameters", {})),
                )
    for name in checked["parameters"]:
        load_benchmark(name, f"{where}, parameters")
    for category, rule in checked["stopping"].items():
        if rule["min_seconds"] > rule["max_seconds"]:
            raise UserError("min_seconds is above max_seconds", f"{where}, stopping.{category}")
    return checked


def read_config(path: Path = CONFIG) -> dict[str, Any]:
    """A config file laid over the default one, as `snakemake --configfile` does it."""
    given = read_yaml(path)
    whole = given if path == CONFIG else merge_mappings(read_yaml(CONFIG), given)
    return check_config(whole, path_in_repository(path))


def merge_mappings(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the values of another in place of its own; mappings are joined key by key."""
    found = dict(base)
    for key, value in more.items():
        old = found.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        found[key] = merge_mappings(old, value) if both else value
    return found
