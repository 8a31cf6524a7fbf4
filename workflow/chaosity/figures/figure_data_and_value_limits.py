"""Select the marks and axes of a figure from the measurements, and the limits of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, cast

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.figures.axis_order_and_labels import (
    Axis,
    AxisValue,
    add_node_of_pu,
    axis_title,
    make_axis_value,
    sort_and_group_axis_values,
)
from chaosity.figures.column_values_and_upper_bounds import (
    FigureColumnValues,
    MeasuredBound,
    parse_node_list,
)
from chaosity.figures.figure_spec import FigureSpec, Role
from chaosity.figures.sums_of_loads import LARGER_ALONE, SUM, add_sums_of_loads
from chaosity.statistics.cell_summary import replace_values, summarise_cells
from chaosity.statistics.latency_steps import LatencyStep, find_latency_steps
from chaosity.store.left_out_points import PREDICTED, LeftOutPoints
from chaosity.store.measurements import CELL, LOAD, Measurements, equals_or_in_list, less_is_better
from chaosity.topology.topology_model import Topology
from chaosity.units import UnitScale, choose_scale

ALONE = "alone"  # level of a factor that relates two loads, for a load without the other
_Function = Literal["median", "min", "max"]
_COMBINE: Mapping[str, _Function] = {"median": "median", "minimum": "min", "maximum": "max"}
_ROLES: tuple[Role, ...] = ("panels", "series", "rows", "columns", "x")


class FigureMark(TypedDict, total=False):
    """A mark of a figure: a row of `FigureData.marks`.

    `panels`, `series`, `rows`, `columns` and `x` are names of values on these axes; `series` is
    null for a mark outside all series. `position`, `position_low` and `position_high` are a
    measured x with its interval. `note` is a second value in a cell. The other keys are columns of
    `statistics.summarise_cells`.
    """

    panels: str
    series: str | None
    rows: str
    columns: str
    x: str
    position: float
    position_low: float
    position_high: float
    true_position: float
    note: float
    point: str
    initiator: str
    target: str
    kernel: str | None
    label: str | None
    file_backed: bool
    status: str
    reason: str | None
    median: float
    low: float
    high: float
    n: int
    n_failed: int
    outliers: int
    predicted_value: float
    predicted_low: float
    predicted_high: float
    predicted_lower_bound: float
    predicted_upper_bound: float


def mark_rows(table: pd.DataFrame) -> list[FigureMark]:
    """Return the rows of a table of marks."""
    return cast(list[FigureMark], table.to_dict("records"))


def has_number(mark: FigureMark) -> bool:
    """Return whether a mark has a measured or predicted value."""
    return mark["status"] in ("valid", PREDICTED)


def shown_value(mark: FigureMark) -> float:
    """Return the median of a mark, or its prediction if it was not measured."""
    return mark["predicted_value"] if mark["status"] == PREDICTED else mark["median"]


def shown_interval(mark: FigureMark) -> tuple[float, float]:
    """Return the ends of a mark's interval, or of that of its prediction; NaN if unknown."""
    if mark["status"] == PREDICTED:
        return mark["predicted_low"], mark["predicted_high"]
    return mark["low"], mark["high"]


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn in a figure: its marks, axes and bounds."""

    spec: FigureSpec  # description of the figure
    axes: Mapping[Role, Axis]  # role -> axis, for the axes that the figure has
    marks: pd.DataFrame  # table with a row for each mark, see `FigureMark`
    # The selected measurements, with the columns of `marks` that name values; also with `level` if
    # the figure compares levels, and with the numbers `x` if x is measured.
    measurements: pd.DataFrame
    x_metric: str = ""  # metric (or column, if it is not a metric) of a measured x; else empty
    # Bounds of the marks, measured elsewhere in the experiment.
    bounds: tuple[MeasuredBound, ...] = ()
    # Steps of latency over the sizes; empty unless the figure marks them.
    steps: tuple[LatencyStep, ...] = ()
    # Sizes of the data caches by hwloc, ascending: ("L1", 32768).
    cache_bytes: tuple[tuple[str, int], ...] = ()

    @property
    def labels_required_by_benchmarks(self) -> list[str]:
        """Return the labels that benchmarks require next to their values."""
        texts = {label for label in self.marks["label"] if isinstance(label, str)}
        # The title says that a file replaced the drives.
        labels = {text.removesuffix("file-backed").removesuffix(", ") for text in texts}
        return sorted(labels - {""})

    @property
    def mark_noun(self) -> str:
        """Return the word for a mark of this figure: cell, bar or point."""
        return {"heatmap": "cell", "table": "cell", "bars": "bar"}.get(self.spec.kind, "point")

    @property
    def title(self) -> str:
        """Return the figure's title, with a remark when a file replaced the drives."""
        return self.spec.title + " (file-backed)" * bool(self.marks["file_backed"].any())

    @property
    def measured_x_column(self) -> str:
        """Return the name of the column of a measured x, as in the figure's YAML."""
        return str(self.spec.x)

    @property
    def x_is_metric_of_other_load(self) -> bool:
        """Whether a measured x is a metric of another load of the point."""
        return self.x_metric != self.measured_x_column

    def value_names_on_axis(self, role: Role) -> list[str] | list[None]:
        """Return the names on an axis in order; [None] when the figure does not have the axis."""
        return self.axes[role].value_names if role in self.axes else [None]

    def value_label_without_axis_title(self, role: Role, name: str) -> str:
        """Return the label of a value that is clear without the axis title."""
        return self.axes[role].find_value_by_name(name).long


