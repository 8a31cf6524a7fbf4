"""What a person names to compare: a table, a folder of results, or profiles of a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chaosity.config import suggest_allowed
from chaosity.errors import UserError
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.statistics import plain
from chaosity.store import COLUMNS, HISTORY_COLUMNS, read_table
from chaosity.store.profile_database import QUERIES, find_profiles, is_database, read_profile_table

_HISTORY = "history.parquet"


@dataclass(frozen=True)
class Selection:
    """A part of a tidy table.

    Attributes:
        name: for sentences, such as "epyc1 nps4".
        rows: of the tidy table.
        pinned: columns that were asked for, with their values.
    """

    name: str
    rows: pd.DataFrame
    pinned: Mapping[str, str]


def read_selections(texts: Iterable[str]) -> list[Selection]:
    """Every selection that is named; a database may give several for one text.

    Args:
        texts: each a tidy table (measurements.parquet, history.parquet), a folder with one, or a
            database of profiles; behind a ``#`` may stand ``column=value&column=value``, which is
            a query for a database.

    Raises:
        UserError: a file is missing or another thing, a column is not known, nothing is left.
    """
    found = [one for text in texts for one in _read(text)]
    names = [one.name for one in found]
    return [
        Selection(
            f"{one.name} ({number})" if names.count(one.name) > 1 else one.name,
            one.rows,
            one.pinned,
        )
        for number, one in enumerate(found, start=1)
    ]


def _read(text: str) -> list[Selection]:
    name, _, asked = text.partition("#")
    pinned = _pairs(asked.split("&") if asked else [], text)
    path = Path(name)
    if path.is_dir():
        if not (path / MEASUREMENTS_FILE).exists():
            raise UserError(
                f"holds no {MEASUREMENTS_FILE}", str(path), "name results/HOST/CONFIGURATION"
            )
        path = path / MEASUREMENTS_FILE
    if not path.exists():
        raise UserError("is not there", str(path))
    if is_database(path):
        return _profiles(path, pinned)
    columns = HISTORY_COLUMNS if path.name == _HISTORY else COLUMNS
    rows = filter_rows(plain(read_table(path, columns)), pinned, str(path))
    if "host" in rows and rows["host"].isna().all():
        raise UserError("is no tidy table: it names no host", str(path))
    return [Selection(_name(rows, pinned), rows, pinned)]


def _profiles(path: Path, pinned: Mapping[str, str]) -> list[Selection]:
    """A selection of each profile that a query finds, parts of their tables included."""
    query = {key: value for key, value in pinned.items() if key in QUERIES}
    rest = {key: value for key, value in pinned.items() if key not in QUERIES}
    profiles = find_profiles(path, **query)
    if not profiles:
        listed = ", ".join(f"{key} {value}" for key, value in query.items())
        raise UserError(f"has no profile of {listed}" if listed else "has no profile", str(path))
    found = []
    for profile in profiles:
        rows = filter_rows(plain(read_profile_table(path, profile["id"])), rest, str(path))
        found.append(Selection(_name(rows, rest), rows, rest))
    return found


def _name(rows: pd.DataFrame, pinned: Mapping[str, str]) -> str:
    """Host and configuration, and what was asked for beside."""
    hosts = rows[["host", "configuration"]].drop_duplicates()
    listed = [f"{host} {configuration}" for host, configuration in hosts.itertuples(index=False)]
    name = ", ".join(listed[:2]) + (" and others" if len(listed) > 2 else "")
    said = [
        f"{column} {value}"
        for column, value in pinned.items()
        if column not in ("host", "configuration")
    ]
    return f"{name}, {', '.join(said)}" if said else name


def _pairs(texts: Iterable[str], place: str) -> dict[str, str]:
    found = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column:
            raise UserError(f"{text!r} is no COLUMN=VALUE", place)
        found[column] = value
    return found


def filter_rows(rows: pd.DataFrame, conditions: Mapping[str, str], place: str) -> pd.DataFrame:
    """The rows in which columns have these values, compared as texts.

    Raises:
        UserError: there is no such column, or no row has these values.
    """
    for column, value in conditions.items():
        if column not in rows:
            raise UserError(
                f"there is no column {column!r}", place, suggest_allowed(column, rows.columns)
            )
        texts = rows[column].map(_text)
        if not (texts == value).any():
            known = [text for text in texts.unique() if text is not None]
            raise UserError(
                f"no row has {column} {value!r}", place, suggest_allowed(value, known[:40])
            )
        rows = rows[texts == value]
    return rows


def _text(value: object) -> str | None:
    """A value as a person writes it: 2 and not 2.0."""
    if value is None or pd.isna(value):
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)
