"""Turn the data of a figure into rows: one for each mark, label or line that is drawn.

What a mark is, its `role` says: `value`, `predicted`, `failed`, `missing`, `left_out`,
`unmeasured`, `absent` (no such point was planned) or `alone` (outside all series). Other rows are
drawn beside marks: bounds, steps, labels, the ring of the best mark. A template of
``templates/figures`` has a layer for each role. How rows are placed depends on the axes of the
data, not on the kind of the figure:

- rows and columns: `x`, `x2`, `y`, `y2` of a cell, with its middle `xm`, `ym`;
- an axis x: `x`, and for bars `slot`, `slot2`, `slot_middle`;
- a measured x: `x`, `x_low`, `x_high`.
"""

from __future__ import annotations

from typing import Any

from chaosity.figures.cell_rows import cell_rows
from chaosity.figures.figure_data_and_value_limits import FigureData, ShownValueRange
from chaosity.figures.mark_labels_and_hover_texts import (
    is_simulated,
    panel_title,
    provenance_text,
    value_axis_title,
)
from chaosity.figures.mark_row import LEFT, legend_values, value_encoding
from chaosity.figures.measured_x_rows import measured_rows, measured_x, valid_numbers, x_title
from chaosity.figures.named_x_rows import (
    named_rows,
    named_x,
    place_bars,
    rows_beside_marks,
    x_positions,
)
from chaosity.figures.vega_lite import WIDTH, Drawing, Row
from chaosity.records.record_types_and_verdict import SIMULATED
from chaosity.units import choose_scale


def drawing_of_figure(data: FigureData, limits: ShownValueRange) -> Drawing:
    """Return the rows of a figure and the values that its template needs.

    Raises:
        UserError: a logarithmic x axis has a value that is not a number above zero.
    """
    title, about = data.title, provenance_text(data)
    if is_simulated(data):  # beside the title, so that it is in a picture that somebody cuts out
        title = f"{title}\N{NO-BREAK SPACE}\N{MIDDLE DOT}\N{NO-BREAK SPACE}{SIMULATED.upper()}"
    value, value_title = value_encoding(data, limits), value_axis_title(data, limits.scale)
    values: dict[str, Any] = {
        "value": value,
        "value_title": value_title,
        "titled_axis": {**value["axis"], "title": value_title},
        **legend_values(data),
    }
    if "rows" in data.axes:
        rows, placed = cell_rows(data, limits)
    else:
        rows, placed = _rows_on_axis(data, limits)
    return Drawing(data.spec.template or data.spec.kind, title, about, rows, values | placed)


def _rows_on_axis(data: FigureData, limits: ShownValueRange) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of marks over an axis in one or several panels."""
    panels = data.value_names_on_axis("panels")
    columns = _column_count(len(panels))
    width = (WIDTH - LEFT - 14.0 * (columns - 1)) / columns if columns > 1 else 392.0
    height = {1: 190.0, 2: 148.0, 4: 104.0}.get(columns, 84.0)
    titles = {name: "" if name is None else panel_title(data, name) for name in panels}
    values: dict[str, Any] = {
        "columns": columns,
        "width": width,
        "height": height,
        "panels": list(titles.values()),
        "has_panels": panels != [None],
    }
    if data.spec.has_measured_x:
        scale = choose_scale(data.x_metric, valid_numbers(data, ["position", "position_high"]))
        values |= {"x": measured_x(data, scale), "x_title": x_title(data, scale)}
        found = list(measured_rows(data, limits, scale))
    else:
        axis = data.axes["x"]
        places = x_positions(data)
        values |= {"x": named_x(data, places, width), "x_title": axis.title}
        found = [*named_rows(data, limits, places), *rows_beside_marks(data, limits, places)]
        values |= place_bars(data, found)
    for row in found:
        row["panel"] = titles[row.get("panel")]
    return found, values


def _column_count(panels: int) -> int:
    """Return the number of panels side by side, so that many panels fit a page."""
    if panels <= 4:
        return min(panels, 2)
    return 4 if panels <= 12 else 6
