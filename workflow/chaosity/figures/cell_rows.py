"""Compute the positions of a heat map's cells and labels, in points from the top left cell.

An axis that is longer than a page is divided into blocks. The blocks are drawn side by side, and
each block has labels, so that even 255 drive sets are legible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chaosity.figures.figure_data import (
    Axis,
    AxisGroup,
    AxisRole,
    FigureData,
    FigureMark,
    ShownValueRange,
    has_number,
    marks_of_table,
    shown_value,
)
from chaosity.figures.marks import (
    STATUS_TEXTS,
    axis_label,
    axis_ticks,
    cell_second_value_text,
    data_row_of_mark,
    mark_place_for_csv,
    state_legend,
    value_axis_title,
)
from chaosity.figures.vega_lite import FIGURE_WIDTH_POINTS, Row, text_width_points
from chaosity.units import UnitScale

# Largest number of columns across the page. If a heat map has more columns than that, and more
# columns than rows, its columns run down the page. If rows and columns both exceed that number, the
# heat map is not divided into blocks.
_MOST_COLUMNS_BEFORE_TURN = 32
_MOST_ROWS_ON_A_PAGE = 72  # most rows on a page with legible labels
_TALLEST, _TALLEST_WITH_NOTE, _LOWEST = 22.0, 29.0, 7.6
_WIDEST, _WIDEST_OF_TWO, _NARROWEST = 42.0, 86.0, 1.4
_PAGE_HEIGHT_POINTS = 590.0  # height of all cells on a page, in points
_GAP, _BLOCK_GAP, _HEADING, _PAD = 5.0, 14.0, 12.0, 5.0
_NUMBER, _LABEL, _SMALLEST = 8.0, 7.0, 5.0  # font sizes
_SCALE_SHARE_FOR_WHITE_NUMBERS = (
    0.48  # position on the colour scale at which black and white text are equally legible
)


@dataclass(frozen=True)
class _Layout:
    """The axes down and across the page, positions of rows and columns, and size of a cell."""

    down: Axis
    across: Axis
    turned: bool  # whether the figure's axis `columns` runs down the page
    left: dict[int, float]  # number of a row -> left edge of its block
    top: dict[int, float]  # number of a row -> its upper edge
    column: dict[int, float]  # number of a column -> distance from the block's left edge
    width: float
    height: float
    blocks: list[tuple[AxisGroup, ...]]
    labels: dict[int, str]  # labels of the rows
    is_table: bool  # whether labels have a character for each node of the host
    headed: bool  # whether groups of rows have headings


def heat_map_rows(data: FigureData, limits: ShownValueRange) -> tuple[list[Row], dict[str, Any]]:
    """Return a row for each cell and label of a heat map, and the values for its template."""
    layout = _heat_map_layout(data)
    cells = {(mark["rows"], mark["columns"]): mark for mark in marks_of_table(data.marks)}
    scale, size = _number_format(list(cells.values()), limits.scale, layout)
    notes, note_size, legend = _second_lines_of_cells(data, cells, size, layout)
    factor, low = limits.scale.factor, limits.low
    span = limits.high - low
    rows: list[Row] = []
    for down, row_value in enumerate(layout.down.values):
        for across, column_value in enumerate(layout.across.values):
            pair = (row_value.name, column_value.name)
            place = pair[::-1] if layout.turned else pair
            box = _page_box(layout, down, across)
            row = _row_of_cell(cells.get(place), place, data, limits)
            if size and row["role"] in ("value", "predicted"):
                row["text"] = scale.number(float(row["value"]) * factor)
            elif not size:
                row.pop("text", None)
            rows.append(row | box)
            if place in notes:
                rows.append({"role": "note", "text": notes[place], "value": row["value"], **box})
    rows += _label_rows(layout)
    widths, heights = zip(*((row.get("x2", 0.0), row.get("y2", 0.0)) for row in rows), strict=True)
    width, height = max(widths), max(heights)
    statuses = {row["role"] for row in rows if row["role"] in STATUS_TEXTS}
    title = value_axis_title(data, limits.scale)
    bar = {"title": f"{title}{legend}", "gradientLength": 175, "gradientThickness": 8}
    bar |= {"orient": "bottom", "titleFontWeight": "normal", "titleFontSize": 8, "titleLimit": 500}
    states = state_legend(statuses)
    values = {
        "x": _vega_lite_axis(data, layout, "across", width),
        "y": _vega_lite_axis(data, layout, "down", height),
        "sheet_width": width,
        "sheet_height": height,
        "cell_line": 0.9 if layout.height > 11 and layout.width > 11 else 0.3,
        "limits": [low / factor, limits.high / factor],
        "dark": (low + _SCALE_SHARE_FOR_WHITE_NUMBERS * span) / factor,
        "number_size": size or 1.0,
        "number_up": -0.6 * note_size if notes else 0.0,
        "note_size": note_size or 1.0,
        "note_down": 0.6 * size,
        "row_size": min(_LABEL, max(5.0, 0.86 * layout.height)),
        "colour_bar": {**bar, "tickCount": 6, "offset": 8},
        "states": states and {**states, "offset": 8},
    }
    return rows, values


def _row_of_cell(
    mark: FigureMark | None, place: tuple[str, str], data: FigureData, limits: ShownValueRange
) -> Row:
    if mark is not None:
        return data_row_of_mark(mark, data, limits)
    where = mark_place_for_csv({"rows": place[0], "columns": place[1]}, data)
    return {"role": "absent", "hover": f"{where}: {STATUS_TEXTS['absent']}"}


def _heat_map_layout(data: FigureData) -> _Layout:
    """Return the layout of a heat map, by default with cores across and memory down the page."""
    rows, columns = data.axes["rows"], data.axes["columns"]
    turned = rows.column.split(".")[-1] == "initiator"
    if len(columns.values) > _MOST_COLUMNS_BEFORE_TURN and len(columns.values) > len(rows.values):
        turned = True
    elif len(rows.values) > _MOST_COLUMNS_BEFORE_TURN and len(rows.values) > len(columns.values):
        turned = False
    down, across = (columns, rows) if turned else (rows, columns)
    blocks = _blocks_of_axis(down, across)
    most = max(sum(group.value_count for group in block) for block in blocks)
    table = _membership_labels(down)
    role: AxisRole = "columns" if turned else "rows"
    texts = table or [axis_label(data, role, name) for name in down.tick_names]
    headed = len(blocks) > 1 or table is not None
    tallest = _TALLEST_WITH_NOTE if data.spec.cell_note else _TALLEST
    height = (
        min(tallest, max(_LOWEST, _PAGE_HEIGHT_POINTS / most))
        if len(across.values) <= _MOST_COLUMNS_BEFORE_TURN
        else 0.0
    )
    widest = max(text_width_points(text, _LABEL) for text in texts) * (1.1 if table else 1.0)
    spare = (
        (FIGURE_WIDTH_POINTS - 40.0 - _BLOCK_GAP * (len(blocks) - 1)) / len(blocks) - widest - _PAD
    )
    gap = min(_GAP, 0.5 * spare / len(across.values))
    spare -= gap * (len(across.groups) - 1)
    limit = _WIDEST_OF_TWO if len(across.values) <= 2 else _WIDEST
    width = min(limit, max(_NARROWEST, spare / len(across.values)))
    if not headed:  # cells are almost square, and high enough for labels
        height = min(height or width, max(12.0 if most <= 48 else _NARROWEST, 0.72 * width))
    column, left, top = {}, {}, {}
    for number, group in enumerate(across.groups):
        for position in range(group.start, group.stop):
            column[position] = position * width + gap * number
    block_width = len(across.values) * width + gap * (len(across.groups) - 1)
    for number, block in enumerate(blocks):
        y = 0.0
        for place, group in enumerate(block):
            y += (_GAP if place else 0.0) + (_HEADING if headed else 0.0)
            for position in range(group.start, group.stop):
                left[position], top[position] = (
                    number * (block_width + widest + _PAD + _BLOCK_GAP),
                    y,
                )
                y += height
    labels = dict(enumerate(texts))
    return _Layout(
        down, across, turned, left, top, column, width, height, blocks, labels, bool(table), headed
    )


def _page_box(layout: _Layout, down: int, across: int) -> Row:
    x, y = layout.left[down] + layout.column[across], layout.top[down]
    right, bottom = x + layout.width, y + layout.height
    return {
        "x": x,
        "x2": right,
        "y": y,
        "y2": bottom,
        "xm": (x + right) / 2,
        "ym": (y + bottom) / 2,
    }


def _blocks_of_axis(down: Axis, across: Axis) -> list[tuple[AxisGroup, ...]]:
    """Divide an axis into blocks that fit the height of a page; if possible, keep groups whole."""
    if len(down.values) <= _MOST_ROWS_ON_A_PAGE or len(across.values) > _MOST_COLUMNS_BEFORE_TURN:
        return [down.groups]
    blocks: list[tuple[AxisGroup, ...]] = [()]
    for group in down.groups:
        size = math.ceil(group.value_count / math.ceil(group.value_count / _MOST_ROWS_ON_A_PAGE))
        for start in range(group.start, group.stop, size):
            piece = AxisGroup(group.label, start, min(group.stop, start + size))
            used = sum(each.value_count for each in blocks[-1])
            if blocks[-1] and used + piece.value_count > _MOST_ROWS_ON_A_PAGE:
                blocks.append(())
            blocks[-1] += (piece,)
    return blocks


def _membership_labels(axis: Axis) -> list[str] | None:
    """Return a label for each set of nodes, with a dot for each node that is not in the set.

    The label of the set of nodes 0, 2 and 3 on a host with eight nodes is `0·23····`, so a node has
    the same position in all labels. The result is None if the values of the axis are no sets of
    nodes, if they are few, or if a node number has two digits.
    """
    kinds = {value.kind for value in axis.values}
    nodes = sorted({node for value in axis.values for node in value.nodes})
    if (
        kinds != {"node_drives"}
        or len(axis.values) <= _MOST_COLUMNS_BEFORE_TURN
        or not nodes
        or nodes[-1] > 9
    ):
        return None
    return [
        "".join(str(node) if node in value.nodes else "·" for node in nodes)
        for value in axis.values
    ]


def _number_format(
    cells: list[FigureMark], scale: UnitScale, layout: _Layout
) -> tuple[UnitScale, float]:
    """Return the format and the font size of the numbers in cells; size 0 if they do not fit."""
    values = [shown_value(cell) for cell in cells if has_number(cell)]
    for decimals in range(scale.decimals, max(scale.decimals - 2, -1), -1):
        shown = UnitScale(scale.factor, scale.symbol, decimals)
        widest = max((text_width_points(shown.number(value), 1.0) for value in values), default=1.0)
        size = min(_NUMBER, 0.9 * layout.width / widest, 0.66 * layout.height)
        if size >= _SMALLEST:
            return shown, size
    return scale, 0.0


def _second_lines_of_cells(
    data: FigureData, cells: dict[tuple[str, str], FigureMark], size: float, layout: _Layout
) -> tuple[dict[tuple[str, str], str], float, str]:
    """Return the second line of text of each cell, the font size of both lines, and the legend."""
    column = data.spec.cell_note
    known = {at: cell for at, cell in cells.items() if column and not pd.isna(cell["note"])}
    if column is None or not known:
        return {}, 0.0, ""
    full = {at: cell_second_value_text(column, cell["note"]) for at, cell in known.items()}
    name = next(iter(full.values())).rsplit(" ", 1)[0]
    bare = {at: text.rsplit(" ", 1)[-1] for at, text in full.items()}
    for texts, legend in ((full, ""), (bare, f" \N{MIDDLE DOT} small number: {name}")):
        widest = max(text_width_points(text, 1.0) for text in texts.values())
        fitting = min(6.0, 0.92 * layout.width / widest, 0.8 * (layout.height - 1.15 * size))
        if size and fitting >= _SMALLEST:
            shown = {at: text for at, text in texts.items() if has_number(cells[at])}
            return shown, fitting, legend
    return {}, 0.0, f" \N{MIDDLE DOT} {name}: on hover and in the CSV"


def _label_rows(layout: _Layout) -> Iterator[Row]:
    """Yield a row for each label of the heat map's rows and of groups of rows, block by block."""
    last = len(layout.across.values) - 1
    if layout.headed:
        role = "membership" if layout.is_table else "row_label"
        for position, text in layout.labels.items():
            box = _page_box(layout, position, 0)
            yield {"role": role, "text": text, "xm": box["x"], "ym": box["ym"]}
        for block in layout.blocks:
            for group in block:
                box = _page_box(layout, group.start, 0)
                yield {"role": "heading", "text": group.label, "xm": box["x"], "ym": box["y"] - 5.0}
    elif _group_names_fit(layout.down, layout.height):
        for group in layout.down.groups:
            first, end = (
                _page_box(layout, group.start, last),
                _page_box(layout, group.stop - 1, last),
            )
            x = first["x2"] + 4.0
            ends = {"x": x, "x2": x, "y": first["y"], "y2": end["y2"]}
            yield {"role": "bracket", **ends}
            middle = (first["y"] + end["y2"]) / 2
            yield {"role": "row_group", "text": group.label, "xm": x, "ym": middle}
    if len(layout.blocks) == 1 and _group_names_fit(layout.across, layout.width):
        for group in layout.across.groups:
            first, end = _page_box(layout, 0, group.start), _page_box(layout, 0, group.stop - 1)
            yield {"role": "bracket", "x": first["x"], "x2": end["x2"], "y": -3.0, "y2": -3.0}
            middle = (first["x"] + end["x2"]) / 2
            yield {"role": "column_group", "text": group.label, "xm": middle, "ym": -3.0}


