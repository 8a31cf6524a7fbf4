"""Read and check the documents in the repository: experiments, benchmarks and others."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from chaosity.documents.benchmarks import BenchmarkDocument, OutputValue
from chaosity.documents.checked_yaml import check_document, read_yaml
from chaosity.documents.experiments import ExperimentDocument
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.units import metric_has_unit

ROOT = Path(__file__).resolve().parents[3]
DEFAULT_CONFIG_FILE = ROOT / "config" / "config.yaml"
EXPERIMENTS_FOLDER = ROOT / "workflow" / "experiments"
BENCHMARKS_FOLDER = ROOT / "templates" / "benchmarks"
COUNTERS_FOLDER = ROOT / "templates" / "counters"
PUBLISHED_FOLDER = ROOT / "templates" / "published"
PROCESSORS_FOLDER = ROOT / "templates" / "processors"

# Pattern that matches a Jinja2 expression in a text of a benchmark file.
_JINJA_EXPRESSION = re.compile(r"\{\{.*?\}\}")


def path_as_given_or_in_repository(name: str) -> Path:
    """Return the path of a file that a user names, as given or (if missing) in the repository."""
    path, shipped = Path(name), ROOT / name
    return shipped if not path.exists() and shipped.exists() else path


def yaml_file_names(folder: Path) -> list[str]:
    """Return the names of the YAML files in a folder, sorted and without the suffix ``.yaml``."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_document(folder: Path, name: str, document_type: Any, where: str) -> Any:
    """Return the checked document ``<folder>/<name>.yaml``.

    The document must repeat its name under the first key of its type: experiment, benchmark, ...
    `where` says in error messages which file and key name the document.

    Raises:
        UserError: there is no such file, or its content is wrong.
    """
    kind = next(iter(document_type.__annotations__))
    check_name_is_allowed(name, yaml_file_names(folder), f"unknown {kind} {name!r}", where)
    path = folder / f"{name}.yaml"
    state = path.stat() if path.exists() else None
    version = (state.st_mtime_ns, state.st_size) if state else None
    return pickle.loads(_pickled_document(path, version, document_type, kind))


@cache
def _pickled_document(
    path: Path, version: tuple[int, int] | None, document_type: Any, kind: str
) -> bytes:
    """Return a checked document of the repository, as bytes of pickle."""
    # A run reads the same documents many times, and parsing YAML takes ten times as long as
    # unpickling bytes. So the bytes are kept while the file has this `version`. Each reader
    # unpickles a new object, which the reader may change.
    document = read_yaml(path)
    check_document(document, document_type, path_in_repository(path))
    if document[kind] != path.stem:
        found = f"the file has `{kind}: {document[kind]}`"
        remedy = f"the file's name requires {path.stem!r}"
        raise UserError(found, path_in_repository(path), remedy)
    return pickle.dumps(document)


def load_experiment(name: str, where: str = "config, experiments") -> ExperimentDocument:
    """Return the checked document of an experiment, with its figures.

    Raises:
        UserError: there is no such file, or its content is wrong.
    """
    document = cast(
        ExperimentDocument, read_document(EXPERIMENTS_FOLDER, name, ExperimentDocument, where)
    )
    place = f"{path_in_repository(EXPERIMENTS_FOLDER)}/{name}.yaml"
    loads = {load for design in document["designs"].values() for load in design["loads"]}
    _check_relative_metrics(document, loads, place)
    for index, entry in enumerate(document.get("resources", [])):
        where_entry = f"{place}, resources.{index}"
        check_name_is_allowed(entry["load"], loads, f"unknown load {entry['load']!r}", where_entry)
    return document


def load_existing_experiments(names: Iterable[str]) -> list[ExperimentDocument]:
    """Return the experiments with given names, except those whose files no longer exist."""
    found = []
    for name in dict.fromkeys(names):
        with suppress(UserError):
            found.append(load_experiment(name))
    return found


def _check_relative_metrics(document: ExperimentDocument, loads: set[str], where: str) -> None:
    """Check derived metrics: their load exists, and their name is not in use and has no unit."""
    names: set[str] = set()
    for index, entry in enumerate(document.get("relative", [])):
        place, name = f"{where}, relative.{index}", entry["name"]
        check_name_is_allowed(entry["load"], loads, f"unknown load {entry['load']!r}", place)
        if name in {*names, entry["metric"]}:
            raise UserError(f"the name {name!r} is in use", place, "choose another name")
        if metric_has_unit(name):
            remedy = "leave the unit out, or let the name end in _ratio"
            raise UserError(f"the name {name!r} has a unit, but a ratio has none", place, remedy)
        names.add(name)


def load_benchmark(name: str, where: str = "config, benchmarks") -> BenchmarkDocument:
    """Return the checked document of a benchmark.

    Raises:
        UserError: there is no such file, its content is wrong, a metric needs a counter that is not
            listed, or a regular expression is wrong.
    """
    document = cast(
        BenchmarkDocument, read_document(BENCHMARKS_FOLDER, name, BenchmarkDocument, where)
    )
    listed, file = (
        document.get("counters", []),
        f"{path_in_repository(BENCHMARKS_FOLDER)}/{name}.yaml",
    )
    for metric, source in document["metrics"].items():
        place = f"{file}, metrics.{metric}"
        if counter := source.get("counter"):
            check_name_is_allowed(
                counter, listed, f"counter {counter!r} is not in `counters`", place
            )
        _check_regular_expression(source, place)
    for rule in document["valid"]:
        _check_regular_expression(cast(OutputValue, rule), f"{file}, valid, {rule['name']}")
    command = document["command"]
    if "--settle" in command and not any("target.policy" in word for word in command):
        # Only from the policy of the target does the runner know that pages move after the ready
        # line.
        remedy = "write --policy={{ target.policy }}, and give the load a target that is a policy"
        raise UserError("--settle is for the policy of the target", f"{file}, command", remedy)
    return document


def _check_regular_expression(source: OutputValue, where: str) -> None:
    """Check that Python accepts the regular expression of a source, which may contain templates."""
    pattern = source.get("regex", "")
    try:
        groups = re.compile(_JINJA_EXPRESSION.sub("x", pattern)).groups
    except re.error as error:
        raise UserError(f"{pattern!r} is not a regular expression: {error}", where) from None
    if groups > 1:
        remedy = "put ( ) around the value alone, and (?: ) around other parts"
        raise UserError(f"the pattern {pattern!r} has {groups} groups, not 1", where, remedy)


def path_in_repository(path: Path) -> str:
    """Return a path relative to the repository; return a path elsewhere unchanged."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
