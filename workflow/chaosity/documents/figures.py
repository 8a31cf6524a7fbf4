"""The types of the entries in the key `figures` of an experiment, one type for each kind of figure.

A "column" is a factor of the experiment, a column of the tidy table (if no factor has this name),
LOAD.COLUMN for another load of the same point (``storage.initiator``), `initiator_node_count`,
`target_node_count` or `load_count`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from annotated_types import MinLen
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import Name, OneOrSeveral, Positive, Text, Texts, Value

Column = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?$")]
Where = dict[Column, OneOrSeveral[Value]]
# The function by which several values at one mark become one value.
Combine = Literal["median", "minimum", "maximum"]
# Scale of the axis of values. A linear axis starts at zero, which is impossible for a logarithmic
# axis.
ValueScale = Literal["linear", "log"]


class LevelsComparedInCaption(TypedDict):
    """Levels of a column that the caption compares.

    The caption gives the first value of x (or of the columns) from which each `level` differs from
    `to`. The caption also names the slowest initiators.
    """

    column: Column
    """Column with the levels."""
    level: OneOrSeveral[str]
    """Level, or levels, that are compared with `to`."""
    to: str
    """Level with which the other levels are compared."""


class Bound(TypedDict):
    """A dashed line: an upper bound of the figure's values, measured at other points.

    The caption gives the lowest bound along x. The bound is one value for all x and series or, with
    `along_x`, a line for each series. If several points give a bound, the bound is their median.
    """

    title: Text
    """Name of the line in the legend."""
    load: Text
    """Role of the load whose metric is the bound."""
    metric: Name
    """Metric whose value is the bound."""
    where: NotRequired[Where]
    """Rows that have the bound: column -> the value of these rows, or a list of values."""
    times: NotRequired[Positive]
    """Factor by which the metric is multiplied to get the bound."""
    along_x: NotRequired[bool]
    """Says whether each value of x has a separate bound; default: one bound for all x."""


class Figure(TypedDict):
    """The keys that every kind of figure has."""

    name: Name
    """Name of the figure's files, without their ending."""
    title: Text
    """Heading of the figure."""
    load: OneOrSeveral[Text]
    """Role of the load, or of the loads, whose metric is shown."""
    metric: Name
    """Metric that is shown."""
    where: NotRequired[Where]
    """Column -> value, or list of values, of the rows that are shown; null is a missing value.

    Values without a natural order, such as kernels, are on an axis in the order of this list.
    """
    value_title: NotRequired[Text]
    """Title of the axis of values; default: the metric in words and its unit."""
    source: NotRequired[str]
    """Published figure or table that corresponds to this figure."""
    template: NotRequired[Name]
    """Name of the file in templates/figures that draws the figure, such as dots: bars as dots.

    Default: the file with the name of the figure's kind.
    """


class ComparableFigure(Figure):
    """A figure whose marks combine points, and whose scale other figures may share."""

    combine: NotRequired[Combine]
    """How several points at one mark become one value; default: they are an error."""
    colour_scale: NotRequired[Name]
    """Figures with the same name have the same colours (heat maps) or value axis (lines, bars)."""


class Heatmap(ComparableFigure):
    """A heat map: a coloured cell for each row and column."""

    kind: Literal["heatmap"]
    """The kind of figure."""
    rows: Column
    """Column of the rows."""
    columns: Column
    """Column of the columns."""
    cell_note: NotRequired[Column]
    """Column whose value each cell also shows in a smaller font, such as distance."""
    rows_title: NotRequired[Text]
    """Title of the axis of `rows`; default: the name of the column in words."""
    columns_title: NotRequired[Text]
    """Title of the axis of `columns`; default: the name of the column in words."""


