"""Select the marks, axes and bounds of a figure from the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from chaosity.errors import UserError
from chaosity.figures.figure_data import (
    BOUND_COLUMNS,
    Axis,
    AxisRole,
    AxisValue,
    FigureData,
    FigureSpec,
    add_node_of_pu,
    axis_title,
    make_axis_value,
    sort_and_group_axis_values,
)
from chaosity.records.record_format import VALID
from chaosity.statistics.cell_summary import replace_values_and_drop_priors, summarise_cells
from chaosity.statistics.curves import find_latency_steps
from chaosity.store.measurements import (
    CELL_COLUMNS,
    LOAD_COLUMNS,
    POINT_COLUMNS,
    LeftOutPoints,
    Measurements,
    equals_or_in_list,
    parse_levels_json,
    parse_nodes,
)
from chaosity.topology.topology_model import Topology

LEVEL_WITHOUT_OTHER_LOAD = (
    "alone"  # level of a factor that relates two loads, for points with one load
)
SUM, LARGER_ALONE = "sum", "larger_load_alone"
_FUNCTION_OF_COMBINE: dict[str, Literal["median", "min", "max"]] = {
    "median": "median",
    "minimum": "min",
    "maximum": "max",
}
_BLOCK_COLUMNS = [*POINT_COLUMNS, "replicate"]
# Rows with equal values in these columns are of the same load, even if the load has different roles
# at different points.
_COLUMNS_OF_SAME_LOAD = [
    *("host", "configuration", "benchmark", "kernel", "initiator", "target", "metric"),
    *("load_parameters", "replicate"),
]
# Columns whose values are added if several loads of a point have the same name.
_SUMMED_COLUMNS = ("threads", "drives")
# Column with a number of nodes -> column with the list of the nodes.
_NODE_COUNT_COLUMNS = {f"{side}_node_count": f"{side}_nodes" for side in ("initiator", "target")}


def select_figure_data(
    spec: FigureSpec,
    measurements: Measurements,
    topology: Topology,
    left_out: LeftOutPoints | None = None,
) -> FigureData | None:
    """Return the data of a figure, selected from the measurements.

    The result is None if no point of the host belongs to the figure. `topology` is empty if it is
    unknown. Heat maps have marks for all points that a budget left out. Bars and lines have marks
    only for those left-out points that are predicted.

    Raises:
        UserError: the figure names an unknown column, or several points belong to one mark and the
            figure does not say how to combine the points.
    """
    experiment = measurements.where(experiment=spec.experiment)
    if left_out is not None and spec.kind in ("bars", "lines"):
        left_out = left_out.predicted_only()
    if spec.kind not in ("heatmap", "bars", "lines") or spec.combine is not None or spec.sum:
        left_out = None
    if left_out is not None:
        experiment = left_out.appended_to_measured(measurements).where(experiment=spec.experiment)
    selected = experiment.where(load=spec.load, metric=spec.metric)
    columns, rows = _FigureColumns(spec, selected, experiment), selected.rows
    for column, wanted in spec.where.items():
        if rows.empty:  # axes only have values of selected rows
            return None
        rows = rows[equals_or_in_list(columns.values(column).loc[rows.index], wanted)]
    if rows.empty:
        return None
    rows, axes = rows.copy(), dict[AxisRole, Axis]()
    for role, column in spec.column_of_axis.items():
        levels = columns.values(column).loc[rows.index]
        axes[role], rows[role] = _axis_of_role(spec, role, levels, rows, topology)
    if spec.compare is not None:
        rows["level"] = columns.values(spec.compare["column"]).loc[rows.index].map(str)
    if spec.cell_note is not None:
        rows["note"] = columns.values(spec.cell_note).loc[rows.index]
    rows = rows.dropna(subset=[role for role in axes if role != "series"])
    if rows.empty:
        return None
    if spec.has_measured_x:
        x, metric = columns.numbers(str(spec.x))
        rows["x"] = x.loc[rows.index]
        rows = rows if metric else rows.dropna(subset=["x"])
        return (
            None
            if rows.empty
            else figure_data_with_measured_x(spec, axes, rows, metric or str(spec.x))
        )
    if spec.sum:
        rows = _add_sums_of_loads(rows, experiment)
        added = map(make_axis_value, (SUM, LARGER_ALONE))
        axes["series"] = axes["series"].with_values([*axes["series"].values, *added])
    if "series" in axes:
        axes["series"], rows = _arrange_series(spec, axes["series"], rows)
    by: list[str] = [*axes, "initiator", "target"] if spec.kind == "table" else [*axes]
    combined = _combine_points(spec, rows, by)
    marks = summarise_cells(combined, list(dict.fromkeys(["host", "configuration", *by])))
    if left_out is not None:
        marks = left_out.add_predictions_to_cells(marks)
    data = FigureData(spec, axes, marks, rows)
    if spec.bounds:
        bounds = _bounds_of_figure(spec, measurements, topology)
        for role in set(axes) & set(bounds):  # bounds may have values without a mark
            bounds = bounds[bounds[role].isna() | bounds[role].isin(axes[role].tick_names)]
        data = replace(data, bounds=bounds)
    return _with_latency_steps(data, combined, topology) if spec.cache_steps else data


def figure_data_with_measured_x(
    spec: FigureSpec, axes: dict[AxisRole, Axis], rows: pd.DataFrame, x_metric: str
) -> FigureData:
    """Return the data of a figure with a measured x, with a mark for each load of a point.

    `rows` has the column `x` with numbers in the unit of `x_metric`.
    """
    if "series" in axes and not axes["series"].values:
        del axes["series"]
    by = [*CELL_COLUMNS, *axes]
    marks = summarise_cells(rows, by)
    positions = summarise_cells(replace_values_and_drop_priors(rows, rows["x"]), by)
    columns_of_x = ["position", "position_low", "position_high"]
    marks[columns_of_x] = positions[["median", "low", "high"]].to_numpy()
    if spec.kind == "curve":
        _check_line_places(spec, rows, [role for role in axes if rows[role].notna().any()])
    return FigureData(spec, axes, marks, rows, x_metric)


def _bounds_of_figure(
    spec: FigureSpec, measurements: Measurements, topology: Topology
) -> pd.DataFrame:
    """Return the bounds of a figure for `FigureData.bounds`.

    Each bound is selected like a separate figure, which shows the median of the points with the
    load and the metric of the bound. A bound that is constant along x is the same for all series,
    since the resource that limits the series, such as memory, may belong to none of them.
    """
    found = [pd.DataFrame(columns=[*BOUND_COLUMNS])]
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
        if data := select_figure_data(figure, measurements, topology):
            marks = data.valid_marks
            values = marks["median"] * entry.get("times", 1.0)
            own = marks[[*data.axes]].assign(title=entry["title"], along_x=along_x, value=values)
            found.append(own.reindex(columns=found[0].columns).astype(object))
    return pd.concat(found, ignore_index=True)


def _with_latency_steps(data: FigureData, rows: pd.DataFrame, topology: Topology) -> FigureData:
    """Return the data of a figure with steps of latency and sizes of caches added."""
    sizes = {value.name: value.number for value in data.axes["x"].values}
    valid = rows[rows["status"] == "valid"]
    known = {
        (f"L{cache.level}", cache.size_bytes)
        for cache in topology.caches
        if cache.kind != "instruction" and cache.size_bytes
    }
    steps = find_latency_steps(valid.assign(x=valid["x"].map(sizes)))
    return replace(data, steps=steps, cache_bytes=tuple(sorted(known)))


def _axis_of_role(
    spec: FigureSpec, role: AxisRole, levels: pd.Series, rows: pd.DataFrame, topology: Topology
) -> tuple[Axis, pd.Series]:
    """Return an axis with all values of its column, and for each row the name of its value."""
    column = spec.column_of_axis[role]
    listed = spec.where.get(column)
    order = list(map(str, listed)) if isinstance(listed, list) else []
    of_place = column in ("initiator", "target")
    nodes = rows[f"{column}_nodes"] if of_place else [None] * len(rows)
    found: dict[object, AxisValue] = {}
    for level, list_of_nodes in zip(levels, nodes, strict=True):
        if not pd.isna(level) and level not in found:
            value = make_axis_value(level, parse_nodes(list_of_nodes), column)
            value = add_node_of_pu(value, topology)
            if value.kind == "text" and value.name in order:
                value = replace(value, sort_key=(order.index(value.name),))
            found[level] = value
    names = [None if pd.isna(level) else found[level].name for level in levels]
    values = {value.name: value for value in found.values()}.values()
    ordered, groups = sort_and_group_axis_values(values, topology.package_of_node)
    title = getattr(spec, f"{role}_title") or axis_title(column, ordered)
    axis = Axis(column, title, tuple(ordered), tuple(groups))
    return axis, pd.Series(names, rows.index, dtype=object)


def _arrange_series(spec: FigureSpec, axis: Axis, rows: pd.DataFrame) -> tuple[Axis, pd.DataFrame]:
    """Return the series with the reference first or outside; repeat points of every series."""
    if spec.loss_to is not None:
        axis = axis.with_values(sorted(axis.values, key=lambda value: value.name != spec.loss_to))
    else:
        alone = rows["series"] == LEVEL_WITHOUT_OTHER_LOAD
        # If the series "alone" has a single x, its mark is a reference outside all series.
        if alone.any() and not alone.all() and rows.loc[alone, "x"].nunique() == 1:
            axis = axis.with_values(
                value for value in axis.values if value.name != LEVEL_WITHOUT_OTHER_LOAD
            )
            rows = rows.assign(series=rows["series"].where(~alone, None))
    others = [value for value in axis.values if value.name not in spec.in_every_series]
    if not others or len(others) == len(axis.values):
        return axis, rows
    # Some points belong to every series: for example, a single thread is both packed and spread.
    shared = rows["series"].isin(spec.in_every_series)
    copies = [rows[shared].assign(series=value.name) for value in others]
    return axis.with_values(others), pd.concat([rows[~shared], *copies], ignore_index=True)


def _add_sums_of_loads(rows: pd.DataFrame, experiment: Measurements) -> pd.DataFrame:
    """Return the rows of a figure with sums, and with the larger load alone, added.

    Each replicate of a point with several loads gets up to two rows. The row of the series `SUM`
    has the sum of the loads. The row of the series `LARGER_ALONE` has the value of the load with
    the larger median, measured alone. All replicates use the same load, so that chance does not
    choose another load in each replicate. A point gets a row of `SUM` only if all its loads are
    among `rows`, and a row of `LARGER_ALONE` only if all its loads were also measured alone.
    """
    alone = experiment.single_load_rows().valid_rows().rows.rename(columns={"value": "alone"})
    alone = alone[[*_COLUMNS_OF_SAME_LOAD, "alone"]].drop_duplicates(_COLUMNS_OF_SAME_LOAD)
    both = rows[(rows["load_count"] > 1) & (rows["status"] == VALID)].merge(alone, "left")
    blocks = both.groupby(_BLOCK_COLUMNS)
    whole = blocks["value"].transform("count") == both["load_count"]
    sums = replace_values_and_drop_priors(both, blocks["value"].transform("sum")).assign(
        series=SUM
    )[whole]
    both["typical"] = both.groupby([*POINT_COLUMNS, *LOAD_COLUMNS])["alone"].transform("median")
    largest = both["typical"] == blocks["typical"].transform("max")
    whole = blocks["alone"].transform("count") == both["load_count"]
    larger = replace_values_and_drop_priors(both, both["alone"]).assign(series=LARGER_ALONE)[
        whole & largest
    ]
    more = [added.assign(load=added["series"]) for added in (sums, larger)]
    more = [added.drop_duplicates(_BLOCK_COLUMNS).reindex(columns=rows.columns) for added in more]
    return pd.concat([rows, *more], ignore_index=True)


def _check_line_places(spec: FigureSpec, rows: pd.DataFrame, roles: Sequence[AxisRole]) -> None:
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
    """Return rows with one value for each mark and replicate; several points are combined."""
    points = rows[list(dict.fromkeys([*by, "point", *LOAD_COLUMNS]))].drop_duplicates()
    shared = points.groupby(by, dropna=False).size()
    if (shared <= 1).all():
        return rows
    if spec.combine is None:
        raise _shared_mark_error(spec, points, shared, by)
    ordered = rows.sort_values("status", key=lambda status: status != "valid", kind="stable")
    keys = ["host", "configuration", *by, "replicate"]
    blocks = rows.groupby(keys, dropna=False)["value"]
    values = blocks.transform(_FUNCTION_OF_COMBINE[spec.combine])
    combined = replace_values_and_drop_priors(ordered, values.loc[ordered.index])
    return combined.drop_duplicates(keys).sort_index()


def _shared_mark_error(
    spec: FigureSpec, points: pd.DataFrame, shared: pd.Series, by: list[str]
) -> UserError:
    """Return an error that names the mark with the most points, and three of its points."""
    key = shared.idxmax()
    values = key if isinstance(key, tuple) else (key,)
    for role, value in zip(by, values, strict=True):
        points = points[points[role].eq(value) | (points[role].isna() & pd.isna(value))]
    names = list(points["point"].drop_duplicates())
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    mark = ", ".join(f"{role} {value}" for role, value in zip(by, values, strict=True))
    return UserError(
        f"{shared.max()} points would be one mark ({mark}): {listed}",
        spec.name_in_errors,
        "narrow `where`, add `panels`, or say how to `combine` the points",
    )


@dataclass(frozen=True)
class _FigureColumns:
    """The columns that a figure's YAML can name, with their value in each row of the figure.

    A column is a factor of the experiment, a column of the measurements, a column of another load
    of the point (LOAD.COLUMN), or a number of nodes (such as `initiator_node_count`).
    """

    spec: FigureSpec
    figure: Measurements  # the rows with the load and the metric of the figure
    experiment: Measurements  # all rows of the experiment

    def values(self, name: str) -> pd.Series:
        """Return the value of a column for each row of the figure."""
        factors, rows = _factor_names(self.figure), self.figure.rows
        if name in factors:
            return self.figure.factor_level_of_each_row(name)
        if name in rows.columns:
            return rows[name]
        if name in _NODE_COUNT_COLUMNS:
            return rows[_NODE_COUNT_COLUMNS[name]].map(lambda nodes: len(parse_nodes(nodes)))
        load, _, column = name.partition(".")
        others = self.experiment.where(load=load)
        if column and column in {*others.rows.columns, *_factor_names(others)} and len(others):
            return self._column_of_other_load(others, column)
        allowed = ", ".join(sorted({*factors, *rows.columns, *_NODE_COUNT_COLUMNS}))
        raise UserError(
            f"unknown column {name}",
            self.spec.name_in_errors,
            f"allowed: {allowed}, and LOAD.COLUMN for another load of the point",
        )

    def numbers(self, name: str) -> tuple[pd.Series, str | None]:
        """Return (numbers of a column, None), or (values of another load's metric, metric).

        If several other loads have the name, rates are added, and other metrics are averaged. The
        value is 0 in points without the other load, and NaN if the value is unknown.
        """
        load, _, metric = name.partition(".")
        others = self.experiment.where(load=load)
        if metric and metric in set(others.rows["metric"]):
            total = "sum" if metric.endswith("_per_second") else "mean"
            values = others.where(metric=metric).rows.groupby(_BLOCK_COLUMNS, dropna=False)["value"]
            keys, found = self._values_by_replicate(
                values.agg(total).where(values.count() == values.size())
            )
            with_load = pd.MultiIndex.from_frame(others.rows[_BLOCK_COLUMNS])
            return found.astype(float).where(keys.isin(with_load), 0.0), metric
        column = self.values(name)
        try:
            return column.astype(float), None
        except (TypeError, ValueError) as error:
            what = f"the values of column {name} are not numbers"
            raise UserError(what, self.spec.name_in_errors) from error

    def _column_of_other_load(self, others: Measurements, column: str) -> pd.Series:
        """Return a column of another load of the row's point and replicate; null without this load.

        If several other loads have the name, different values are joined with "+", and equal values
        are written once. Numbers of threads or drives are always added. A row of a load with this
        name keeps its value.
        """
        rows = others.rows
        values = rows[column] if column in rows.columns else others.factor_level_of_each_row(column)
        loads = (
            rows[[*_BLOCK_COLUMNS, *LOAD_COLUMNS]]
            .assign(_value=values)
            .drop_duplicates([*_BLOCK_COLUMNS, *LOAD_COLUMNS])
        )
        joined = loads.set_index(_BLOCK_COLUMNS)["_value"]
        if not joined.index.is_unique:
            grouped = loads.groupby(_BLOCK_COLUMNS, dropna=False)["_value"]
            joined = grouped.agg(lambda own: _join_values(own, summed=column in _SUMMED_COLUMNS))
        _, found = self._values_by_replicate(joined)
        own_rows = found.index.intersection(rows.index)
        if len(own_rows):
            found = found.astype(object)
            found.loc[own_rows] = values.loc[own_rows]
        return found

    def _values_by_replicate(self, of_block: pd.Series) -> tuple[pd.MultiIndex, pd.Series]:
        """Return point and replicate of each row of the figure, and the value of this block."""
        rows = self.figure.rows
        keys = pd.MultiIndex.from_frame(rows[_BLOCK_COLUMNS])
        return keys, pd.Series(of_block.reindex(keys).to_numpy(), rows.index)


def _factor_names(rows: Measurements) -> set[str]:
    return {name for text in rows.rows["factors"].unique() for name in parse_levels_json(text)}


def _join_values(values: pd.Series, *, summed: bool) -> object:
    """Return the sum of the values, their common value, or different values joined with "+"."""
    known: Iterable[object] = dict.fromkeys(value for value in values if not pd.isna(value))
    first, *others = known or [None]
    if summed and first is not None:
        return values.sum()
    return "+".join(map(str, known)) if others else first
