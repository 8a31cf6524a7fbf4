"""Draw heat maps: a coloured cell with its number for each initiator and target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    FigureMark,
    ShownValueRange,
    has_number,
    mark_rows,
    shown_value,
)
from chaosity.figures.heatmap_layout import GAP, LINE, PAD, HeatmapLayout, RowBlock
from chaosity.figures.mark_labels_and_hover_texts import (
    cell_second_value_text,
    hover_text,
    mark_location_text,
    provenance_text,
    value_axis_title,
)
from chaosity.store.left_out_points import PREDICTED
from chaosity.units import UnitScale

_BAR_WIDTH, _BAR_HEIGHT, _BAR_ROOM = 2.4, 0.11, 0.52
_BAR_STEPS = 64  # the eye cannot separate more colours at this width
_LEAST_WIDTH = 6.2  # room for a title in one line and for colour bar and legend
# Black and white contrast equally with a colour of this relative luminance (WCAG 2.2).
_EVEN_LUMINANCE = 0.18
# How far the lines of a predicted cell are from its colour, towards the colour of its number.
_HATCH_CONTRAST = 0.25
Cells = Mapping[tuple[str, str], FigureMark]  # by names of row and column


def draw_heatmap(data: FigureData, limits: ShownValueRange) -> tuple[Figure, dict[str, str]]:
    """Return a heat map, and the hover text of each cell by the cell's id in the SVG.

    The data has the axes "rows" and "columns"; the limits are those of the colours.
    """
    cells = {(mark["rows"], mark["columns"]): mark for mark in mark_rows(data.marks)}
    rows, columns = data.axes["rows"], data.axes["columns"]
    statuses = {mark["status"] for mark in cells.values()}
    if len(cells) < len(rows.values) * len(columns.values):
        statuses.add("absent")
    texts = (data.title, provenance_text(data), _LEAST_WIDTH - 2 * style.MARGIN)
    header = style.figure_header_height(*texts)
    layout = HeatmapLayout(rows, columns, header, noted=data.spec.cell_note is not None)
    width = max(layout.last_block_right + style.MARGIN, _LEAST_WIDTH)
    bar_top = layout.top + layout.tallest_block_height + layout.column_label_height
    figure, sheet = style.new_figure_with_header(width, bar_top + _BAR_ROOM, *texts)
    painter = _HeatmapPainter(data, layout, limits, sheet, cells)
    for number, block in enumerate(layout.blocks):
        painter.draw_block(layout.block_left(number), block)
    painter.write_titles()
    left = min(layout.block_left(0), width - style.MARGIN - _BAR_WIDTH - 0.2)
    _draw_colour_bar(
        figure, left, bar_top, limits, painter.colours, value_axis_title(data, limits.scale)
    )
    x = left + _BAR_WIDTH + 0.35
    if legend := painter.note_legend:
        sheet.text(x, bar_top + 0.07, legend, size=style.SMALL_POINTS, va="center_baseline")
    style.draw_legend_of_missing_values(sheet, x, bar_top + 0.26, statuses)
    return figure, painter.texts


class _HeatmapPainter:
    """Draws the cells and labels of a heat map."""

    def __init__(
        self,
        data: FigureData,
        layout: HeatmapLayout,
        limits: ShownValueRange,
        sheet: Axes,
        cells: Cells,
    ) -> None:
        self.data, self.layout, self.limits = data, layout, limits
        self.sheet, self.cells = sheet, cells
        self.colours = mpl.colormaps[style.COLOUR_MAP]
        self.norm = Normalize(limits.low, limits.high)
        self.scale, self.points = self._number_format()
        # Second line of each cell by row and column, its font size, and the text that explains it.
        self.notes, self.note_points, self.note_legend = self._fit_notes()
        self.texts: dict[str, str] = {}  # hover text of each drawn cell by its id

    def _number_format(self) -> tuple[UnitScale, float]:
        """Return the format and font size of the numbers; size 0 when they would be too small.

        Fewer digits are better than no number: next to a colour, a third digit rarely matters.
        """
        values = [shown_value(cell) for cell in self.cells.values() if has_number(cell)]
        height = 0.62 * self.layout.cell_height * style.POINTS_PER_INCH
        scale = self.limits.scale
        for decimals in range(scale.decimals, max(scale.decimals - 2, -1), -1):
            shown = UnitScale(scale.factor, scale.symbol, decimals)
            texts = {shown.number(value) for value in values}
            widest = max((style.text_width(text, 10.0) for text in texts), default=1.0) / 10.0
            size = min(style.TEXT_POINTS, 0.88 * self.layout.cell_width / widest, height)
            if size >= style.SMALLEST_POINTS:
                return shown, size
        return scale, 0.0

    def _fit_notes(self) -> tuple[dict[tuple[str, str], str], float, str]:
        """Return the cells' second lines: with a name if that fits, else without it, else none."""
        column = self.data.spec.cell_note
        if column is None:
            return {}, 0.0, ""
        full = {
            place: cell_second_value_text(column, cell["note"])
            for place, cell in self.cells.items()
            if not pd.isna(cell["note"])
        }
        room = self.layout.cell_height * style.POINTS_PER_INCH - 1.15 * self.points
        name = next(iter(full.values()), "").rsplit(" ", 1)[0]
        bare = {place: text.rsplit(" ", 1)[-1] for place, text in full.items()}
        for texts, legend in ((full, ""), (bare, f"small number: {name}")):
            widest = max((style.text_width(text, 10.0) for text in texts.values()), default=1.0)
            size = min(6.0, 0.92 * self.layout.cell_width / widest * 10.0, 0.8 * room)
            if texts and self.points and size >= style.SMALLEST_POINTS:
                return texts, size, legend
        return {}, 0.0, f"{name}: on hover and in the CSV" if full else ""

    def draw_block(self, left: float, block: RowBlock) -> None:
        """Draw a part of the row axis with its labels; `left` is the left edge of its cells."""
        layout, top = self.layout, self.layout.top
        if layout.repeated:
            self._write_column_labels(left, top - PAD, above=True)
        if layout.named:
            self._name_column_groups(left)
        for number, group in enumerate(block):
            top += GAP if number else 0.0
            if layout.headed and group.label:
                write = partial(self.sheet.text, size=6.5, color=style.GREY, weight="bold")
                write(left, top + 0.12, group.label, va="baseline")
            top += layout.row_group_heading_height
            for position in range(group.start, group.stop):
                self._draw_row(left, top + (position - group.start) * layout.cell_height, position)
            height = group.value_count * layout.cell_height
            if layout.bracket:
                self._name_row_group(left, top, height, group.label)
            top += height
        self._write_column_labels(left, top + PAD)

    def _name_row_group(self, left: float, top: float, height: float, text: str) -> None:
        """Write the name of a group of rows beside a line on its left."""
        x = left - PAD - self.layout.row_labels.widest_inches - 0.06
        self.sheet.plot([x, x], [top + 0.02, top + height - 0.02], color=style.RULE, lw=0.8)
        write = partial(self.sheet.text, size=style.SMALL_POINTS, color=style.GREY, rotation=90)
        write(x - 0.05, top + height / 2, text, ha="right", va="center")

    def _draw_row(self, left: float, top: float, position: int) -> None:
        """Draw a row's label and cells, and add the hover texts."""
        layout, labels = self.layout, self.layout.row_labels
        middle, family = top + layout.cell_height / 2, f"DejaVu Sans{' Mono' * labels.fixed}"
        write = partial(self.sheet.text, size=labels.points, family=family)
        write(left - PAD, middle, labels.texts[position], ha="right", va="center_baseline")
        for column, value in enumerate(layout.across.values):
            pair = (layout.down.values[position].name, value.name)
            row, col = (pair[1], pair[0]) if layout.turned else pair
            cell, note = self.cells.get((row, col)), self.notes.get((row, col), "")
            identity = f"cell-{position}-{column}"
            self._draw_cell(
                left + layout.column_left_within_block(column), top, cell, identity, note
            )
            if cell is not None:
                self.texts[identity] = hover_text(cell, self.data, self.limits.scale)
            else:
                place = mark_location_text({"rows": row, "columns": col}, self.data)
                self.texts[identity] = f"{place}: {style.STATUS_TEXTS['absent']}"

    def _draw_cell(
        self, x: float, y: float, cell: FigureMark | None, identity: str, note: str
    ) -> None:
        """Draw a cell: coloured with its number, also hatched if predicted; or without a value."""
        layout = self.layout
        size = (layout.cell_width, layout.cell_height)
        middle = (x + layout.cell_width / 2, y + layout.cell_height / 2)
        if cell is None or not has_number(cell):
            status = cell["status"] if cell is not None else "absent"
            # Unlike add_patch, this computes no limits of the data, which the sheet does not use.
            box = Rectangle((x, y), *size, gid=identity, **style.MISSING_MARK_STYLES[status])
            self.sheet.add_artist(box)
            if status == "failed":
                style.draw_failed_mark_cross(self.sheet, *middle, min(size))
            return
        line = 0.9 if layout.cell_height > 0.15 else 0.35
        value, predicted = shown_value(cell), cell["status"] == PREDICTED
        colour = self.colours(float(self.norm(value)))
        look = style.RectangleStyle(facecolor=colour, edgecolor="white", linewidth=line)
        ink = "black" if _luminance(colour) > _EVEN_LUMINANCE else "white"
        if predicted:
            look["hatch"] = style.MISSING_MARK_STYLES[PREDICTED]["hatch"]
            look["hatchcolor"] = _hatch_colour(colour, ink)
        self.sheet.add_artist(Rectangle((x, y), *size, gid=identity, **look))
        if not self.points:
            return
        write = partial(style.write_centred, color=ink)
        if note:
            rise = 0.55 * self.note_points / style.POINTS_PER_INCH
            y = middle[1] + 0.6 * self.points / style.POINTS_PER_INCH
            write(self.sheet, middle[0], y, note, size=self.note_points)
            middle = (middle[0], middle[1] - rise)
        number = self.scale.number(value)
        slant = "italic" if predicted else "normal"
        write(self.sheet, *middle, number, size=self.points, style=slant)

    def _write_column_labels(self, left: float, edge: float, *, above: bool = False) -> None:
        layout, labels = self.layout, self.layout.column_labels
        write = partial(self.sheet.text, size=labels.points, rotation=90 if labels.upright else 0)
        for column, text in enumerate(labels.texts):
            x = left + layout.column_left_within_block(column) + layout.cell_width / 2
            write(x, edge, text, ha="center", va="bottom" if above else "top")

    def _name_column_groups(self, left: float) -> None:
        """Write the names of column groups above a line over each."""
        layout = self.layout
        edge = layout.top - (0.14 if layout.repeated else 0.0)
        write = partial(self.sheet.text, size=style.SMALL_POINTS, color=style.GREY)
        for group in layout.across.groups:
            first = left + layout.column_left_within_block(group.start)
            last = left + layout.column_left_within_block(group.stop - 1) + layout.cell_width
            write((first + last) / 2, edge - 0.08, group.label, ha="center", va="baseline")
            ends = [first + 0.02, last - 0.02]
            self.sheet.plot(ends, [edge - 0.045] * 2, color=style.RULE, lw=0.8)

    def write_titles(self) -> None:
        """Write the titles of both axes."""
        layout, size = self.layout, style.TEXT_POINTS
        x = (layout.block_left(0) + layout.last_block_right) / 2
        y = layout.top + layout.tallest_block_height + layout.column_label_height - 0.08
        self.sheet.text(x, y, layout.column_title, ha="center", va="baseline", size=size)
        title = layout.row_title
        if layout.title_above:
            y = layout.top - 0.07 - LINE * layout.named
            self.sheet.text(style.MARGIN, y, title, va="baseline", size=size)
            return
        y = layout.top + min(layout.tallest_block_height, 7.0) / 2
        self.sheet.text(style.MARGIN, y, title, va="center", ha="left", rotation=90, size=size)


