"""Read selections to compare from a table, a folder of results, or profiles of a database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.errors import UserError, suggest_allowed_names
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.store.measurements import Measurements
from chaosity.store.measurements_before_component_changes import HISTORY_COLUMNS
from chaosity.store.profile_database import (
    PROFILE_FILTERS,
    find_profiles,
    is_duckdb_file,
    read_profile_measurements,
)
from chaosity.store.tidy_table_parquet import COLUMNS

_HISTORY = "history.parquet"
_MAX_SUGGESTED = 40


@dataclass(frozen=True)
class Selection:
    """A part of a tidy table."""

    name: str  # name in sentences, such as "epyc1 nps4"
    measurements: Measurements  # its rows
    pinned: Mapping[str, str]  # requested column -> its value

    def filter_rows(self, conditions: Mapping[str, str]) -> Selection:
        """Return the selection of the rows whose columns have the values in `conditions`.

        Raises:
            UserError: a column is unknown, or no row has these values.
        """
        return replace(self, measurements=_filter(self.measurements, conditions, self.name))


def read_selections(texts: Iterable[str]) -> list[Selection]:
    """Read the selections that the texts name.

    A text that names a database can give several selections: one for each profile.

    Args:
        texts: each a tidy table (measurements.parquet, history.parquet), a folder with one, the
            folder of a host with all its configurations, or a database of profiles. After a ``#``
            conditions can follow: ``column=value&column=value``; for a database they are a query.
            For folders, the condition ``era`` selects history.parquet.

    Raises:
        UserError: a file is missing or no tidy table, a column is unknown, or no row meets the
            conditions.
    """
    found = [selection for text in texts for selection in _read(text)]
    names = Counter(selection.name for selection in found)
    return [
        replace(each, name=f"{each.name} ({number})") if names[each.name] > 1 else each
        for number, each in enumerate(found, start=1)
    ]


def _read(text: str) -> list[Selection]:
    name, _, query = text.partition("#")
    conditions = parse_conditions(query.split("&") if query else [], text)
    path = Path(name)
    paths = [path]
    if path.is_dir():
        file = _HISTORY if "era" in conditions else MEASUREMENTS_FILE
        paths = [path / file] if (path / file).exists() else sorted(path.glob(f"*/{file}"))
        if not paths:
            remedy = "name a folder results/HOST/CONFIGURATION or results/HOST"
            raise UserError(f"{file} is missing", str(path), remedy)
    if not path.exists():
        raise UserError("file or folder not found", str(path))
    if is_duckdb_file(path):
        return _read_profiles(path, conditions)
    tables = [
        Measurements.read(each, HISTORY_COLUMNS if each.name == _HISTORY else COLUMNS)
        for each in paths
    ]
    table = tables[0] if len(tables) == 1 else Measurements.concatenated(tables)
    if table.rows["host"].isna().all():
        raise UserError("the file is not a measurements table: the column host is empty", str(path))
    return [_selection(table, conditions, str(path))]


def _read_profiles(path: Path, conditions: Mapping[str, str]) -> list[Selection]:
    """Return a selection for each profile of a database that meets the conditions."""
    query = {key: value for key, value in conditions.items() if key in PROFILE_FILTERS}
    rest = {key: value for key, value in conditions.items() if key not in PROFILE_FILTERS}
    profiles = find_profiles(path, **query)
    if not profiles:
        listed = ", ".join(f"{key} {value}" for key, value in query.items())
        no_profile = f"the database has no profile with {listed}"
        raise UserError(no_profile if listed else "the database is empty", str(path))
    tables = [read_profile_measurements(path, profile["id"]) for profile in profiles]
    return [_selection(Measurements.from_table(table), rest, str(path)) for table in tables]


def _selection(table: Measurements, conditions: Mapping[str, str], place: str) -> Selection:
    measurements = _filter(table, conditions, place)
    return Selection(_name(measurements, conditions), measurements, conditions)


def _name(measurements: Measurements, conditions: Mapping[str, str]) -> str:
    """Return the name of a selection: host, configurations and the other conditions."""
    hosts = measurements.rows.groupby("host", sort=False)["configuration"].unique().items()
    listed = [f"{host} {' and '.join(map(str, names))}" for host, names in hosts]
    name = ", ".join(listed[:2]) + (" and others" if len(listed) > 2 else "")
    name += " (SIMULATED)" if measurements.is_simulated else ""
    others = conditions.keys() - {"host", "configuration"}
    return ", ".join([name, *(f"{key} {conditions[key]}" for key in conditions if key in others)])


def parse_conditions(texts: Iterable[str], place: str) -> dict[str, str]:
    """Return column -> value of texts such as "kernel=triad"; `place` is named in errors."""
    conditions = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column:
            raise UserError(f"{text!r} is not COLUMN=VALUE", place)
        conditions[column] = value
    return conditions


def _filter(measurements: Measurements, conditions: Mapping[str, str], place: str) -> Measurements:
    """Return the rows whose columns have the values in `conditions`, compared as texts."""
    for column, value in conditions.items():
        rows = measurements.rows
        if column not in rows:
            remedy = suggest_allowed_names(column, rows.columns)
            raise UserError(f"unknown column {column!r}", place, remedy)
        texts = rows[column].map(_text)
        if not (texts == value).any():
            known = texts.dropna().unique().tolist()
            remedy = suggest_allowed_names(value, known[:_MAX_SUGGESTED])
            raise UserError(f"no row has {column} {value!r}", place, remedy)
        measurements = measurements.select(texts == value)
    return measurements


def _text(value: Any) -> str | None:
    """Return a value as a person writes it, such as 2 instead of 2.0."""
    if value is None or pd.isna(value):
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)
