"""Make the table of resources: a row for each resource with its best and its worst place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pandas as pd

from chaosity.compare.comparison_text import group_text
from chaosity.compare.matched_cells import OTHER_NODES, OWN_NODE, own_or_other_node
from chaosity.figures.axis_order_and_labels import make_axis_value
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.corun_interference import summarise_corun_to_alone_ratios
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.statistics.significance_tests import is_variation_between_cells_significant
from chaosity.store.measurements import (
    LOAD,
    POINT,
    Measurements,
    equals_or_in_list,
    less_is_better,
    parse_levels_json,
)
from chaosity.text_templates import fixed_texts
from chaosity.units import (
    choose_scale,
    format_binary_bytes,
    format_count,
    format_percent,
)

# Kinds of initiators and of drive sets with their names in the table, small to large.
INITIATORS: dict[str, str] = fixed_texts("report")["initiators"]
DRIVES: dict[str, str] = fixed_texts("report")["drive_sets"]
_LEVELS = INITIATORS | DRIVES
# Percentiles such as latency_p99_of_block_means_ns are in the figures, not in this table.
_PERCENTILE = re.compile(r"_p\d+_")


@dataclass(frozen=True)
class MeasuredPlace:
    """A measured value and its place, as text."""

    value: str  # median with unit
    interval: str  # "95 % interval ... to ..., n = 3", or "no interval: n = 1"
    where: str  # initiator and target, or the point's name


@dataclass(frozen=True)
class ResourceRow:
    """A row of the table."""

    name: str  # name of the resource and the level
    detail: str  # benchmark, kernel, label, number of places
    # best, worst: the best and the worst place; worst is None with a single place.
    best: MeasuredPlace
    worst: MeasuredPlace | None
    share: str | None  # worst value divided by best value, as text; None with a single place
    differ: bool | None  # whether the places differ by more than noise; None if unknown


@dataclass(frozen=True)
class ResourceAtMachineLevel:
    """Comparable rows of a resource at one level of the machine."""

    resource: str  # for example "Memory bandwidth"
    key: str  # key of the level in INITIATORS or DRIVES
    measurements: Measurements  # rows of one experiment, benchmark, kernel and levels
    part: str | None = None  # OWN_NODE or OTHER_NODES if rows are split by relation, else None

    @property
    def full_name(self) -> str:
        """Return the resource, level and part."""
        return f"{self.resource}, {self.level_text}"

    @property
    def level_text(self) -> str:
        """Return the level and part, without the resource."""
        return ", ".join(filter(None, (_LEVELS[self.key], self.part)))


def resource_table(measurements: Measurements) -> list[ResourceRow]:
    """Return all rows: loads alone by level, then the slowdowns of co-running loads."""
    rows = [_resource_row(level) for level in resources_at_machine_levels(measurements)]
    return [row for row in rows if row is not None] + _slowdown_rows(measurements)


def resources_at_machine_levels(measurements: Measurements) -> Iterator[ResourceAtMachineLevel]:
    """Yield each resource that was measured alone, at each level from small to large."""
    for (category, metric), part in _alone(measurements).groups_by_columns(["category", "metric"]):
        if _PERCENTILE.search(metric):
            continue
        level, resource = _level_of(part), _resource_title(category, metric)
        for key in _LEVELS:
            chosen = _most_comparable(part.select(level == key), part)
            for own_or_other in _split_by_relation(chosen):
                wanted = {own_or_other} if own_or_other else {OWN_NODE, OTHER_NODES}
                rows = chosen.select(own_or_other_node(chosen).isin(wanted))
                yield ResourceAtMachineLevel(resource, key, rows, own_or_other)


def _alone(measurements: Measurements) -> Measurements:
    """Return the rates and times of loads that ran alone."""
    return measurements.single_load_rows().performance_rows() if len(measurements) else measurements


def _level_of(measurements: Measurements) -> pd.Series:
    """Return, for each row, its level: the kind of its drive set, or else of its initiator."""
    rows = measurements.rows
    return rows["target_kind"].where(rows["target_kind"].isin(DRIVES), rows["initiator_kind"])


def _split_by_relation(measurements: Measurements) -> list[str | None]:
    """Return [OWN_NODE, OTHER_NODES] for times with both, which have separate rows; else [None]."""
    if not len(measurements):
        return []
    # For core-to-core transfers, the relation is that of the line's home, not of the two cores.
    has_responder = measurements.load_level_of_each_row("responder").iloc[0] is not None
    if has_responder or not less_is_better(measurements.rows["metric"].iloc[0]):
        return [None]
    return [OWN_NODE, OTHER_NODES] if own_or_other_node(measurements).nunique() == 2 else [None]


def rows_comparable_to_level(
    measurements: Measurements, level: ResourceAtMachineLevel
) -> Measurements:
    """Return the rows of another configuration that are comparable to a level.

    If firmware makes a package a single node, the level of the package has no name of its own. So
    if no rows have the level's name, the rows with the level's number of threads are returned.
    """
    reference = level.measurements
    first = reference.rows.iloc[0]
    columns = ("category", "metric", "experiment", "benchmark", "kernel")
    found = _alone(measurements).where(**{column: first[column] for column in columns})
    found = found.select(_requests(found) == _requests(reference).iloc[0])
    if level.part is not None:
        found = found.select(own_or_other_node(found) == level.part)
    named = found.select(_level_of(found) == level.key)
    if len(named) or level.key in DRIVES:
        return named
    return found.select(found.rows["threads"].isin(reference.rows["threads"].unique()))


def _resource_title(category: str, metric: str) -> str:
    """Return a title such as "Memory bandwidth"."""
    words = group_text(category, metric)
    return words[:1].upper() + words[1:]


def _most_comparable(level: Measurements, category: Measurements) -> Measurements:
    """Return the largest group of rows of one experiment, benchmark, kernel and levels.

    The group with the most places at this level is selected. If several groups tie, these decide:
    the largest working set (smaller sets fit into caches), the experiment with most points and its
    kernel with most rows, the better values (larger pages show the memory, smaller pages the TLB).
    """
    if not len(level):
        return level

    def _rank_of_rows(part: Measurements) -> tuple[int, float, int, int, float]:
        first = part.rows.iloc[0]
        experiment = category.rows[category.rows["experiment"] == first["experiment"]]
        kernel = experiment[equals_or_in_list(experiment["kernel"], first["kernel"])]
        points = experiment["point"].nunique()
        size = float(json.loads(first["_request"]).get("bytes") or 0)
        return part.initiator_target_pair_count, size, points, len(kernel), part.median_for_ranking

    requests = level.with_columns(_request=_requests(level))
    best = requests.highest_ranked_group(
        ["experiment", "benchmark", "kernel", "_request"], _rank_of_rows
    )
    return Measurements(best.rows.drop(columns="_request"))


def _requests(measurements: Measurements) -> pd.Series:
    """Return, for each row, its load's levels as JSON, without the responder, which is a place."""

    def _request_of_row(text: str) -> str:
        return json.dumps({k: v for k, v in parse_levels_json(text).items() if k != "responder"})

    return measurements.rows["load_parameters"].map(cache(_request_of_row))


