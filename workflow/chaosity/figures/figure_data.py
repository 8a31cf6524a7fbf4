"""Types for a figure of an experiment: description, marks and axes, and range of the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from chaosity.documents.figures import Bound, LevelsToCompare
from chaosity.errors import UserError
from chaosity.figures.axes import Axis
from chaosity.statistics.curves import LatencyStep, repeat_unloaded_points_on_each_line
from chaosity.statistics.estimates import CONFIDENCE
from chaosity.store.left_out_points import PREDICTED
from chaosity.store.measurements import less_is_better
from chaosity.units import UnitScale, choose_scale

# A value in `where`; None selects rows without a value.
Level = str | float | bool | None
Where = Mapping[str, Level | list[Level]]
# Roles of a figure's axes. A figure with a measured x has no axis with the role "x".
Role = Literal["panels", "series", "rows", "columns", "x"]
ROLES: tuple[Role, ...] = ("panels", "series", "rows", "columns", "x")
BOUND_COLUMNS = ("title", "along_x", "value", "panels", "series", "x")
# A row of `FigureData.marks`.
FigureMark = Mapping[str, Any]


@dataclass(frozen=True)
class FigureSpec:
    """The description of a figure; `documents.figures` explains what its attributes mean."""

    experiment: str
    name: str
    kind: str
    title: str
    load: tuple[str, ...]
    metric: str
    where: Where = field(default_factory=dict)
    rows: str | None = None
    columns: str | None = None
    x: str | None = None
    series: str | None = None
    in_every_series: tuple[str, ...] = ()
    panels: str | None = None
    combine: str | None = None
    cell_note: str | None = None
    x_scale: str = "linear"
    value_scale: str = "linear"
    compare: LevelsToCompare | None = None
    cache_steps: bool = False
    mark_best: bool = False
    loss_to: str | None = None
    bounds: tuple[Bound, ...] = ()
    sum: bool = False
    rows_title: str | None = None
    columns_title: str | None = None
    x_title: str | None = None
    series_title: str | None = None
    panels_title: str | None = None
    value_title: str | None = None
    colour_scale: str | None = None
    source: str | None = None
    template: str | None = None
    by_configuration: bool = False
    confidence: float = CONFIDENCE

    @property
    def has_measured_x(self) -> bool:
        """Return whether `x` is a measured quantity and not an axis of named values."""
        return self.kind in ("curve", "scatter")

    @property
    def name_in_errors(self) -> str:
        """Return the text that names the figure in an error."""
        return f"experiment {self.experiment}, figure {self.name}"

    @property
    def column_of_axis(self) -> dict[Role, str]:
        """Return role of an axis -> column that it shows, for the axes that the figure has."""
        roles = [role for role in ROLES if not (role == "x" and self.has_measured_x)]
        columns = {role: getattr(self, role) for role in roles}
        return {role: column for role, column in columns.items() if column is not None}

    @classmethod
    def from_yaml_entry(cls, experiment: str, entry: Mapping[str, Any]) -> FigureSpec:
        """Return the description in an entry of `figures` of a checked experiment document."""
        load = entry["load"]
        loads = (load,) if isinstance(load, str) else tuple(load)
        tuples = {name: tuple(entry.get(name, ())) for name in ("in_every_series", "bounds")}
        return cls(experiment, **{**entry, "load": loads, **tuples})


def parse_figure_specs(experiments: Iterable[Mapping[str, Any]]) -> list[FigureSpec]:
    """Return all figures of the experiments' YAML documents, in their order.

    Raises:
        UserError: two figures have the same name, and so the same file.
    """
    specs: dict[str, FigureSpec] = {}
    for document in experiments:
        for entry in document.get("figures") or ():
            spec = FigureSpec.from_yaml_entry(document["experiment"], entry)
            if spec.name in specs:
                raise UserError(
                    f"experiment {specs[spec.name].experiment} already has a figure of this name",
                    spec.name_in_errors,
                    "give each figure a unique name: its files have this name",
                )
            confidence = document.get("confidence", CONFIDENCE)
            specs[spec.name] = replace(spec, confidence=confidence)
    return list(specs.values())


def marks_of_table(table: pd.DataFrame) -> list[FigureMark]:
    """Return the rows of a table of marks as a list of mappings."""
    return cast(list[FigureMark], table.to_dict("records"))


def has_number(mark: FigureMark) -> bool:
    """Return whether a mark has a measured or predicted value."""
    return mark["status"] in ("valid", PREDICTED)


def shown_value(mark: FigureMark) -> float:
    """Return the median of a mark, or its prediction if it was not measured."""
    return float(mark["predicted_value" if mark["status"] == PREDICTED else "median"])


def shown_interval(mark: FigureMark) -> tuple[float, float]:
    """Return the ends of the interval of a mark's value or prediction; NaN if unknown."""
    if mark["status"] == PREDICTED:
        return mark["predicted_low"], mark["predicted_high"]
    return mark["low"], mark["high"]


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn in a figure: its marks, axes and bounds."""

    spec: FigureSpec  # description of the figure
    axes: Mapping[Role, Axis]  # role -> axis, for the axes that the figure has
    # A row for each mark, with the columns of `statistics.summarise_cells`, and for each axis a
    # column with the name of the mark's value (null in `series` for a mark outside all series). A
    # measured x is in `position`, `position_low` and `position_high`; `note` is a second value in a
    # cell.
    marks: pd.DataFrame
    # The selected measurements, with the columns of `marks` that name values on axes; also with
    # `level` if the figure compares levels, and with the number `x` if x is measured.
    measurements: pd.DataFrame
    x_metric: str = ""  # metric, or else column, of a measured x; empty without a measured x
    # Upper bounds of the marks, measured at other points of the experiment: a row for each value.
    # It has the names on those axes on which the bound depends, and null for the other axes.
    bounds: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*BOUND_COLUMNS]))
    # Steps of latency over the sizes; empty unless the figure marks them.
    steps: tuple[LatencyStep, ...] = ()
    # Sizes of the data caches by hwloc, ascending: ("L1", 32768).
    cache_bytes: tuple[tuple[str, int], ...] = ()

    @property
    def valid_marks(self) -> pd.DataFrame:
        """Return the marks with a measured value."""
        return self.marks[self.marks["status"] == "valid"]

    @property
    def valid_marks_best_first(self) -> pd.DataFrame:
        """Return the marks with a measured value, the best first."""
        less = less_is_better(self.spec.metric)
        return self.valid_marks.sort_values("median", ascending=less, kind="stable")

    @property
    def measurements_of_each_line(self) -> pd.DataFrame:
        """Return the measurements of each line; unloaded points count for each line of a panel."""
        rows = self.measurements
        if "series" not in self.axes:
            return rows
        by_panel = rows.groupby("panels", sort=False) if "panels" in self.axes else [("", rows)]
        lines = [repeat_unloaded_points_on_each_line(own, "series") for _, own in by_panel]
        return pd.concat(lines, ignore_index=True)

    @property
    def labels_required_by_benchmarks(self) -> list[str]:
        """Return the labels that benchmarks require next to their values."""
        texts = {label for label in self.marks["label"] if isinstance(label, str)}
        # The title already says that a file replaced the drives.
        labels = {text.removesuffix("file-backed").removesuffix(", ") for text in texts}
        return sorted(labels - {""})

    @property
    def mark_noun(self) -> str:
        """Return the word for a mark of this figure: cell, bar or point."""
        return {"heatmap": "cell", "table": "cell", "bars": "bar"}.get(self.spec.kind, "point")

    @property
    def title(self) -> str:
        """Return the figure's title, with a remark if a file replaced the drives."""
        return self.spec.title + " (file-backed)" * bool(self.marks["file_backed"].any())

    @property
    def measured_x_column(self) -> str:
        """Return the name of the column of a measured x, as in the figure's YAML."""
        return str(self.spec.x)

    @property
    def x_is_metric_of_other_load(self) -> bool:
        """Return whether a measured x is a metric of another load of the point."""
        return self.x_metric != self.measured_x_column

    def value_names_on_axis(self, role: Role) -> list[str] | list[None]:
        """Return the names of values on an axis, in order; [None] if the figure lacks the axis."""
        return self.axes[role].value_names if role in self.axes else [None]

    def value_label_without_axis_title(self, role: Role, name: str) -> str:
        """Return the long label of a value, which is clear without the axis title."""
        return self.axes[role].find_value_by_name(name).long_label

    def bounds_of_marks(self) -> pd.DataFrame:
        """Return a row for each mark, a column for each title of a bound; NaN if not measured."""
        found = {}
        for title, own in self.bounds.groupby("title", sort=False):
            keys = [role for role in ROLES if role in own and own[role].notna().any()]
            joined = self.marks[keys].merge(own[[*keys, "value"]], "left" if keys else "cross")
            found[str(title)] = joined["value"].to_numpy(float)
        return pd.DataFrame(found, self.marks.index)