class Lines(ComparableFigure):
    """A line for each series, over the values of a column."""

    kind: Literal["lines"]
    """The kind of figure."""
    x: Column
    """Column whose values are on the x axis."""
    series: NotRequired[Column]
    """Column for whose values separate lines are drawn."""
    in_every_series: NotRequired[Texts]
    """Values of `series` whose marks belong to all other series, too."""
    panels: NotRequired[Column]
    """Column for whose values separate panels are drawn."""
    x_scale: NotRequired[Literal["linear", "log2", "log"]]
    """log2: ticks at powers of two; log: ticks at powers of ten."""
    value_scale: NotRequired[ValueScale]
    """Scale of the axis of values; default: linear."""
    compare: NotRequired[LevelsComparedInCaption]
    """Levels of a column; the caption says from which x on the levels differ."""
    mark_best: NotRequired[bool]
    """Ring the best mark; the caption also names x that are about as good. Without panels."""
    cache_steps: NotRequired[bool]
    """Mark the sizes at which latency rises in a step, beside the cache sizes that hwloc reports.

    With this key, x must be a size, and the figure can have neither series nor panels.
    """
    by_configuration: NotRequired[Literal[True]]
    """The report also shows this figure with a line for each configuration of the host."""
    bounds: NotRequired[Annotated[list[Bound], MinLen(1)]]
    """Upper bounds that are drawn as dashed lines."""
    sum: NotRequired[Literal[True]]
    """With `series: load`, two more series: the sum of the loads of a point, and the larger of the
    values that these loads reach alone.

    The values alone come from points of the experiment with the same initiator, target, kernel and
    levels, so each load must also be measured alone. The caption gives the ratio of these series.
    """
    x_title: NotRequired[Text]
    """Title of the x axis; default: the name of the column in words."""
    series_title: NotRequired[Text]
    """Title of the legend; default: the name of the column in words."""
    panels_title: NotRequired[Text]
    """Word before the name of each panel; default: the name of the column in words."""


class Bars(ComparableFigure):
    """A bar for each value of a column."""

    kind: Literal["bars"]
    """The kind of figure."""
    x: Column
    """Column whose values are on the x axis."""
    series: NotRequired[Column]
    """Column for whose values separate bars are drawn side by side."""
    loss_to: NotRequired[str]
    """Value of `series` with which the caption compares each other value."""
    by_configuration: NotRequired[Literal[True]]
    """The report also shows this figure with a bar for each configuration of the host."""
    x_title: NotRequired[Text]
    """Title of the x axis; default: the name of the column in words."""
    series_title: NotRequired[Text]
    """Title of the legend; default: the name of the column in words."""


class CurveOrScatter(Figure):
    """Points over a measured x, joined by lines in their order or as marks alone."""

    kind: Literal["curve", "scatter"]
    """curve: joined by lines; scatter: marks alone."""
    x: Column
    """Metric of another load of the point (load.traffic_bytes_per_second; 0 for a point without
    this load), or a column of numbers.
    """
    series: NotRequired[Column]
    """Column for whose values separate curves, or separate kinds of marks, are drawn."""
    panels: NotRequired[Column]
    """Column for whose values separate panels are drawn."""
    value_scale: NotRequired[ValueScale]
    """Scale of the axis of values; default: linear."""
    by_configuration: NotRequired[Literal[True]]
    """The report also shows this figure with a line for each configuration of the host and a panel
    for each value of `series`; the caption says where two lines cross.
    """
    x_title: NotRequired[Text]
    """Title of the x axis; default: the name of the metric or column in words."""
    series_title: NotRequired[Text]
    """Title of the legend; default: the name of the column in words."""
    panels_title: NotRequired[Text]
    """Word before the name of each panel; default: the name of the column in words."""


class Table(Figure):
    """A table of text: a row for each value of `rows`, a column for each value of `columns`."""

    kind: Literal["table"]
    """The kind of figure."""
    rows: Column
    """Column of the rows."""
    columns: Column
    """Column of the columns."""
    panels: NotRequired[Column]
    """Column for whose values separate tables are made."""
    compare: NotRequired[LevelsComparedInCaption]
    """Levels of a column; the caption says from which x on the levels differ."""
    combine: NotRequired[Combine]
    """How several points at one mark become one value; default: they are an error."""
    rows_title: NotRequired[Text]
    """Heading of the rows; default: the name of the column in words."""
    columns_title: NotRequired[Text]
    """Heading of the columns; default: the name of the column in words."""
    panels_title: NotRequired[Text]
    """Word before the name of each table; default: the name of the column in words."""


def _sum_has_series_of_loads(figure: Any) -> Any:
    if "sum" in figure and (
        figure.get("series") != "load" or not figure["metric"].endswith("_per_second")
    ):
        what = "the key 'sum' needs `series: load` and a metric per second"
        raise PydanticCustomError("sum", what)
    return figure


AnyFigure = Annotated[
    Heatmap
    | Annotated[Lines, AfterValidator(_sum_has_series_of_loads)]
    | Bars
    | CurveOrScatter
    | Table,
    Field(discriminator="kind"),
]