def _resource_row(level: ResourceAtMachineLevel) -> ResourceRow | None:
    """Return the row of a level; None without a valid cell."""
    cells = cells_best_first(level.measurements)
    if cells.empty:
        return None
    best, worst, several = cells.iloc[0], cells.iloc[-1], len(cells) > 1
    share = worst["median"] / best["median"]
    share_text = f"{share:.2f} times" if less_is_better(best["metric"]) else format_percent(share)
    return ResourceRow(
        name=level.full_name,
        detail=f"{load_description(level.measurements)}, {format_count(len(cells), 'place')}",
        best=measured_place(best),
        worst=measured_place(worst) if several else None,
        share=share_text if several else None,
        differ=is_variation_between_cells_significant(level.measurements.rows) if several else None,
    )


def load_description(measurements: Measurements) -> str:
    """Return benchmark, kernel, label and levels of comparable loads."""
    first = measurements.rows.iloc[0]
    levels = json.loads(_requests(measurements).iloc[0])
    named = (first["benchmark"], first["kernel"], first["label"])
    parts = [text.replace("_", " ") for text in named if isinstance(text, str)]
    if size := levels.pop("bytes", None):
        parts.append(format_binary_bytes(size))
    for name, form in (("pages", "{} pages"), ("share", "{} % of its peak")):
        if name in levels:
            parts.append(form.format(levels.pop(name)))
    for name, value in levels.items():
        parts.append(f"{name.replace('_', ' ')} {make_axis_value(value, column=name).short}")
    return ", ".join(parts)


