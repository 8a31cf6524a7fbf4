"""Find the best and the worst place of each resource that an experiment declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from chaosity.compare.selections import cell_group_text
from chaosity.figures.figure_data import make_axis_value
from chaosity.place_names import access_in_words, place_in_words
from chaosity.statistics.cell_summary import summarise_cells, summarise_corun_to_alone_ratios
from chaosity.statistics.estimates import Estimate, is_variation_between_cells_significant
from chaosity.store.measurements import (
    LOAD_COLUMNS,
    POINT_COLUMNS,
    Measurements,
    equals_or_in_list,
    is_percentile,
    less_is_better,
    parse_levels_json,
)
from chaosity.text_templates import texts_of_yaml_file
from chaosity.units import (
    choose_scale,
    format_binary_bytes,
    format_count,
    format_percent,
    join_with_and,
)

# Name of a level or relation in the tidy table -> words for it, in the order of the report's rows.
_REPORT_TEXTS = texts_of_yaml_file("report")
DRIVE_SET_TEXTS: dict[str, str] = _REPORT_TEXTS["drive_sets"]
LEVEL_TEXTS = _REPORT_TEXTS["initiators"] | DRIVE_SET_TEXTS | _REPORT_TEXTS["relations"]


@dataclass(frozen=True)
class MeasuredPlace:
    """A measured value and its place as texts."""

    value: str  # median with unit
    interval: str  # "95 % interval ... to ..., n = 3", or "no interval: n = 1"
    where: str  # initiator and target in words, and the co-running loads
    point: str  # name of the point


@dataclass(frozen=True)
class BestAndWorstPlace:
    """A row of the report's table: one resource at one level, with its best and worst place."""

    name: str  # name of the resource and the level
    detail: str  # benchmark, kernel and label of the load, and the number of places
    # best, worst: the best and the worst place; `worst` is None if there is only one place.
    best: MeasuredPlace
    worst: MeasuredPlace | None
    # Worst value divided by best value, as text in per cent; None if there is only one place.
    share: str | None
    places_differ: bool | None  # whether places differ by more than noise; None if unknown


@dataclass(frozen=True)
class ResourceLevel:
    """One resource at one level of the machine, with the resource's rows in each tidy table.

    For example, the resource is memory bandwidth, and the level is one node.
    """

    resource: str  # name of the resource, for example "Memory bandwidth"
    level: str  # the level in words, for example "one node"; "" if the resource has no levels
    tables: tuple[Measurements, ...]  # rows of each table; empty if a table lacks the level

    @property
    def full_name(self) -> str:
        """Return the name of the resource, and its level if it has one."""
        return ", ".join(filter(None, (self.resource, self.level)))

    @cached_property
    def cells(self) -> tuple[pd.DataFrame, ...]:
        """Return the valid cells of each table (see `summarise_cells`), the best cell first."""
        return tuple(map(_cells_best_first, self.tables))

    @property
    def load(self) -> str:
        """Return benchmark, kernel, label and levels of the load, which all places share."""
        return _load_text(next(table for table in self.tables if len(table)).rows.iloc[0])


def resource_table_rows(
    measurements: Measurements, experiments: Iterable[Mapping[str, Any]]
) -> list[BestAndWorstPlace]:
    """Return all rows of the table: loads alone, then slowdowns of co-running loads."""
    levels = resource_levels([measurements], experiments)
    rows = [_best_and_worst_place(level) for level in levels if len(level.cells[0])]
    return rows + _slowdown_rows(measurements)


def resource_levels(
    tables: Sequence[Measurements], experiments: Iterable[Mapping[str, Any]]
) -> Iterator[ResourceLevel]:
    """Yield each resource that the experiments declare at each of its levels, in order.

    If firmware makes one node of each package, a table has the level of nodes but not of packages.
    So if a table lacks a level of initiators that another table has, those of its rows are used
    which have as many threads as the level has in the other table.
    """
    alone = [table.single_load_rows() if len(table) else table for table in tables]
    for experiment in experiments:
        for entry in experiment.get("resources", ()):
            chosen = [_declared_rows(rows, experiment["experiment"], entry) for rows in alone]
            if column := entry.get("levels"):
                levels = {level for each in chosen for level in each.rows[column].dropna()}
                for level in sorted(levels, key=_sort_key_of_level):
                    words = LEVEL_TEXTS.get(level, level.replace("_", " "))
                    yield ResourceLevel(entry["name"], words, _rows_at_level(chosen, column, level))
            elif any(map(len, chosen)):
                yield ResourceLevel(entry["name"], "", tuple(chosen))


def _declared_rows(
    measurements: Measurements, experiment: str, entry: Mapping[str, Any]
) -> Measurements:
    """Return the rows that an entry of `resources` selects; none if they were not measured."""
    keys = {"experiment": experiment, "load": entry["load"], "metric": entry["metric"]}
    found = measurements.where(**keys)
    for column, wanted in entry.get("where", {}).items():
        known = column in found.rows
        values = found.rows[column] if known else found.factor_level_of_each_row(column)
        found = found.select(equals_or_in_list(values, wanted))
    return found


def _sort_key_of_level(level: str) -> tuple[int, str]:
    """Return the sort key of a level; the levels of `LEVEL_TEXTS` come first, in their order."""
    known = list(LEVEL_TEXTS)
    return (known.index(level) if level in known else len(known), level)