def _group_names_fit(axis: Axis, size: float) -> bool:
    """Return whether an axis has several groups, and each group's name fits beside its cells."""
    return len(axis.groups) > 1 and all(
        text_width_points(group.label, _LABEL) <= group.value_count * size for group in axis.groups
    )


def _vega_lite_axis(data: FigureData, layout: _Layout, side: str, length: float) -> dict[str, Any]:
    """Return an axis for Vega-Lite with the labels of the cells; `side` is across or down."""
    is_across = side == "across"
    axis = layout.across if is_across else layout.down
    shown: dict[str, Any] = {"domain": False, "ticks": False, "grid": False, "labelOverlap": False}
    shown["title"] = _axis_title_with_groups(
        axis, named=_group_names_fit(axis, layout.width if is_across else layout.height)
    )
    if is_across:
        role: AxisRole = "rows" if layout.turned else "columns"
        texts = [axis_label(data, role, name) for name in axis.tick_names]
        widest = max(text_width_points(text, _LABEL) for text in texts)
        upright, size = widest > 0.95 * layout.width, _LABEL
        if upright:
            size = min(_LABEL, max(5.0, layout.width / 1.15))
            # If even upright labels would touch each other, only every second, third, ... label is
            # shown.
            step = math.ceil(1.1 * size / layout.width)
            texts = [text if number % step == 0 else "" for number, text in enumerate(texts)]
            shown |= {"labelAngle": -90, "labelAlign": "right", "labelBaseline": "middle"}
        starts = dict.fromkeys(layout.left.values())
        middles = [
            s + layout.column[i] + layout.width / 2 for s in starts for i in range(len(texts))
        ]
        labels = dict(zip(middles, texts * len(starts), strict=True))
        shown |= {"labelFontSize": size, "labelPadding": 3, "titleAnchor": "middle"}
        if len(starts) > 1:  # labels at the top, since blocks differ in height
            shown |= {"orient": "top", "labelAlign": "left"} if upright else {"orient": "top"}
    else:
        labels = {layout.top[i] + layout.height / 2: text for i, text in layout.labels.items()}
        shown |= {"labelFontSize": min(_LABEL, max(5.0, 0.86 * layout.height)), "labelPadding": 3}
        if layout.headed:  # each block has its own labels
            labels = {}
            widest = max(text_width_points(text, _LABEL) for text in layout.labels.values())
            shown |= {"titlePadding": 1.15 * widest + 8.0}
    scale = {"domain": [0.0, length], "reverse": not is_across, "nice": False}
    field = "x" if is_across else "y"
    ticks = axis_ticks(labels) if labels else {"values": [], "labels": False}
    return {"field": field, "type": "quantitative", "axis": {**shown, **ticks}, "scale": scale}


def _axis_title_with_groups(axis: Axis, *, named: bool) -> str:
    """Return an axis title; if groups have no names, the title says how values are grouped."""
    if named or len(axis.groups) < 2 or axis.has_mixed_kinds:
        return axis.title
    first, *rest = axis.groups[0].label.split()
    what = f"number of {rest[0].rstrip('s')}s" if first.isdigit() else first.rstrip("s")
    return f"{axis.title}, grouped by {what}"
