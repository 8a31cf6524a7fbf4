"""Classes for a figure of an experiment: its description, marks, axes, and range of values.

On an axis, `node2` comes before `node10`. Nodes of one package are neighbours, and drives of one
node are neighbours too. Drive sets are grouped by their number of nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from chaosity.documents.figures import Bound, LevelsComparedInCaption
from chaosity.errors import UserError
from chaosity.place_names import PlaceName, natural_sort_key, parse_place_name, place_in_words
from chaosity.statistics.curves import LatencyStep, repeat_unloaded_points_on_each_line
from chaosity.statistics.estimates import CONFIDENCE
from chaosity.store.measurements import PREDICTED, less_is_better
from chaosity.text_templates import texts_of_yaml_file
from chaosity.topology.topology_model import Topology
from chaosity.units import UnitScale, choose_scale, format_binary_bytes

# Words for kinds of values, in the order in which the kinds are on an axis, and words for names of
# values that are not sorted alphabetically.
_WORDS_ON_AXES = texts_of_yaml_file("axes")
_WORDS_OF_VALUE_KINDS: dict[str, dict[str, str]] = _WORDS_ON_AXES["kinds"]


@dataclass(frozen=True)
class AxisValue:
    """A value on an axis."""

    name: str  # name of the value in the tidy table
    # Kind of the value. The order of kinds in ``templates/texts/axes.yaml`` is their order on axes,
    # and the words for kinds are labels of groups.
    kind: str
    # Sort key among values of the same kind; the sort key of a number begins with the number.
    sort_key: tuple[Any, ...]
    short_label: str  # label for an axis whose title names the kind
    long_label: str  # label that is clear without an axis title
    nodes: tuple[int, ...] = ()  # memory nodes to which the value belongs; empty if unknown

    @property
    def number(self) -> float:
        """Return the number that the value is; for a size, the number of bytes."""
        return float(self.sort_key[0])


@dataclass(frozen=True)
class AxisGroup:
    """A group of neighbouring values on an axis: the values ``axis.values[start:stop]``."""

    label: str
    start: int
    stop: int

    @property
    def value_count(self) -> int:
        """Return the number of values in the group."""
        return self.stop - self.start


@dataclass(frozen=True)
class Axis:
    """An axis of a figure with its values."""

    column: str  # the column that the axis shows, by its name in the figure's YAML
    title: str  # title of the axis in the figure
    values: tuple[AxisValue, ...]  # values in the order of the axis
    groups: tuple[AxisGroup, ...]  # groups of neighbouring values; each value is in one group

    @property
    def tick_names(self) -> list[str]:
        """Return the names of the values in the tidy table, in the order of the axis."""
        return [value.name for value in self.values]

    @property
    def is_numeric(self) -> bool:
        """Return whether all values are numbers or sizes, so that the axis has a scale."""
        return all(value.kind in ("number", "size") for value in self.values)

    @property
    def has_byte_sizes(self) -> bool:
        """Return whether values of the axis are sizes in bytes."""
        return any(value.kind == "size" for value in self.values)

    @property
    def has_mixed_kinds(self) -> bool:
        """Return whether the values are of several kinds, so that labels must name the kind."""
        return len({value.kind for value in self.values}) > 1

    def find_value_by_name(self, name: str) -> AxisValue:
        """Return the value that has this name in the tidy table."""
        return next(value for value in self.values if value.name == name)

    def in_order(self, table: pd.DataFrame, column: str) -> pd.DataFrame:
        """Return a table sorted like the axis; `column` has names of values of the axis."""
        rank = {name: number for number, name in enumerate(self.tick_names)}
        return table.sort_values(column, key=lambda names: names.map(rank), kind="stable")

    def tick_label(self, value: AxisValue) -> str:
        """Return a value's label on the axis: the short label if the axis title names the kind."""
        full = self.has_mixed_kinds or value.kind in ("all_drives", "file")
        return value.long_label if full else value.short_label

    def legend_label(self, value: AxisValue) -> str:
        """Return a value's label in a legend; a number's label begins with the axis title."""
        return f"{self.title} {value.short_label}" if value.kind == "number" else value.long_label

    def with_values(self, values: Iterable[AxisValue]) -> Axis:
        """Return the axis with new values, which are in a single group."""
        kept = tuple(values)
        return replace(self, values=kept, groups=(AxisGroup("", 0, len(kept)),))


def axis_of_texts(title: str, texts: Iterable[str]) -> Axis:
    """Return an axis whose values are texts, in the order of their first appearance."""
    values = (AxisValue(text, "text", (text,), text, text) for text in dict.fromkeys(texts))
    return Axis(title, title, (), ()).with_values(values)