def best_mark(data: FigureData) -> FigureMark | None:
    """Return the valid mark with the best median of the figure; of equal marks, the first.

    Return None if the figure has no valid mark.
    """
    return next(iter(marks_of_table(data.valid_marks_best_first.head(1))), None)


# A colour scale spans at least this share of its top value, so that scatter of a few per cent does
# not look like structure.
LEAST_SPAN = 0.25


@dataclass(frozen=True)
class ShownValueRange:
    """The range of the values that one figure shows, or several figures with a common scale."""

    low: float  # smallest value of a colour bar, in the metric's unit
    high: float  # largest value, in the metric's unit; above low
    scale: UnitScale  # unit of the shown numbers
    least: float = math.nan  # lowest positive value, for a logarithmic axis; NaN if there is none


def find_round_value_limits(
    metric: str, figures: Sequence[FigureData], *, with_intervals: bool = False
) -> ShownValueRange:
    """Return round limits that include every value and bound in figures of one metric.

    `with_intervals` says whether the limits must include the intervals, too.
    """
    columns = ["median", "predicted_value"]
    if with_intervals:
        columns += ["low", "high", "predicted_low", "predicted_high"]
    shown = [
        data.marks[data.marks.columns.intersection(columns)].to_numpy(float).ravel()
        for data in figures
    ]
    shown += [data.bounds["value"].to_numpy(float) for data in figures]
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