def _hatch_colour(colour: tuple[float, ...], ink: str) -> tuple[float, ...]:
    """Return a colour that shows lines on a cell but leaves its number legible."""
    towards = 0.0 if ink == "black" else 1.0
    return tuple(part + _HATCH_CONTRAST * (towards - part) for part in colour[:3])


def _luminance(colour: tuple[float, ...]) -> float:
    """Return the relative luminance of a colour (WCAG 2.2): 0 is black, 1 is white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _draw_colour_bar(
    figure: Figure, left: float, top: float, limits: ShownValueRange, colours: Colormap, title: str
) -> None:
    """Draw the colour bar below the cells; the position is in inches."""
    width, height = figure.get_size_inches()
    corner = (left / width, 1.0 - (top + 0.2 + _BAR_HEIGHT) / height)
    axes = figure.add_axes((*corner, _BAR_WIDTH / width, _BAR_HEIGHT / height))
    shown = Normalize(limits.low / limits.scale.factor, limits.high / limits.scale.factor)
    steps = colours.resampled(_BAR_STEPS)
    bar = figure.colorbar(ScalarMappable(shown, steps), cax=axes, orientation="horizontal")
    if bar.solids is not None:  # as vectors, without seams between the colours
        bar.solids.set(rasterized=False, edgecolor="face")
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(6)
    bar.update_ticks()
    axes.tick_params(length=2.5, color=style.RULE, pad=2)
    axes.set_title(title, size=style.TEXT_POINTS, loc="left", pad=3)