def cells_best_first(measurements: Measurements) -> pd.DataFrame:
    """Return the valid cells of `summarise_cells`, the best first."""
    cells = summarise_cells(measurements.rows)
    cells = cells[cells["status"] == "valid"]
    if cells.empty:
        return cells
    ascending = less_is_better(cells["metric"].iloc[0])
    return cells.sort_values("median", ascending=ascending, kind="stable")


def measured_place(cell: pd.Series) -> MeasuredPlace:
    """Return value, interval and place of a cell."""
    where = f"{cell['initiator']} \N{RIGHTWARDS ARROW} {cell['target']}"
    if responder := parse_levels_json(cell.get("factors")).get("responder"):
        where = f"{cell['initiator']} \N{LEFT RIGHT ARROW} {responder}, line on {cell['target']}"
    scale = choose_scale(cell["metric"], [cell["median"]])
    interval = Estimate.of_cell(cell.to_dict()).interval_and_n_text(scale.number)
    return MeasuredPlace(scale.text(cell["median"]), interval, where)


def _slowdown_rows(measurements: Measurements) -> list[ResourceRow]:
    """Return a row for each metric: the ratios of co-running loads to the same loads alone."""
    ratios = summarise_corun_to_alone_ratios(measurements)
    ratios = ratios[ratios["status"] == "valid"]
    if ratios.empty:
        return []
    loads = measurements.rows[[*POINT, *LOAD]].drop_duplicates().groupby([*POINT, "load"]).size()
    keys = pd.MultiIndex.from_frame(ratios[[*POINT, "load"]])
    ratios = ratios.assign(several=loads.reindex(keys).to_numpy() > 1)
    rows = []
    for key, cells in ratios.groupby(["category", "metric"], sort=False):
        category, metric = map(str, key)
        if _PERCENTILE.search(metric):
            continue
        times = less_is_better(metric)
        ordered = cells.sort_values("median", ascending=times, kind="stable")
        unit = "ratio to" if times else "share of"
        rows.append(
            ResourceRow(
                name=f"{_resource_title(category, metric)}, co-running",
                detail=f"{unit} the value alone, {format_count(len(cells), 'value')}",
                best=_slowdown_place(ordered.iloc[0], times),
                worst=_slowdown_place(ordered.iloc[-1], times) if len(cells) > 1 else None,
                share=None,
                differ=None,
            )
        )
    return rows


def _slowdown_place(cell: pd.Series, times: bool) -> MeasuredPlace:
    """Return ratio, interval and point of a co-running load; ratios of rates are in per cent."""

    def _endpoint_text(ratio: float) -> str:
        return f"{ratio:.2f} times" if times else format_percent(ratio)

    where = str(cell["point"])
    if cell["several"]:
        where = f"{cell['initiator']} \N{RIGHTWARDS ARROW} {cell['target']} in {where}"
    interval = Estimate.of_cell(cell.to_dict()).interval_and_n_text(_endpoint_text)
    return MeasuredPlace(_endpoint_text(cell["median"]), interval, where)
