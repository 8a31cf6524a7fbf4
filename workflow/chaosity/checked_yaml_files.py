"""Read YAML files and check them against schemas: config, experiments, benchmarks, hosts.

Every schema is closed: an unknown key is an error that names the file, the key and the allowed
keys. Errors appear before any job runs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from chaosity.errors import UserError, check_allowed, suggest_allowed
from chaosity.records.point_types import OutputValueSource
from chaosity.units import metric_has_unit, parse_duration, parse_share
from chaosity.yaml_document_types import BenchmarkDocument, Config, ExperimentDocument

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "workflow" / "schemas"
CONFIG = ROOT / "workflow" / "config" / "config.yaml"
EXPERIMENTS = ROOT / "workflow" / "experiments"
BENCHMARKS = ROOT / "templates" / "benchmarks"
COUNTERS = ROOT / "templates" / "counters"
PUBLISHED = ROOT / "templates" / "published"
PROCESSORS = ROOT / "templates" / "processors"
# Keys of the config that hold only numbers. On its command line, Snakemake (9.27) reads the values
# within braces (--config 'levels={latency_by_size: {bytes: 3}}') as texts.
NUMBER_KEYS = ("sample", "levels", "stopping", "working_set")
_LONGEST_NUMBER = 40
# A budget that follows from the plan, see campaign.budgeted_plan.budget_of_config.
AUTO_BUDGET = "auto"

# A Jinja2 expression in a text of a benchmark file.
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
# Longest YAML file, and its most values once aliases are expanded. The longest file of the project
# has 10 kB.
_MOST_YAML_CHARACTERS = 2**20
_MOST_YAML_VALUES = 100_000
_DEEPEST_YAML = 100
_LONGEST_NUMBER_BITS = 1024
# libyaml allows any depth, and crashes beyond some 30,000 levels. With fewer signs of nesting than
# this, a text needs no look at its depth before it is loaded.
_HARMLESS_YAML_SIGNS = 5000
# libyaml's parser is nine times as fast as Python's, and every command reads some 50 files.
YAML_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def path_as_given_or_in_repository(name: str) -> Path:
    """Return the path of a file that a user names: as given, or else below the repository."""
    path, shipped = Path(name), ROOT / name
    return shipped if not path.exists() and shipped.exists() else path


@cache
def schema_validator(name: str) -> Draft202012Validator:
    """Return the validator of ``workflow/schemas/<name>.schema.yaml``."""
    text = (SCHEMAS / f"{name}.schema.yaml").read_text(encoding="utf-8")
    return _VALIDATOR(yaml.load(text, YAML_LOADER))


def _pattern_errors(
    _validator: object, pattern: str, instance: object, _schema: object
) -> Iterator[ValidationError]:
    """Yield an error if a text does not match; `$` is the end, not a line break before the end."""
    exact = f"{pattern[:-1]}\\Z" if pattern.endswith("$") else pattern
    if isinstance(instance, str) and not re.search(exact, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_VALIDATOR: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call] # in the stub
    Draft202012Validator, {"pattern": _pattern_errors}
)


def read_yaml(path: Path) -> Any:
    """Return the document in a YAML file.

    Raises:
        UserError: the file is missing, is not YAML, or is too large; the error names line and
            column.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(_MOST_YAML_CHARACTERS + 1)
        _check_yaml_text(text, str(path))
        document = yaml.load(text, YAML_LOADER)
        _check_yaml_document(document, str(path))
        return document
    except OSError as error:
        raise UserError(f"the file cannot be read ({error.strerror})", str(path)) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-01
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", error)
        raise UserError(f"the file is not YAML: {problem}", place) from error


def _too_deep(where: str) -> UserError:
    return UserError(f"the file has more than {_DEEPEST_YAML} levels of nesting", where)