def best_mark(data: FigureData) -> FigureMark | None:
    """Return the valid mark with the best median of the figure; of equal marks, the first.

    None if all measurements failed.
    """
    valid = data.marks[data.marks["status"] == "valid"]
    less = less_is_better(data.spec.metric)
    best = mark_rows(valid.sort_values("median", ascending=less, kind="stable").head(1))
    return best[0] if best else None


def select_figure_data(
    spec: FigureSpec,
    measurements: Measurements,
    topology: Topology,
    left_out: LeftOutPoints | None = None,
) -> FigureData | None:
    """Return the marks and axes of a figure, selected from the measurements.

    Args:
        spec: description of the figure.
        measurements: of a host in one configuration.
        topology: topology of the host; empty when it is unknown.
        left_out: points that a budget left out. Heat maps show them and their predictions; bars
            and lines show those that are predicted.

    Returns:
        The data; None when no point of this host belongs to the figure.

    Raises:
        UserError: the figure names an unknown column, or several points fall on a mark and the
            figure does not say how to combine them.
    """
    experiment = measurements.where(experiment=spec.experiment)
    if left_out is not None and spec.kind in ("bars", "lines"):
        left_out = left_out.predicted_only()
    if spec.kind not in ("heatmap", "bars", "lines") or spec.combine is not None or spec.sum:
        left_out = None
    if left_out is not None:
        experiment = left_out.with_measured(measurements).where(experiment=spec.experiment)
    selected = experiment.where(load=spec.load, metric=spec.metric)
    columns, rows = FigureColumnValues(spec, selected, experiment), selected.rows
    for column, wanted in spec.where.items():
        if rows.empty:  # leave out these points, and with them the levels that no other point has
            return None
        rows = rows[equals_or_in_list(columns.values_of_column(column).loc[rows.index], wanted)]
    if rows.empty:
        return None
    rows = rows.copy()
    axes: dict[Role, Axis] = {}
    for role in _ROLES:
        if spec.column_of_axis(role) is not None:
            axes[role], rows[role] = _axis(spec, role, columns, rows, topology)
    if spec.compare is not None:
        rows["level"] = columns.values_of_column(spec.compare["column"]).loc[rows.index].map(str)
    if spec.cell_note is not None:
        rows["note"] = columns.values_of_column(spec.cell_note).loc[rows.index]
    rows = rows.dropna(subset=[role for role in axes if role != "series"])
    if rows.empty:
        return None
    if spec.has_measured_x:
        return _with_measured_x(spec, axes, rows, columns)
    if spec.sum:
        rows = add_sums_of_loads(rows, experiment)
        added = map(make_axis_value, (SUM, LARGER_ALONE))
        axes["series"] = axes["series"].with_values([*axes["series"].values, *added])
    if "series" in axes:
        axes["series"], rows = _arrange_series(spec, axes["series"], rows)
    by: list[str] = [*axes, "initiator", "target"] if spec.kind == "table" else [*axes]
    combined = _combine_points(spec, rows, by)
    marks = summarise_cells(combined, list(dict.fromkeys(["host", "configuration", *by])))
    if left_out is not None:
        marks = left_out.mark_cells(marks)
    bounds = _measured_bounds(spec, measurements, topology)
    data = FigureData(spec, axes, marks, rows, bounds=bounds)
    return _with_latency_steps(data, combined, topology) if spec.cache_steps else data