def is_byte_column(column: str) -> bool:
    """Return whether a column has numbers of bytes, which are shown as KiB, MiB and GiB."""
    name = column.split(".")[-1]
    return name == "bytes" or name.endswith("_bytes")


def make_axis_value(value: object, nodes: tuple[int, ...] = (), column: str = "") -> AxisValue:
    """Return a cell of the tidy table, or a level of a factor, as a value of an axis.

    Args:
        value: a cell of the tidy table or a level of a factor.
        nodes: memory nodes to which the value belongs, if these are known.
        column: column of the value; numbers in a column of bytes are sizes.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return AxisValue(str(value), "text", (value,), "yes" if value else "no", str(value), nodes)
    if isinstance(value, int | float):
        # All digits of a whole number are kept, since two sizes may differ only in the last digit.
        text = str(int(value)) if float(value).is_integer() else f"{value:g}"
        size = is_byte_column(column)
        label = format_binary_bytes(float(value)) if size else text
        return AxisValue(text, "size" if size else "number", (float(value),), label, label, nodes)
    name = str(value)
    for kind in ("relation", "mode", "level"):
        if label := _WORDS_ON_AXES[kind].get(name):
            rank = (list(_WORDS_ON_AXES[kind]).index(name),)
            if kind == "mode":  # the same form as sort keys of texts
                return AxisValue(name, "text", ((0, *rank, ""),), label, label, nodes)
            return AxisValue(name, kind, rank, label, label, nodes)
    place = parse_place_name(name)
    if place is None:
        label = name.replace("_", " ")
        return AxisValue(name, "text", natural_sort_key(name), label, label, nodes)
    label = place_in_words(name)
    known = _place_value(name, place, label)
    found = known or AxisValue(name, "text", natural_sort_key(name), label, label)
    return replace(found, nodes=place.nodes_in_name or nodes)


def _place_value(name: str, place: PlaceName, long: str) -> AxisValue | None:
    """Return a place as a value of an axis; None if the kind of the place has no order on axes."""
    index = place.indices[0] if place.indices else 0
    kind, short, keys = str(place.kind), str(index), tuple[Any, ...]((index,))
    match place.kind:
        case "machine" | "all_drives":
            short = "machine" if kind == "machine" else "all"
        case "core_kind":
            keys, short = natural_sort_key(name), name.replace("_", " ")
        case "drive":
            short = re.sub("^0+:", "", long.removeprefix("drive "))
            keys = natural_sort_key(place.address or short)
        case "node_drives" | "package_drives" if place.count:
            kind, keys, short = "first_drives", (index, place.count), str(place.count)
        case "unknown_drives":
            keys, short = (place.count or 10**6,), str(place.count or "all")
        case "nodes" | "node_drives" | "nodes_drives":
            kind = "nodes" if kind == "nodes" else "node_drives"
            short = name.removesuffix("drives").removeprefix("nodes").removeprefix("node")
            keys = (len(place.indices), place.indices)
        case _ if kind not in _WORDS_OF_VALUE_KINDS or not place.indices:
            return None
    return AxisValue(name, kind, keys, short, long)


def add_node_of_pu(value: AxisValue, topology: Topology) -> AxisValue:
    """Return the value of a processing unit with its node and L3 domain, others unchanged."""
    if value.kind != "pu":
        return value
    index = value.sort_key[0]
    node, domain = topology.node_of_pu.get(index), topology.l3_of_pu.get(index, -1)
    nodes = value.nodes or (() if node is None else (node,))
    return replace(value, nodes=nodes, sort_key=(domain, index))


def sort_and_group_axis_values(
    values: Iterable[AxisValue], packages: Mapping[int, int]
) -> tuple[list[AxisValue], list[AxisGroup]]:
    """Return the values in natural order, and the groups between which figures have gaps.

    `packages` maps a node to its package. If the values need no groups, all values are in one group
    without a label.
    """
    found = list(values)
    # The set of all drives is sorted like other drive sets, by its number of nodes.
    if {value.kind for value in found} == {"node_drives", "all_drives"}:
        found = [
            replace(value, kind="node_drives", sort_key=(len(value.nodes), value.nodes))
            for value in found
        ]
    mixed = len({value.kind for value in found}) > 1
    keyed = [(_group_key(value, packages, mixed), value) for value in found]
    ranks = {kind: rank for rank, kind in enumerate(_WORDS_OF_VALUE_KINDS)}
    keyed.sort(key=lambda pair: (ranks[pair[1].kind], pair[0][0], pair[1].sort_key))
    ordered = [value for _, value in keyed]
    groups: list[AxisGroup] = []
    for position, ((_, label), _) in enumerate(keyed):
        if groups and groups[-1].label == label:
            groups[-1] = replace(groups[-1], stop=position + 1)
        else:
            groups.append(AxisGroup(label, position, position + 1))
    if len(groups) < 2 or all(group.value_count == 1 for group in groups):
        groups = [AxisGroup("", 0, len(ordered))] if ordered else []
    return ordered, groups


def _group_key(
    value: AxisValue, packages: Mapping[int, int], mixed: bool
) -> tuple[tuple[object, ...], str]:
    """Return the sort key and the label of the group to which a value belongs."""
    if mixed:
        return (), _WORDS_OF_VALUE_KINDS[value.kind].get("group", f"{value.kind}s")
    match value.kind:
        case "node_drives" | "nodes":
            number = len(value.nodes)
            return (number,), "1 node" if number == 1 else f"{number} nodes"
        case "node":
            package = packages.get(value.sort_key[0])
            return ((1,), "no package") if package is None else ((0, package), f"package {package}")
        case "pu" | "core" | "l3" | "drive" | "first_drives" | "gpu":
            if not value.nodes:
                return (1,), "node unknown"
            listed = ",".join(map(str, value.nodes))
            return (0, value.nodes), f"{'node' if len(value.nodes) == 1 else 'nodes'} {listed}"
    return (), ""


def axis_title(column: str, values: Iterable[AxisValue]) -> str:
    """Return the title of an axis, which follows from its column and the kind of its values."""
    role = column.split(".")[-1]
    if role not in ("initiator", "target", "responder"):
        return str(_WORDS_ON_AXES["titles"].get(role, role.replace("_", " ").capitalize()))
    kinds = {value.kind for value in values}
    if kinds == {"node_drives", "all_drives"}:
        kinds = {"node_drives"}
    title = _WORDS_OF_VALUE_KINDS[kinds.pop()].get("title", "{}") if len(kinds) == 1 else "{}"
    return title.format(role.capitalize())


# A value of the key `where` in a figure's YAML; None selects rows without a value.
Level = str | float | bool | None
RowConditions = Mapping[str, Level | list[Level]]
# Roles that axes of a figure have. In a figure with a measured x, no axis has the role "x".
AxisRole = Literal["panels", "series", "rows", "columns", "x"]
AXIS_ROLES: tuple[AxisRole, ...] = ("panels", "series", "rows", "columns", "x")
BOUND_COLUMNS = ("title", "along_x", "value", "panels", "series", "x")
# A mark of a figure is a row of the table `FigureData.marks`.
FigureMark = Mapping[str, Any]


@dataclass(frozen=True)
class FigureSpec:
    """The description of a figure; `documents.figures` explains its attributes."""

    experiment: str
    name: str
    kind: str
    title: str
    load: tuple[str, ...]
    metric: str
    where: RowConditions = field(default_factory=dict)
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
    compare: LevelsComparedInCaption | None = None
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
        """Return the words that name the figure in an error message."""
        return f"experiment {self.experiment}, figure {self.name}"

    @property
    def column_of_axis(self) -> dict[AxisRole, str]:
        """Return role of each axis of the figure -> column that the axis shows."""
        roles = [role for role in AXIS_ROLES if not (role == "x" and self.has_measured_x)]
        columns = {role: getattr(self, role) for role in roles}
        return {role: column for role, column in columns.items() if column is not None}

    @classmethod
    def from_yaml_entry(cls, experiment: str, entry: Mapping[str, Any]) -> FigureSpec:
        """Return the description in an entry of the key `figures` of an experiment's document."""
        load = entry["load"]
        loads = (load,) if isinstance(load, str) else tuple(load)
        tuples = {name: tuple(entry.get(name, ())) for name in ("in_every_series", "bounds")}
        return cls(experiment, **{**entry, "load": loads, **tuples})