def _check_yaml_text(text: str, where: str) -> None:
    """Check that a text is not too long, and not so deep that its parser crashes."""
    if len(text) > _MOST_YAML_CHARACTERS:
        raise UserError(f"the file has more than {_MOST_YAML_CHARACTERS} characters", where)
    # Each level of nesting has one of these signs.
    if sum(map(text.count, "[{-?:")) < _HARMLESS_YAML_SIGNS:
        return
    depth = 0
    for event in yaml.parse(text, YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST_YAML:
            raise _too_deep(where)


def _check_yaml_document(document: Any, where: str) -> None:
    """Check depth and number of values; aliases can multiply values without an end."""
    values, rest = 0, [(document, 0)]
    while rest and values <= _MOST_YAML_VALUES:
        value, depth = rest.pop()
        if depth > _DEEPEST_YAML:
            raise _too_deep(where)
        if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER_BITS:
            raise UserError("a number has too many digits", where)  # Python cannot even print it
        if isinstance(value, dict | list | set | tuple):
            inner = value.values() if isinstance(value, dict) else value
            rest += [(each, depth + 1) for each in inner]
            values += len(value)
    if rest:
        raise UserError(f"the file has more than {_MOST_YAML_VALUES} values", where)


def _validation_user_error(error: ValidationError, where: str) -> UserError:
    """Return a validation error as one sentence with the file, the key and the allowed values."""
    key = ".".join(str(step) for step in error.absolute_path) or "the document"
    place = f"{where}, {key}"
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    expected: Any = error.validator_value
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = schema.get("properties", {})
        extra = next(iter(set(error.instance) - set(allowed)))
        return UserError(f"unknown key {extra!r}", place, suggest_allowed(str(extra), allowed))
    if error.validator == "required":
        instance: Any = error.instance
        missing = next(key for key in expected if key not in instance)
        return UserError(f"the key {missing!r} is missing", place)
    if error.validator == "enum":
        remedy = suggest_allowed(str(error.instance), map(str, expected))
        return UserError(f"the value {error.instance!r} is not allowed", place, remedy)
    if error.validator == "type":
        return UserError(f"the value {error.instance!r} is not of type {expected}", place)
    return UserError(error.message, place)


def _most_specific_error(error: ValidationError) -> ValidationError:
    """Return the innermost cause of an error, from the alternative that fits the document best."""
    while error.context:
        error = max(error.context, key=lambda e: (len(e.absolute_path), e.validator == "enum"))
    return error


def validate_document(document: Any, name: str, where: str) -> None:
    """Check a document against the schema with this name; `where` names its file in errors.

    Raises:
        UserError: the document does not match; the error names the key and what is allowed.
    """
    error = best_match(schema_validator(name).iter_errors(document))
    if error is not None:
        raise _validation_user_error(_most_specific_error(error), where)


def yaml_file_names(folder: Path) -> list[str]:
    """Return the names of the YAML files in a folder, without the suffix."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_validated_document(folder: Path, name: str, where: str, kind: str) -> Any:
    """Return the checked document ``<folder>/<name>.yaml``.

    Args:
        folder: folder of all documents of this kind.
        name: name of the document; the document repeats it under the key `kind`.
        where: the file and key that name it, for errors.
        kind: experiment, benchmark, ...; also the name of the schema.

    Raises:
        UserError: there is no such file, or its content is wrong.
    """
    check_allowed(name, yaml_file_names(folder), f"unknown {kind} {name!r}", where)
    path = folder / f"{name}.yaml"
    document = read_yaml(path)
    validate_document(document, kind, _path_in_repository(path))
    if document[kind] != name:
        found = f"the file has `{kind}: {document[kind]}`"
        raise UserError(found, _path_in_repository(path), f"the file's name requires {name!r}")
    return document


def load_experiment(name: str, where: str = "config, experiments") -> ExperimentDocument:
    """Return the checked document of an experiment, with its figures.

    Raises:
        UserError: there is no such file, or its content is wrong.
    """
    document: ExperimentDocument = load_validated_document(EXPERIMENTS, name, where, "experiment")
    place = f"{_path_in_repository(EXPERIMENTS)}/{name}.yaml"
    for index, figure in enumerate(document.get("figures", [])):
        validate_document(figure, "figure", f"{place}, figures.{index}")
    loads = {load for design in document["designs"].values() for load in design["loads"]}
    _check_relative_metrics(document, loads, place)
    for index, entry in enumerate(document.get("resources", [])):
        where_entry = f"{place}, resources.{index}"
        check_allowed(entry["load"], loads, f"unknown load {entry['load']!r}", where_entry)
    return document


def _check_relative_metrics(document: ExperimentDocument, loads: set[str], where: str) -> None:
    """Check that derived metrics refer to known loads, and have new names without a unit."""
    names: set[str] = set()
    for index, entry in enumerate(document.get("relative", [])):
        place, name = f"{where}, relative.{index}", entry["name"]
        check_allowed(entry["load"], loads, f"unknown load {entry['load']!r}", place)
        if name in {*names, entry["metric"]}:
            raise UserError(f"the name {name!r} is in use", place, "choose another name")
        if metric_has_unit(name):
            remedy = "leave the unit out, or let the name end in _ratio"
            raise UserError(f"the name {name!r} has a unit, but a ratio has none", place, remedy)
        names.add(name)


def load_benchmark(name: str, where: str = "config, benchmarks") -> BenchmarkDocument:
    """Return the checked document of a benchmark.

    Raises:
        UserError: no such file, wrong content, a metric needs a counter that is not listed, or a
            regular expression is wrong.
    """
    document: BenchmarkDocument = load_validated_document(BENCHMARKS, name, where, "benchmark")
    listed, file = document.get("counters", []), f"{_path_in_repository(BENCHMARKS)}/{name}.yaml"
    for metric, source in document["metrics"].items():
        place = f"{file}, metrics.{metric}"
        if counter := source.get("counter"):
            check_allowed(counter, listed, f"counter {counter!r} is not in `counters`", place)
        _check_regular_expression(source, place)
    for rule in document["valid"]:
        _check_regular_expression(rule, f"{file}, valid, {rule['name']}")
    return document


def _check_regular_expression(source: OutputValueSource, where: str) -> None:
    """Check that Python accepts a source's regular expression, which may contain templates."""
    pattern = source.get("regex", "")
    try:
        groups = re.compile(_TEMPLATE.sub("x", pattern)).groups
    except re.error as error:
        raise UserError(f"{pattern!r} is not a regular expression: {error}", where) from None
    if groups > 1:
        remedy = "put ( ) around the value alone, and (?: ) around other parts"
        raise UserError(f"the pattern {pattern!r} has {groups} groups, not 1", where, remedy)


def _path_in_repository(path: Path) -> str:
    """Return a path relative to the repository; return a path elsewhere unchanged."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _varied_names(experiment: ExperimentDocument) -> set[str]:
    """Return the names of everything that an experiment varies besides initiators and targets."""
    names: set[str] = set()
    for design in experiment["designs"].values():
        for load in design["loads"].values():
            names |= {*load.get("vary", {})}
            names |= {"kernel"} if "kernel" in load else set()
            names |= {"bytes"} if "sizes" in load else set()
    return names


def _convert_number_texts(value: object) -> object:
    """Return the value, with texts such as "3" or "null" converted to numbers or None."""
    if isinstance(value, Mapping):
        return {key: _convert_number_texts(inner) for key, inner in value.items()}
    parsed: object = value
    # Without a number, the schema's error names the unchanged text.
    with contextlib.suppress(yaml.YAMLError, ValueError):
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_NUMBER:
            parsed = yaml.safe_load(value)
    return value if isinstance(parsed, (str, dict, list)) else parsed


def check_config(config: Mapping[str, object], where: str = "config") -> Config:
    """Check a config against its schema, the experiments and the benchmarks.

    Raises:
        UserError: an unknown experiment, benchmark, category or parameter, or times that
            contradict each other.
    """
    numbers = {key: _convert_number_texts(config[key]) for key in NUMBER_KEYS if key in config}
    document = {**config, **numbers}
    validate_document(document, "config", where)
    checked = cast(Config, document)
    experiments = {
        name: load_experiment(name, f"{where}, experiments") for name in checked["experiments"]
    }
    for name, levels in (checked["levels"] or {}).items():
        place = f"{where}, levels"
        varied = _varied_names(experiments.get(name) or load_experiment(name, place))
        for level in levels:
            check_allowed(level, varied, f"{name} does not vary {level!r}", f"{place}.{name}")
    for category, name in checked["benchmarks"].items():
        _check_benchmark(checked, category, name, where)
    for name in checked["parameters"]:
        load_benchmark(name, f"{where}, parameters")
    for category, rule in checked["stopping"].items():
        if rule["min_seconds"] > rule["max_seconds"]:
            raise UserError("min_seconds is above max_seconds", f"{where}, stopping.{category}")
    if checked["budget"] != AUTO_BUDGET:
        _check_budget(checked, "budget", parse_duration, where)
    _check_budget(checked, "precision", parse_share, where)
    if checked["known_from"] and checked["budget"] is None and checked["precision"] is None:
        what = "earlier runs steer only runs with a budget or a precision"
        raise UserError(what, f"{where}, known_from", "add budget or leave out known_from")
    return checked


def _check_budget(
    config: Config,
    key: Literal["budget", "precision"],
    parse: Callable[[str], float],
    where: str,
) -> None:
    """Check a key that says when a run in rounds ends, and that no other key contradicts it."""
    if config[key] is None:
        return
    try:
        number = parse(str(config[key]))
    except ValueError as error:
        raise UserError(str(error), f"{where}, {key}") from None
    if number == 0:
        raise UserError(f"{key} is zero", f"{where}, {key}")
    if config["replicates"] != read_yaml(CONFIG)["replicates"]:
        what = f"{key} and replicates contradict: with {key}, the run chooses the replicates"
        raise UserError(what, f"{where}, {key}", f"leave out replicates or {key}")


def _check_benchmark(config: Config, category: str, name: str, where: str) -> None:
    """Check that a benchmark is of this category, has a stopping rule, and has its parameters."""
    place = f"{where}, benchmarks.{category}"
    benchmark = load_benchmark(name, place)
    if category not in (benchmark["category"], *benchmark.get("other_categories", ())):
        raise UserError(f"benchmark {name} is of the category {benchmark['category']}", place)
    if category not in config["stopping"]:
        raise UserError(f"the key {category!r} is missing", f"{where}, stopping")
    known, place = benchmark.get("parameters", {}), f"{where}, parameters.{name}"
    for key in config["parameters"].get(name, {}):
        check_allowed(key, known, f"{name} has no parameter {key!r}", place)


def read_config(path: Path = CONFIG) -> Config:
    """Return a checked config file, merged over the default like ``snakemake --configfile``."""
    given, where = read_yaml(path), _path_in_repository(path)
    if not isinstance(given, dict):
        raise UserError(
            "the file has no key of a config",
            where,
            f"{_path_in_repository(CONFIG)} lists all keys",
        )
    return check_config(_merged(read_yaml(CONFIG), given), where)


def _merged(base: object, changes: object) -> Any:
    """Return the changes; keys that a changed mapping lacks are those of the base."""
    if isinstance(base, Mapping) and isinstance(changes, Mapping):
        return {**base, **{key: _merged(base.get(key), value) for key, value in changes.items()}}
    return changes
