"""Read and check the config, which says what is measured, where, how long and how often."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import (
    NO_DUPLICATES,
    Count,
    Name,
    Positive,
    Text,
    check_document,
    read_yaml,
)
from chaosity.documents.experiments import ExperimentDocument
from chaosity.documents.shipped_documents import (
    DEFAULT_CONFIG_FILE,
    load_benchmark,
    load_experiment,
    path_in_repository,
)
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.units import parse_duration, parse_share

Mode = Literal["nps0", "nps1", "nps2", "nps4", "snc1", "snc2", "snc4"]
Minutes = Annotated[int, Ge(1), Le(10080)]
Precision = Annotated[float, Gt(0), Field(lt=1)]


class SlurmConfig(TypedDict):
    """How measurements are divided into Slurm jobs, and how long these jobs may run and wait."""

    minutes_per_job: Annotated[float, Gt(0), Le(10080)]
    """Length of a job in minutes: a job gets measurements of one host that take about this time."""
    time_factor: Annotated[float, Ge(1), Le(100)]
    """Factor for the time limit of a job: planned time x this factor, plus `slack_minutes`."""
    slack_minutes: Annotated[float, Ge(1), Le(1440)]
    """Minutes added to each time limit; the first retry of a job gets twice the limit."""
    wait_minutes: Minutes
    """Minutes that discovery waits for a busy node before the host is skipped."""
    partition: Annotated[str, Field(pattern="^[A-Za-z0-9._,-]+$")] | None
    """Slurm partition; null: the default of the site."""
    account: Annotated[str, Field(pattern="^[A-Za-z0-9._-]+$")] | None
    """Slurm account; null: the default of the user."""


class WorkingSetConfig(TypedDict):
    """Sizes of arrays, relative to caches and to the memory of a node."""

    times_last_level_cache: Positive
    """Size of each array, as a multiple of the size of all last-level caches that the load uses."""
    at_least_bytes: Annotated[int, Ge(4096)]
    """Smallest size of each array, in bytes, unless `at_most_share_of_node` requires less."""
    at_most_share_of_node: Annotated[float, Gt(0), Le(1)]
    """Largest share of a node's memory for all arrays with `at_least_bytes`, and for a sweep."""
    sweep_at_most_bytes: Annotated[int, Ge(4096)] | None
    """Largest size of a sweep, in bytes; null: only `at_most_share_of_node` limits it."""


class StoppingRule(TypedDict):
    """When a load ends: the wanted precision of its rate, and its shortest and longest time."""

    relative_precision: Precision | None
    """A load ends if the 95 % interval of its rate is within this share of it; null: never."""
    min_seconds: Positive
    """Shortest time of a load, in seconds."""
    max_seconds: Annotated[float, Gt(0), Le(86400)]
    """Longest time of a load, in seconds."""


class Config(TypedDict):
    """The checked config; config/config.yaml explains each key."""

    inventory: Text
    """Ansible's inventory: a file or folder with all hosts."""
    hosts: Annotated[list[str], NO_DUPLICATES]
    """Names of the hosts that are measured; empty: all hosts of the inventory."""
    configurations: Annotated[list[Mode], NO_DUPLICATES]
    """Firmware modes in which each host is measured in turn, WITH REBOOTS. Empty: no reboot."""
    expected_configuration: Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")] | None
    """Hosts in another configuration than the named one are skipped; null: no host is skipped."""
    transport: Literal["inventory", "slurm"]
    """How hosts are reached: as the inventory says, or as jobs of Slurm."""
    slurm: SlurmConfig
    """How measurements run as jobs of Slurm."""
    results: Text
    """Folder of the records and of all files that are computed from them."""
    experiments: Annotated[list[str], MinLen(1), NO_DUPLICATES]
    """Names of files below workflow/experiments, without .yaml."""
    sample: dict[str, Count]
    """Experiment -> maximum number of its points that are measured."""
    levels: dict[str, dict[str, Count]] | None
    """Experiment -> factor -> maximum number of its levels that are measured; null: no limit.

    The config of a user is merged over the default config, so an empty mapping would change
    nothing.
    """
    benchmarks: Annotated[dict[Name, str], MinLen(1)]
    """Category -> the benchmark that measures it."""
    parameters: dict[str, dict[str, Any]]
    """Benchmark -> parameters that replace those of its file."""
    threads: Literal["one_per_core", "all"]
    """One thread on each core, or one on each SMT sibling; an experiment can say otherwise."""
    replicates: Annotated[int, Ge(1), Le(1000)]
    """Number of measurements of each point; each time, all points are in another random order."""
    seed: Annotated[int, Ge(0)]
    """Seed of the random order."""
    stopping: Annotated[dict[str, StoppingRule], MinLen(1)]
    """Category -> when a load ends."""
    working_set: WorkingSetConfig
    """Sizes of arrays and working sets."""
    budget: Text | None
    """Longest time of the measurements of a host, such as 30m or 2h; null: no limit.

    The value auto means 30m, or more if the node matrices of the host take longer.
    """
    precision: str | Precision | None
    """Half width of intervals at which a run ends, such as 2% or 0.02; null: no such end."""
    known_from: Annotated[list[Text], NO_DUPLICATES]
    """Earlier runs that influence what a run with a budget measures, as in `chaosity compare`."""