def parse_figure_specs(experiments: Iterable[Mapping[str, Any]]) -> list[FigureSpec]:
    """Return the descriptions of all figures in the experiments' YAML documents, in their order.

    Raises:
        UserError: two figures have the same name, and so would have the same file.
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
    """Return both ends of the interval of a mark's value or prediction; NaN if unknown."""
    if mark["status"] == PREDICTED:
        return mark["predicted_low"], mark["predicted_high"]
    return mark["low"], mark["high"]


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn in a figure: its marks, axes and bounds."""

    spec: FigureSpec  # description of the figure
    axes: Mapping[AxisRole, Axis]  # role -> axis, for the axes that the figure has
    # A table with a row for each mark, and the columns of `statistics.summarise_cells`. For each
    # axis, a column has the name of the mark's value on the axis; in `series` the name of a mark
    # outside all series is null. A measured x is in `position`, `position_low` and `position_high`.
    # The column `note` is the second value in a cell of a heat map.
    marks: pd.DataFrame
    # The selected measurements, with those columns of `marks` that name values on axes. If the
    # figure compares levels of a factor, there is a column `level`. If x is measured, there is a
    # column `x`.
    measurements: pd.DataFrame
    x_metric: str = ""  # metric, or else column, of a measured x; empty without a measured x
    # A table of upper bounds of the marks, which were measured at other points of the experiment. A
    # row names values on the axes on which its bound depends, and is null on the other axes.
    bounds: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*BOUND_COLUMNS]))
    # Steps of latency over the sizes; empty unless the figure marks them.
    steps: tuple[LatencyStep, ...] = ()
    # Sizes of the data caches that hwloc reports, in ascending order: ("L1", 32768).
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
        """Return the measurements of each line; each line of a panel has its unloaded points."""
        rows = self.measurements
        if "series" not in self.axes:
            return rows
        by_panel = rows.groupby("panels", sort=False) if "panels" in self.axes else [("", rows)]
        lines = [repeat_unloaded_points_on_each_line(own) for _, own in by_panel]
        return pd.concat(lines, ignore_index=True)

    @property
    def labels_required_by_benchmarks(self) -> list[str]:
        """Return the labels that benchmarks require next to their values."""
        texts = {label for label in self.marks["label"] if isinstance(label, str)}
        # The label "file-backed" is removed, since the title says that a file replaced the drives.
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
        """Return the name of the column of a measured x in the figure's YAML."""
        return str(self.spec.x)

    @property
    def x_is_metric_of_other_load(self) -> bool:
        """Return whether a measured x is a metric of another load of the point."""
        return self.x_metric != self.measured_x_column

    def tick_names_on_axis(self, role: AxisRole) -> list[str] | list[None]:
        """Return the names of the values on an axis, in order; [None] without this axis."""
        return self.axes[role].tick_names if role in self.axes else [None]

    def value_label_without_axis_title(self, role: AxisRole, name: str) -> str:
        """Return the long label of a value, which is clear without the axis title."""
        return self.axes[role].find_value_by_name(name).long_label

    def bounds_of_marks(self) -> pd.DataFrame:
        """Return a row for each mark and a column for each bound; NaN if not measured."""
        found = {}
        for title, own in self.bounds.groupby("title", sort=False):
            keys = [role for role in AXIS_ROLES if role in own and own[role].notna().any()]
            joined = self.marks[keys].merge(own[[*keys, "value"]], "left" if keys else "cross")
            found[str(title)] = joined["value"].to_numpy(float)
        return pd.DataFrame(found, self.marks.index)