def _rows_at_level(
    tables: Sequence[Measurements], column: str, level: str
) -> tuple[Measurements, ...]:
    """Return the rows of each table at a level; without any, its rows with the level's threads."""
    found = [table.where(**{column: level}) for table in tables]
    threads = {number for each in found for number in each.rows["threads"].dropna()}
    if column == "initiator_kind" and len(threads) == 1:
        found = [
            each if len(each) else table.where(threads=[*threads])
            for each, table in zip(found, tables, strict=True)
        ]
    return tuple(found)


def _cells_best_first(measurements: Measurements) -> pd.DataFrame:
    cells = summarise_cells(measurements.rows)
    cells = cells[cells["status"] == "valid"]
    if cells.empty:
        return cells
    ascending = less_is_better(cells["metric"].iloc[0])
    return cells.sort_values("median", ascending=ascending, kind="stable")


def _load_text(row: pd.Series) -> str:
    """Return benchmark, kernel, label and levels of a row's load in words."""
    levels = dict(parse_levels_json(row["load_parameters"]))
    levels.pop("responder", None)  # the place names the responder
    named = (row["benchmark"], row["kernel"], row["label"])
    parts = [text.replace("_", " ") for text in named if isinstance(text, str)]
    if size := levels.pop("bytes", None):
        parts.append(format_binary_bytes(size))
    for name, form in (("pages", "{} pages"), ("share", "{} % of its peak")):
        if name in levels:
            parts.append(form.format(levels.pop(name)))
    for name, value in levels.items():
        parts.append(f"{name.replace('_', ' ')} {make_axis_value(value, column=name).short_label}")
    return ", ".join(parts)


def measured_place(cell: pd.Series) -> MeasuredPlace:
    """Return the median, the interval and the place of a cell as texts."""
    where = access_in_words(cell["initiator"], cell["target"])
    if responder := parse_levels_json(cell.get("factors")).get("responder"):
        where = access_in_words(cell["initiator"], responder)
        where += f", line on {place_in_words(cell['target'])}"
    scale = choose_scale(cell["metric"], [cell["median"]])
    return _make_measured_place(cell, scale.text(cell["median"]), scale.number, scale.symbol, where)


def _make_measured_place(
    cell: pd.Series, value: str, number: Callable[[float], str], unit: str, where: str
) -> MeasuredPlace:
    interval = Estimate.of_cell(cell.to_dict()).interval_and_n_text(number, unit)
    return MeasuredPlace(value, interval, where, str(cell["point"]))


def _best_and_worst_place(level: ResourceLevel) -> BestAndWorstPlace:
    [measurements], [cells] = level.tables, level.cells
    best, worst, several = cells.iloc[0], cells.iloc[-1], len(cells) > 1
    # The share of a latency is in per cent too, so that the column has one unit: 250 % means that
    # the worst latency is 2.5 times the best.
    share_text = format_percent(worst["median"] / best["median"])
    return BestAndWorstPlace(
        name=level.full_name,
        detail=f"{level.load}, {format_count(len(cells), 'place')}",
        best=measured_place(best),
        worst=measured_place(worst) if several else None,
        share=share_text if several else None,
        places_differ=is_variation_between_cells_significant(measurements.rows)
        if several
        else None,
    )


def _slowdown_rows(measurements: Measurements) -> list[BestAndWorstPlace]:
    """Return a row for each metric, with the ratios of co-running loads to these loads alone."""
    ratios = summarise_corun_to_alone_ratios(measurements)
    ratios = ratios[ratios["status"] == "valid"]
    if ratios.empty:
        return []
    loads = measurements.rows[[*POINT_COLUMNS, *LOAD_COLUMNS]].drop_duplicates()

    def place_with_slowdown(cell: pd.Series) -> MeasuredPlace:
        of_point = loads[(loads[[*POINT_COLUMNS]] == cell[[*POINT_COLUMNS]]).all(axis=1)]
        return _slowdown_place(cell, of_point)

    rows = []
    for key, cells in ratios.groupby(["category", "metric"], sort=False):
        category, metric = map(str, key)
        if is_percentile(metric):  # figures have percentiles, this table has not
            continue
        title = cell_group_text(category, metric)
        ordered = cells.sort_values("median", ascending=less_is_better(metric), kind="stable")
        rows.append(
            BestAndWorstPlace(
                name=f"{title[:1].upper()}{title[1:]}, co-running / alone",
                detail=format_count(len(cells), "value"),
                best=place_with_slowdown(ordered.iloc[0]),
                worst=place_with_slowdown(ordered.iloc[-1]) if len(cells) > 1 else None,
                share=None,
                places_differ=None,
            )
        )
    return rows


def _slowdown_place(cell: pd.Series, loads: pd.DataFrame) -> MeasuredPlace:
    """Return ratio, interval and place of a load as texts; the place also has co-running loads."""

    def per_cent(ratio: float) -> str:
        return format_percent(ratio).removesuffix(" %")

    others = loads[(loads[[*LOAD_COLUMNS]] != cell[[*LOAD_COLUMNS]]).any(axis=1)]
    beside = [
        f"{str(name).replace('_', ' ')} from "
        + (
            access_in_words(own["initiator"].iloc[0], own["target"].iloc[0])
            if len(own) == 1
            else f"{len(own)} other places"
        )
        for name, own in others.groupby("load", sort=False)
    ]
    where = access_in_words(cell["initiator"], cell["target"])
    where += f", beside {join_with_and(beside)}" if beside else ""
    return _make_measured_place(cell, format_percent(cell["median"]), per_cent, "%", where)
