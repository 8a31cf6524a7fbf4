"""The config: what is measured, on which hosts, how long and how often."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.field_types import DIFFERENT, Count, Name, Positive, Text

Mode = Literal["nps0", "nps1", "nps2", "nps4", "snc1", "snc2", "snc4"]
Minutes = Annotated[int, Ge(1), Le(10080)]
Precision = Annotated[float, Gt(0), Field(lt=1)]


class SlurmConfig(TypedDict):
    """How measurements are divided into Slurm jobs, and how long these jobs may run and wait."""

    minutes_per_job: Annotated[float, Gt(0), Le(10080)]
    time_factor: Annotated[float, Ge(1), Le(100)]
    slack_minutes: Annotated[float, Ge(1), Le(1440)]
    wait_minutes: Minutes
    partition: Annotated[str, Field(pattern="^[A-Za-z0-9._,-]+$")] | None
    account: Annotated[str, Field(pattern="^[A-Za-z0-9._-]+$")] | None


class WorkingSetConfig(TypedDict):
    """Sizes of arrays, relative to caches and to the memory of a node."""

    times_last_level_cache: Positive
    at_least_bytes: Annotated[int, Ge(4096)]
    at_most_share_of_node: Annotated[float, Gt(0), Le(1)]
    sweep_at_most_bytes: Annotated[int, Ge(4096)] | None


class StoppingRule(TypedDict):
    """The precision of the rates at which a point ends, and its shortest and longest time."""

    relative_precision: Precision | None
    min_seconds: Positive
    max_seconds: Annotated[float, Gt(0), Le(86400)]


class Config(TypedDict):
    """The checked config; config/config.yaml explains each key."""

    inventory: Text
    hosts: Annotated[list[str], DIFFERENT]
    configurations: Annotated[list[Mode], DIFFERENT]
    expected_configuration: Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")] | None
    transport: Literal["inventory", "slurm"]
    slurm: SlurmConfig
    results: Text
    experiments: Annotated[list[str], MinLen(1), DIFFERENT]
    sample: dict[str, Count]
    """Experiment -> maximum number of its points that are measured."""
    levels: dict[str, dict[str, Count]] | None
    """Experiment -> factor -> maximum number of its levels that are measured; null: no limit.

    Null stays null: merged over the default config, an empty mapping changes nothing.
    """
    benchmarks: Annotated[dict[Name, str], MinLen(1)]
    """Category -> the benchmark that is used for it."""
    parameters: dict[str, dict[str, Any]]
    """Benchmark -> parameters that replace those of its file."""
    threads: Literal["one_per_core", "all"]
    """For selectors of initiators that do not say it."""
    replicates: Annotated[int, Ge(1), Le(1000)]
    seed: Annotated[int, Ge(0)]
    stopping: Annotated[dict[str, StoppingRule], MinLen(1)]
    """Category -> stopping rule."""
    working_set: WorkingSetConfig
    budget: Text | None
    """Longest time of the measurements of a host: 30m, or auto, which follows from the plan."""
    precision: str | Precision | None
    """Half width of intervals at which a run ends: 0.02 or 2 %."""
    known_from: Annotated[list[Text], DIFFERENT]
    """Earlier runs that steer a run with a budget, each a selection as for `compare`."""