def _measured_bounds(
    spec: FigureSpec, measurements: Measurements, topology: Topology
) -> tuple[MeasuredBound, ...]:
    """Return the bounds of a figure that were measured.

    A bound is a figure of its own: the median of the points with its load and metric. A bound that
    is constant along x is the same for all series: the resource behind it, such as memory, need not
    belong to a series.
    """
    bounds = []
    for entry in spec.bounds:
        along_x = entry.get("along_x", False)
        figure = FigureSpec(
            *(spec.experiment, spec.name, "lines", entry["title"], (entry["load"],)),
            metric=entry["metric"],
            where=entry.get("where", {}),
            panels=spec.panels,
            series=spec.series if along_x else None,
            x=spec.x if along_x else None,
            combine="median",
        )
        data = select_figure_data(figure, measurements, topology)
        marks = mark_rows(data.marks[data.marks["status"] == "valid"]) if data else []
        values = {
            (mark.get("panels"), mark.get("series"), mark.get("x")): mark["median"]
            * entry.get("times", 1.0)
            for mark in marks
        }
        if values:
            bounds.append(MeasuredBound(entry["title"], along_x, values))
    return tuple(bounds)


def _with_latency_steps(data: FigureData, rows: pd.DataFrame, topology: Topology) -> FigureData:
    """Return the figure with the sizes at which latency steps up, and with the cache sizes."""
    sizes = {value.name: value.number for value in data.axes["x"].values}
    valid = rows[rows["status"] == "valid"]
    known = {
        (f"L{cache.level}", cache.size_bytes)
        for cache in topology.caches
        if cache.kind != "instruction" and cache.size_bytes
    }
    steps = find_latency_steps(valid.assign(x=valid["x"].map(sizes)))
    return replace(data, steps=steps, cache_bytes=tuple(sorted(known)))


def _axis(
    spec: FigureSpec,
    role: Role,
    columns: FigureColumnValues,
    rows: pd.DataFrame,
    topology: Topology,
) -> tuple[Axis, pd.Series]:
    """Return the axis with all values of its column, and for each row the name of its value.

    Names that `where` lists are in the order of that list, since kernels have no natural order.
    """
    column = str(spec.column_of_axis(role))
    levels = columns.values_of_column(column).loc[rows.index]
    listed = spec.where.get(column)
    order = list(map(str, listed)) if isinstance(listed, list) else []
    of_place = column in ("initiator", "target")
    nodes = rows[f"{column}_nodes"] if of_place else [None] * len(rows)
    found: dict[object, AxisValue] = {}
    for level, list_of_nodes in zip(levels, nodes, strict=True):
        if not pd.isna(level) and level not in found:
            value = make_axis_value(level, parse_node_list(list_of_nodes), column)
            value = add_node_of_pu(value, topology)
            if value.kind == "text" and value.name in order:
                value = replace(value, order=(order.index(value.name),))
            found[level] = value
    names = [None if pd.isna(level) else found[level].name for level in levels]
    values = {value.name: value for value in found.values()}.values()
    ordered, groups = sort_and_group_axis_values(values, topology.package_of_node)
    title = getattr(spec, f"{role}_title") or axis_title(column, ordered)
    axis = Axis(column, title, tuple(ordered), tuple(groups))
    return axis, pd.Series(names, rows.index, dtype=object)


def _arrange_series(spec: FigureSpec, axis: Axis, rows: pd.DataFrame) -> tuple[Axis, pd.DataFrame]:
    """Put the reference first or outside the series; repeat points that belong to all series."""
    if spec.loss_to is not None:
        axis = axis.with_values(sorted(axis.values, key=lambda value: value.name != spec.loss_to))
    else:
        alone = rows["series"] == ALONE
        # "alone" is a reference and not a line of its own when it has a single value of x.
        if alone.any() and not alone.all() and rows.loc[alone, "x"].nunique() == 1:
            axis = axis.with_values(value for value in axis.values if value.name != ALONE)
            rows = rows.assign(series=rows["series"].where(~alone, None))
    others = [value for value in axis.values if value.name not in spec.in_every_series]
    if not others or len(others) == len(axis.values):
        return axis, rows
    # For example, a single thread is both packed and spread.
    shared = rows["series"].isin(spec.in_every_series)
    copies = [rows[shared].assign(series=value.name) for value in others]
    return axis.with_values(others), pd.concat([rows[~shared], *copies], ignore_index=True)


def _with_measured_x(
    spec: FigureSpec, axes: dict[Role, Axis], rows: pd.DataFrame, columns: FigureColumnValues
) -> FigureData | None:
    """Return a figure with a measured x: one mark for each load of a point."""
    x_values, metric = columns.numbers_of_column_or_metric(str(spec.x))
    rows["x"] = x_values.loc[rows.index]
    if metric is None:
        rows = rows.dropna(subset=["x"])
    if rows.empty:
        return None
    if "series" in axes and not axes["series"].values:
        del axes["series"]
    by = [*CELL, *axes]
    marks = summarise_cells(rows, by)
    positions = summarise_cells(replace_values(rows, rows["x"]), by)
    columns_of_x = ["position", "position_low", "position_high"]
    marks[columns_of_x] = positions[["median", "low", "high"]].to_numpy()
    if spec.kind == "curve":
        _check_lines(spec, rows, [role for role in axes if rows[role].notna().any()])
    return FigureData(spec, axes, marks, rows, metric or str(spec.x))


