"""Heat maps: one cell per initiator and target, readable as numbers, colours and gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from chaosity.figures import style
from chaosity.figures.drawing_sheet import (
    MARGIN,
    cross,
    empty_look,
    header_height,
    legend_row,
    new_sheet,
    write_header,
)
from chaosity.figures.figure_data import FigureData
from chaosity.figures.heatmap_layout import (
    GAP,
    LINE,
    PAD,
    Block,
    HeatmapLayout,
    across_title,
    down_title,
    lay_out,
)
from chaosity.figures.mark_texts import Limits, hover, note_words, provenance, value_title, words_of
from chaosity.figures.svg_marks import IGNORE
from chaosity.units import Scale

_BAR_WIDTH, _BAR_HEIGHT, _BAR_ROOM = 2.4, 0.11, 0.52
_BAR_STEPS = 64  # finer than the eye tells apart at this width
_LEAST_WIDTH = 6.2  # room for a title in one line and for the colour bar with the legend
_STATES = {
    "failed": "failed",
    "missing": "not measured yet",
    "unmeasured": "not measured",
    "absent": "not part of the experiment",
}
# Black and white stand out equally well on a colour of this relative luminance (WCAG 2.2).
_EVEN_LUMINANCE = 0.18
Cell = Mapping[str, Any]


def draw_heatmap(cells: FigureData, limits: Limits) -> tuple[Figure, dict[str, str]]:
    """Draw a heat map.

    Args:
        cells: with the axes "rows" and "columns".
        limits: colours' limits and unit.

    Returns:
        The figure, and the text that hovers over each cell by the cell's id in the SVG.
    """
    found = {(row["rows"], row["columns"]): row for row in cells.cells.to_dict("records")}
    rows, columns = cells.axes["rows"], cells.axes["columns"]
    states = {_state(row) for row in found.values()}
    if len(found) < len(rows.places) * len(columns.places):
        states.add("absent")
    head = header_height(cells.title, provenance(cells), _LEAST_WIDTH - 2 * MARGIN)
    layout = lay_out(rows, columns, head, noted=cells.spec.cell_note is not None)
    width = max(layout.right + MARGIN, _LEAST_WIDTH)
    bar_top = layout.top + layout.height + layout.below
    figure, sheet = new_sheet(width, bar_top + _BAR_ROOM)
    write_header(sheet, cells.title, provenance(cells), _LEAST_WIDTH - 2 * MARGIN)
    painter = _Painter(cells, layout, limits, sheet, found)
    texts = painter.paint()
    left = min(layout.left, width - MARGIN - _BAR_WIDTH - 0.2)
    _colour_bar(figure, left, bar_top, limits, painter.colours, value_title(cells, limits.scale))
    entries = [(state, words) for state, words in _STATES.items() if state in states]
    if painter.note.legend:
        sheet.text(
            left + _BAR_WIDTH + 0.35, bar_top + 0.07, painter.note.legend,
            size=style.SMALL_POINTS, va="center_baseline",
        )  # fmt: skip
    legend_row(sheet, left + _BAR_WIDTH + 0.35, bar_top + 0.26, entries)
    return figure, texts


def _state(cell: Cell | None) -> str:
    """How a cell is drawn: valid, failed, missing (planned), unmeasured or absent (never meant)."""
    return "absent" if cell is None else str(cell["status"])


@dataclass(frozen=True)
class _Note:
    """The small second line of each cell.

    Attributes:
        texts: by row and column; none where there is no room for them.
        points: size of the letters.
        legend: what the numbers are, where they stand without a word.
    """

    texts: Mapping[tuple[str, str], str]
    points: float = 0.0
    legend: str = ""


class _Painter:
    """Draws cells and labels onto the sheet."""

    def __init__(
        self,
        cells: FigureData,
        layout: HeatmapLayout,
        limits: Limits,
        sheet: Axes,
        found: Mapping[tuple[str, str], Cell],
    ) -> None:
        self.cells, self.layout, self.limits = cells, layout, limits
        self.sheet, self.found = sheet, found
        self.colours = mpl.colormaps[style.COLOUR_MAP]
        self.norm = Normalize(limits.low, limits.high)
        self.scale, self.points = self._numbers()
        self.note = self._notes()
        self.texts: dict[str, str] = {}

    def _numbers(self) -> tuple[Scale, float]:
        """How numbers are written in cells; size 0 when they would be too small to read.

        A digit less is better than no number: the third one seldom matters beside a colour.
        """
        values = [cell["median"] for cell in self.found.values() if cell["status"] == "valid"]
        height = 0.62 * self.layout.cell_height * style.POINTS_PER_INCH
        scale = self.limits.scale
        for decimals in range(scale.decimals, max(scale.decimals - 2, -1), -1):
            shown = Scale(scale.factor, scale.symbol, decimals)
            texts = {shown.number(value) for value in values}
            widest = max((style.text_width(text, 10.0) for text in texts), default=1.0) / 10.0
            size = min(style.TEXT_POINTS, 0.88 * self.layout.cell_width / widest, height)
            if size >= style.SMALLEST_POINTS:
                return shown, size
        return scale, 0.0

    def _notes(self) -> _Note:
        """The notes as they fit: with a word in front, as bare numbers, or on hover only."""
        column = self.cells.spec.cell_note
        if column is None:
            return _Note({})
        full = {
            place: note_words(column, cell["note"])
            for place, cell in self.found.items()
            if not pd.isna(cell["note"])
        }
        room = self.layout.cell_height * style.POINTS_PER_INCH - 1.15 * self.points
        word = next(iter(full.values()), "").rsplit(" ", 1)[0]
        bare = {place: text.rsplit(" ", 1)[-1] for place, text in full.items()}
        for texts, legend in ((full, ""), (bare, f"small number: {word}")):
            widest = max((style.text_width(text, 10.0) for text in texts.values()), default=1.0)
            size = min(6.0, 0.92 * self.layout.cell_width / widest * 10.0, 0.8 * room)
            if texts and self.points and size >= style.SMALLEST_POINTS:
                return _Note(texts, size, legend)
        return _Note({}, 0.0, f"{word}: on hover and in the CSV" if full else "")

    def paint(self) -> dict[str, str]:
        """Draw all blocks; returns the hover text of each cell by its id."""
        for number, block in enumerate(self.layout.blocks):
            self._block(self.layout.block_left(number), block)
        self._titles()
        return self.texts

    def _block(self, left: float, block: Block) -> None:
        layout, top = self.layout, self.layout.top
        if layout.repeated:
            self._column_labels(left, top - PAD, above=True)
        if layout.named:
            self._column_groups(left)
        for number, group in enumerate(block.groups):
            top += GAP if number else 0.0
            if layout.headed and group.label:
                words = {"size": 6.5, "color": style.GREY, "weight": "bold", "va": "baseline"}
                self.sheet.text(left, top + 0.12, group.label, **words)
            top += layout.heading
            for position in range(group.start, group.stop):
                self._row(left, top + (position - group.start) * layout.cell_height, position)
            height = (group.stop - group.start) * layout.cell_height
            if layout.bracket:
                self._bracket(left, top, height, group.label)
            top += height
        self._column_labels(left, top + PAD)

    def _bracket(self, left: float, top: float, height: float, text: str) -> None:
        x = left - PAD - self.layout.rows.longest - 0.06
        self.sheet.plot([x, x], [top + 0.02, top + height - 0.02], color=style.RULE, lw=0.8)
        self.sheet.text(
            x - 0.05, top + height / 2, text, size=style.SMALL_POINTS, color=style.GREY,
            rotation=90, ha="right", va="center",
        )  # fmt: skip

    def _row(self, left: float, top: float, position: int) -> None:
        layout = self.layout
        self.sheet.text(
            left - PAD, top + layout.cell_height / 2, layout.rows.texts[position],
            size=layout.rows.points, ha="right", va="center_baseline",
            family="DejaVu Sans Mono" if layout.rows.fixed else "DejaVu Sans",
        )  # fmt: skip
        for column, place in enumerate(layout.across.places):
            pair = (layout.down.places[position].name, place.name)
            row, col = (pair[1], pair[0]) if layout.turned else pair
            cell = self.found.get((row, col))
            identity = f"cell-{position}-{column}"
            note = self.note.texts.get((row, col), "")
            self._cell(left + layout.column_left(column), top, cell, identity, note)
            if cell is not None:
                self.texts[identity] = hover(cell, self.cells, self.limits.scale)
            else:
                where = words_of({"rows": row, "columns": col}, self.cells.axes)
                self.texts[identity] = f"{where}: {_STATES['absent']}"

    def _cell(self, x: float, y: float, cell: Cell | None, identity: str, note: str) -> None:
        """One cell: coloured with its number, hatched with a cross, or empty."""
        layout, state = self.layout, _state(cell)
        look = empty_look(state)
        if cell is not None and state == "valid":
            line = 0.9 if layout.cell_height > 0.15 else 0.35
            colour = self.colours(self.norm(cell["median"]))
            look = {"facecolor": colour, "edgecolor": "white", "linewidth": line}
        box = Rectangle((x, y), layout.cell_width, layout.cell_height, **look)
        box.set_gid(identity)
        self.sheet.add_patch(box)
        middle = (x + layout.cell_width / 2, y + layout.cell_height / 2)
        if state == "failed":
            cross(self.sheet, *middle, min(layout.cell_height, layout.cell_width))
        elif cell is not None and state == "valid" and self.points:
            ink = "black" if _luminance(look["facecolor"]) > _EVEN_LUMINANCE else "white"
            if note:
                rise = 0.55 * self.note.points / style.POINTS_PER_INCH
                fall = 0.6 * self.points / style.POINTS_PER_INCH
                self.sheet.text(
                    middle[0], middle[1] + fall, note, size=self.note.points, color=ink,
                    ha="center", va="center_baseline", gid=IGNORE,
                )  # fmt: skip
                middle = (middle[0], middle[1] - rise)
            self.sheet.text(
                *middle, self.scale.number(cell["median"]), size=self.points, color=ink,
                ha="center", va="center_baseline", gid=IGNORE,
            )  # fmt: skip

    def _column_labels(self, left: float, edge: float, *, above: bool = False) -> None:
        layout = self.layout
        for column, text in enumerate(layout.columns.texts):
            self.sheet.text(
                left + layout.column_left(column) + layout.cell_width / 2, edge, text,
                size=layout.columns.points, ha="center", va="bottom" if above else "top",
                rotation=90 if layout.columns.upright else 0,
            )  # fmt: skip

    def _column_groups(self, left: float) -> None:
        """Names of column groups above them."""
        layout = self.layout
        edge = layout.top - (0.14 if layout.repeated else 0.0)
        for group in layout.across.groups:
            first = left + layout.column_left(group.start)
            last = left + layout.column_left(group.stop - 1) + layout.cell_width
            self.sheet.text(
                (first + last) / 2, edge - 0.08, group.label, size=style.SMALL_POINTS,
                color=style.GREY, ha="center", va="baseline",
            )  # fmt: skip
            self.sheet.plot(
                [first + 0.02, last - 0.02], [edge - 0.045] * 2, color=style.RULE, lw=0.8
            )

    def _titles(self) -> None:
        """Titles of both axes."""
        layout = self.layout
        look = {"size": style.TEXT_POINTS, "va": "baseline"}
        self.sheet.text(
            (layout.left + layout.right) / 2, layout.top + layout.height + layout.below - 0.08,
            across_title(layout), ha="center", **look,
        )  # fmt: skip
        if layout.title_above:
            y = layout.top - 0.07 - LINE * layout.named
            self.sheet.text(MARGIN, y, down_title(layout), **look)
            return
        middle = layout.top + min(layout.height, 7.0) / 2
        look |= {"va": "center", "ha": "left", "rotation": 90}
        self.sheet.text(MARGIN, middle, down_title(layout), **look)


def _luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance of a colour (WCAG 2.2), 0 black to 1 white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _colour_bar(
    figure: Figure, left: float, top: float, limits: Limits, colours: Colormap, title: str
) -> None:
    """The colour bar below the cells, with the unit in its title; sizes in inches."""
    width, height = figure.get_size_inches()
    place = (
        left / width, 1.0 - (top + 0.2 + _BAR_HEIGHT) / height, _BAR_WIDTH / width,
        _BAR_HEIGHT / height,
    )  # fmt: skip
    shown = Normalize(limits.low / limits.scale.factor, limits.high / limits.scale.factor)
    axes = figure.add_axes(place)
    steps = colours.resampled(_BAR_STEPS)
    bar = figure.colorbar(ScalarMappable(shown, steps), cax=axes, orientation="horizontal")
    bar.solids.set(rasterized=False, edgecolor="face")  # no pixels, and no seams between colours
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(6)
    bar.update_ticks()
    axes.tick_params(length=2.5, color=style.RULE, pad=2)
    axes.set_title(title, size=style.TEXT_POINTS, loc="left", pad=3)