def best_mark(data: FigureData) -> FigureMark | None:
    """Return the valid mark with the best median of the figure; of equal marks, the first.

    Return None if the figure has no valid mark.
    """
    return next(iter(marks_of_table(data.valid_marks_best_first.head(1))), None)


# Least range of a colour scale as a share of its largest value, so that scatter of a few per cent
# does not look like a difference.
LEAST_SPAN_OF_COLOUR_SCALE = 0.25


@dataclass(frozen=True)
class ShownValueRange:
    """The range of values in one figure, or in several figures with a common scale."""

    low: float  # lower end of the range, in the metric's unit
    high: float  # upper end of the range, in the metric's unit; above `low`
    scale: UnitScale  # unit of the shown numbers
    # Lowest positive value, for a logarithmic axis; NaN if there is none.
    least_positive: float = math.nan


def find_round_value_limits(
    metric: str, figures: Sequence[FigureData], *, with_intervals: bool = False
) -> ShownValueRange:
    """Return a range with round ends that includes all values and bounds in figures of one metric.

    `with_intervals` says whether the range must include the intervals too.
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
    bottom = min(float(values.min()), (1.0 - LEAST_SPAN_OF_COLOUR_SCALE) * top)
    # The ends of the range are multiples of a step. The step is the smallest number that is at
    # least a tenth of the range and is 1, 2 or 5 times a power of ten.
    width = (top - bottom) / 10.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(n * power for n in (1.0, 2.0, 5.0, 10.0) if n * power >= width * 0.999)
    low = math.floor(bottom / step + 1e-9) * step
    least = float(min(values[values > 0.0]))
    return ShownValueRange(low, math.ceil(top / step - 1e-9) * step, scale, least)