def _check_lines(spec: FigureSpec, rows: pd.DataFrame, roles: list[Role]) -> None:
    """Raise a `UserError` if a line joins points of several initiators or targets."""
    lines = rows.groupby(list(roles), dropna=False) if roles else [("the figure", rows)]
    for line, points in lines:
        for column in ("initiator", "target"):
            found = sorted(map(str, points[column].unique()))
            if len(found) > 1:
                words = ", ".join(map(str, line if isinstance(line, tuple) else (line,)))
                raise UserError(
                    f"the line of {words} joins points of several {column}s: "
                    f"{', '.join(found[:4])}",
                    spec.name_in_errors,
                    "narrow `where`, or separate the points by `series` or `panels`",
                )


def _combine_points(spec: FigureSpec, rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return rows with one point per mark; several points are combined in each replicate block.

    A replicate of a mark is valid if it is valid for any of the points; only valid points are
    combined. A `UserError` is raised when the figure does not say how to combine several points.
    """
    points = rows[list(dict.fromkeys([*by, "point", *LOAD]))].drop_duplicates()
    shared = points.groupby(by, dropna=False).size()
    if (shared <= 1).all():
        return rows
    if spec.combine is None:
        raise _shared_mark_error(spec, points, shared, by)
    ordered = rows.sort_values("status", key=lambda status: status != "valid", kind="stable")
    keys = ["host", "configuration", *by, "replicate"]
    blocks = rows.groupby(keys, dropna=False)["value"]
    values = blocks.transform(_COMBINE[spec.combine])
    combined = replace_values(ordered, values.loc[ordered.index])
    return combined.drop_duplicates(keys).sort_index()


def _shared_mark_error(
    spec: FigureSpec, points: pd.DataFrame, shared: pd.Series, by: list[str]
) -> UserError:
    """Return the error that names the mark with most points and the first three of these points."""
    key = shared.idxmax()
    values = key if isinstance(key, tuple) else (key,)
    for role, value in zip(by, values, strict=True):
        points = points[points[role].eq(value) | (points[role].isna() & pd.isna(value))]
    names = list(points["point"].drop_duplicates())
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    mark = ", ".join(f"{role} {value}" for role, value in zip(by, values, strict=True))
    return UserError(
        f"{shared.max()} points fall on the mark {mark}: {listed}",
        spec.name_in_errors,
        "narrow `where`, add `panels`, or say how to `combine` the points",
    )


# A colour scale spans at least this share of its top value, so that noise of a few per cent does
# not look like structure.
LEAST_SPAN = 0.25


@dataclass(frozen=True)
class ShownValueRange:
    """Limits of the values that one or several figures show."""

    low: float  # smallest value of a colour bar, in the metric's unit
    high: float  # largest value, in the metric's unit; above low
    scale: UnitScale  # unit of the shown numbers
    least: float = math.nan  # first value of a logarithmic axis; NaN when no value is positive


def find_round_value_limits(
    metric: str, figures: Sequence[FigureData], *, with_intervals: bool = False
) -> ShownValueRange:
    """Return round limits that include every value and bound of figures of one metric.

    `with_intervals`: whether the intervals must fit too.
    """
    columns = ["median", "predicted_value"]
    if with_intervals:
        columns += ["low", "high", "predicted_low", "predicted_high"]
    shown = [
        data.marks[data.marks.columns.intersection(columns)].to_numpy(float).ravel()
        for data in figures
    ]
    shown += [np.array(list(bound.values.values())) for data in figures for bound in data.bounds]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if not len(values):
        return ShownValueRange(0.0, 1.0, choose_scale(metric, [1.0]))
    top = float(values.max())
    scale = choose_scale(metric, [top])
    if top <= 0.0:
        return ShownValueRange(float(values.min()) - 1.0, 1.0, scale)
    bottom = min(float(values.min()), (1.0 - LEAST_SPAN) * top)
    # The smallest 1, 2 or 5 times a power of ten that is not less than a tenth of the range.
    width = (top - bottom) / 10.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(n * power for n in (1.0, 2.0, 5.0, 10.0) if n * power >= width * 0.999)
    low = math.floor(bottom / step + 1e-9) * step
    least = float(min(values[values > 0.0]))
    return ShownValueRange(low, math.ceil(top / step - 1e-9) * step, scale, least)