# Keys of the config whose values are numbers or mappings of numbers. Snakemake (9.27) reads a
# number within braces on the command line as a text, as in
# --config 'levels={latency_by_size: {bytes: 3}}'.
KEYS_WITH_NUMBERS = ("sample", "levels", "stopping", "working_set")
_MOST_NUMBER_CHARACTERS = 40
# The budget that is computed from the plan, see `rounds.budget.budget_of_config`.
AUTO_BUDGET = "auto"


def _varied_names(experiment: ExperimentDocument) -> set[str]:
    """Return the names of all that an experiment varies, except initiators and targets."""
    names: set[str] = set()
    for design in experiment["designs"].values():
        for load in design["loads"].values():
            names |= {*load.get("vary", {})}
            names |= {"kernel"} if "kernel" in load else set()
            names |= {"bytes"} if "sizes" in load else set()
    return names


def _convert_number_texts(value: object) -> object:
    """Return the value with its texts, such as "3" or "null", converted to numbers or None."""
    if isinstance(value, Mapping):
        return {key: _convert_number_texts(inner) for key, inner in value.items()}
    parsed: object = value
    # A text that is no number stays unchanged, so that the later error about its type quotes the
    # text.
    with contextlib.suppress(yaml.YAMLError, ValueError):
        if isinstance(value, str) and 0 < len(value) <= _MOST_NUMBER_CHARACTERS:
            parsed = yaml.safe_load(value)
    return value if isinstance(parsed, (str, dict, list)) else parsed


def check_config(config: Mapping[str, object], where: str = "config") -> Config:
    """Check a config against its type, the experiments and the benchmarks.

    Raises:
        UserError: an unknown experiment, benchmark, category or parameter, or contradictory times.
    """
    numbers = {
        key: _convert_number_texts(config[key]) for key in KEYS_WITH_NUMBERS if key in config
    }
    document = {**config, **numbers}
    check_document(document, Config, where)
    checked = cast(Config, document)
    experiments = {
        name: load_experiment(name, f"{where}, experiments") for name in checked["experiments"]
    }
    for name, levels in (checked["levels"] or {}).items():
        place = f"{where}, levels"
        varied = _varied_names(experiments.get(name) or load_experiment(name, place))
        for level in levels:
            check_name_is_allowed(
                level, varied, f"{name} does not vary {level!r}", f"{place}.{name}"
            )
    for category, name in checked["benchmarks"].items():
        _check_benchmark(checked, category, name, where)
    for name in checked["parameters"]:
        load_benchmark(name, f"{where}, parameters")
    for category, rule in checked["stopping"].items():
        if rule["min_seconds"] > rule["max_seconds"]:
            raise UserError("min_seconds is above max_seconds", f"{where}, stopping.{category}")
    if checked["budget"] != AUTO_BUDGET:
        _check_budget_key(checked, "budget", parse_duration, where)
    _check_budget_key(checked, "precision", parse_share, where)
    if checked["known_from"] and checked["budget"] is None and checked["precision"] is None:
        what = "earlier runs steer only runs with a budget or a precision"
        raise UserError(what, f"{where}, known_from", "add budget or leave out known_from")
    return checked


def _check_budget_key(
    config: Config,
    key: Literal["budget", "precision"],
    parse: Callable[[str], float],
    where: str,
) -> None:
    """Check a key that ends a run in rounds; with this key, a config may not set `replicates`."""
    if config[key] is None:
        return
    try:
        number = parse(str(config[key]))
    except ValueError as error:
        raise UserError(str(error), f"{where}, {key}") from None
    if number == 0:
        raise UserError(f"{key} is zero", f"{where}, {key}")
    if config["replicates"] != read_yaml(DEFAULT_CONFIG_FILE)["replicates"]:
        what = f"{key} and replicates contradict: with {key}, the run chooses the replicates"
        raise UserError(what, f"{where}, {key}", f"leave out replicates or {key}")


def _check_benchmark(config: Config, category: str, name: str, where: str) -> None:
    """Check that a benchmark is of a category, with a stopping rule and all named parameters."""
    place = f"{where}, benchmarks.{category}"
    benchmark = load_benchmark(name, place)
    if category not in (benchmark["category"], *benchmark.get("other_categories", ())):
        raise UserError(f"benchmark {name} is of the category {benchmark['category']}", place)
    if category not in config["stopping"]:
        raise UserError(f"the key {category!r} is missing", f"{where}, the key `stopping`")
    known, place = benchmark.get("parameters", {}), f"{where}, parameters.{name}"
    for key in config["parameters"].get(name, {}):
        check_name_is_allowed(key, known, f"{name} has no parameter {key!r}", place)


def read_config(path: Path = DEFAULT_CONFIG_FILE) -> Config:
    """Return the config of a file, merged over the default as ``snakemake --configfile`` does."""
    given, where = read_yaml(path), path_in_repository(path)
    if not isinstance(given, dict):
        raise UserError(
            "the file has no key of a config",
            where,
            f"{path_in_repository(DEFAULT_CONFIG_FILE)} lists all keys",
        )
    return check_config(_merge_mappings(read_yaml(DEFAULT_CONFIG_FILE), given), where)


def _merge_mappings(base: object, changes: object) -> Any:
    """Return the changes, with the keys of `base` that each changed mapping lacks."""
    if isinstance(base, Mapping) and isinstance(changes, Mapping):
        return {
            **base,
            **{key: _merge_mappings(base.get(key), value) for key, value in changes.items()},
        }
    return changes
