"""Where the cells and labels of a heat map stand on its sheet.

Sizes are in inches from the top left corner. Axes longer than a page are cut into blocks that
stand side by side, each with its own labels; a wide map is turned so that its long axis runs down
the page, which is how 255 drive sets stay legible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from chaosity.figures import style
from chaosity.figures.axis_values import AxisGroup, AxisValue
from chaosity.figures.drawing_sheet import MARGIN
from chaosity.figures.figure_data import Axis
from chaosity.figures.mark_texts import tick_label

# A map with more columns than this is turned when that makes it narrower.
MOST_COLUMNS = 32
# Rows that fit on a page below title and labels at a row height that leaves labels legible.
MOST_ROWS = 72
TALLEST_CELL, LOWEST_CELL = 0.31, 0.105
TALLEST_WITH_NOTE = 0.4  # a number and a smaller line below it
WIDEST_CELL, NARROWEST_CELL = 0.58, 0.02
GAP = 0.07  # between groups
PAD = 0.06  # between labels and cells
BLOCK_GAP = 0.2
LINE = 0.2  # of names above the cells
_HEADING = 0.17
_PAGE = 8.2  # height that cells may take of a page
_TITLE = 0.2  # width of the title of the axis that runs down, written upright


@dataclass(frozen=True)
class Block:
    """A stretch of the axis that runs down, in one column of the page."""

    groups: tuple[AxisGroup, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(group.stop - group.start for group in self.groups)


@dataclass(frozen=True)
class Labels:
    """Labels of one axis.

    Attributes:
        texts: by position on the axis.
        points: size of the letters.
        fixed: whether all letters are equally wide, so that the labels make a table.
        upright: whether they are written upwards.
    """

    texts: tuple[str, ...]
    points: float
    fixed: bool = False
    upright: bool = False

    @property
    def longest(self) -> float:
        """Length of the longest label in inches."""
        return max(style.text_width(text, self.points, fixed=self.fixed) for text in self.texts)


@dataclass(frozen=True)
class HeatmapLayout:
    """A heat map's sheet.

    Attributes:
        turned: whether the figure's columns run down the page.
        down, across: the two axes as drawn.
        blocks: stretches of the axis `down`, side by side.
        cell_width, cell_height: of one cell.
        rows, columns: labels.
        headed: whether groups of rows have a heading of their own.
        bracket: width on the left for the names of row groups; 0 without.
        named: whether the names of column groups stand above them.
        title_above: whether the title of the axis `down` lies above it, being too long to stand.
        repeated: whether column labels stand above the blocks too.
        top: upper edge of the cells.
        gap: between groups of columns.
    """

    turned: bool
    down: Axis
    across: Axis
    blocks: tuple[Block, ...]
    cell_width: float
    cell_height: float
    rows: Labels
    columns: Labels
    headed: bool
    bracket: float
    named: bool
    title_above: bool
    repeated: bool
    top: float
    gap: float

    @property
    def cells_width(self) -> float:
        """Width of the cells of one block."""
        gaps = self.gap * (len(self.across.groups) - 1)
        return self.cell_width * len(self.across.places) + gaps

    @property
    def heading(self) -> float:
        """Height of a row group's heading."""
        return _HEADING if self.headed else 0.0

    @property
    def height(self) -> float:
        """Height of the tallest block."""
        return max(self.block_height(block) for block in self.blocks)

    @property
    def left(self) -> float:
        """Left edge of the first block's cells."""
        return self.block_left(0)

    @property
    def right(self) -> float:
        """Right edge of the last block's cells."""
        return self.block_left(len(self.blocks) - 1) + self.cells_width

    @property
    def below(self) -> float:
        """Height of the column labels and the title of the axis across."""
        return PAD + (self.columns.longest if self.columns.upright else 0.12) + 0.26

    def block_left(self, number: int) -> float:
        """Left edge of a block's cells."""
        labels = self.rows.longest + PAD
        first = MARGIN + (0.0 if self.title_above else _TITLE) + self.bracket + labels
        return first + number * (labels + self.cells_width + BLOCK_GAP)

    def block_height(self, block: Block) -> float:
        """Height of a block's cells, gaps and headings."""
        gaps = GAP * (len(block.groups) - 1) + self.heading * len(block.groups)
        return block.rows * self.cell_height + gaps

    def column_left(self, position: int) -> float:
        """Distance of a column from its block's left edge."""
        before = sum(group.stop <= position for group in self.across.groups)
        return position * self.cell_width + self.gap * before


def lay_out(rows: Axis, columns: Axis, top: float, *, noted: bool = False) -> HeatmapLayout:
    """Lay out a map of these axes below a header of that height; `noted` for two lines a cell."""
    turned = len(columns.places) > MOST_COLUMNS and len(columns.places) > len(rows.places)
    down, across = (columns, rows) if turned else (rows, columns)
    blocks = _blocks(down)
    table = _membership(down)
    headed = len(down.places) > MOST_ROWS or table is not None
    tallest = TALLEST_WITH_NOTE if noted else TALLEST_CELL
    height = min(tallest, max(LOWEST_CELL, _PAGE / max(block.rows for block in blocks)))
    row_labels = Labels(
        table or tuple(tick_label(place, down) for place in down.places),
        min(style.SMALL_POINTS, max(5.0, 0.86 * height * style.POINTS_PER_INCH)),
        fixed=table is not None,
    )
    spare = style.WIDTH - 2 * MARGIN - 2 * _TITLE - BLOCK_GAP * (len(blocks) - 1)
    spare = spare / len(blocks) - row_labels.longest - PAD
    # Gaps give way where there is little room, but stay wider than the lines between cells.
    gap = min(GAP, 0.5 * spare / len(across.places))
    spare -= gap * (len(across.groups) - 1)
    few = len(across.places) <= 2
    widest = 1.2 if few else WIDEST_CELL
    width = min(widest, max(NARROWEST_CELL, spare / len(across.places)))
    if not headed and not turned:  # near-square cells, never too low for their labels
        height = min(height, max(LOWEST_CELL, 0.17, 0.72 * width))
    named = len(across.groups) > 1 and _names_fit(across, width)
    tall = max(block.rows for block in blocks) * height
    title_above = style.text_width(_title(down, named), style.TEXT_POINTS) > tall + 0.3
    bracket = _TITLE if len(down.groups) > 1 and not headed and _names_fit(down, height) else 0.0
    column_labels = _column_labels(across, width)
    repeated = len(blocks) > 1 and not column_labels.upright
    top += LINE * (named + title_above) + (0.14 if repeated else 0.0)
    return HeatmapLayout(
        turned, down, across, blocks, width, height, row_labels, column_labels, headed, bracket,
        named, title_above, repeated, top, gap,
    )  # fmt: skip


def down_title(layout: HeatmapLayout) -> str:
    """Title of the axis that runs down."""
    return _title(layout.down, bool(layout.bracket) or layout.headed)


def across_title(layout: HeatmapLayout) -> str:
    """Title of the axis that runs across."""
    return _title(layout.across, layout.named)


def _title(axis: Axis, named: bool) -> str:
    """An axis' title; when groups are not named beside it, it says what they are."""
    if named or len(axis.groups) < 2 or axis.mixed:
        return axis.title
    return f"{axis.title}, grouped by {axis.groups[0].label.split()[0].rstrip('s')}"


def _blocks(axis: Axis) -> tuple[Block, ...]:
    """Cut an axis into page-high stretches, between groups where that is possible."""
    if len(axis.places) <= MOST_ROWS:
        return (Block(axis.groups),)
    pieces: list[AxisGroup] = []
    for group in axis.groups:
        parts = math.ceil((group.stop - group.start) / MOST_ROWS)
        size = math.ceil((group.stop - group.start) / parts)
        for start in range(group.start, group.stop, size):
            pieces.append(AxisGroup(group.label, start, min(group.stop, start + size)))
    blocks: list[list[AxisGroup]] = [[]]
    for piece in pieces:
        held = sum(other.stop - other.start for other in blocks[-1])
        if blocks[-1] and held + piece.stop - piece.start > MOST_ROWS:
            blocks.append([])
        blocks[-1].append(piece)
    return tuple(Block(tuple(block)) for block in blocks)


def _membership(axis: Axis) -> tuple[str, ...] | None:
    """Labels of many sets of nodes in which each node has its own column: `0·23····`."""
    if {place.kind for place in axis.places} != {"nodeset"} or len(axis.places) <= MOST_COLUMNS:
        return None
    nodes = sorted({node for place in axis.places for node in place.nodes})
    if nodes and nodes[-1] > 9:
        return None

    def label(place: AxisValue) -> str:
        return "".join(str(node) if node in place.nodes else "·" for node in nodes)

    return tuple(label(place) for place in axis.places)


def _names_fit(axis: Axis, cell: float) -> bool:
    """Whether the names of an axis' groups fit beside them, for cells of that size."""
    return not axis.mixed and all(
        style.text_width(group.label, style.SMALL_POINTS) <= (group.stop - group.start) * cell
        for group in axis.groups
    )


def _column_labels(axis: Axis, width: float) -> Labels:
    """Labels below the cells: side by side when they fit, a little smaller if that helps."""
    texts = tuple(tick_label(place, axis) for place in axis.places)
    for points in (style.SMALL_POINTS, 6.0, style.SMALLEST_POINTS):
        if max(style.text_width(text, points) for text in texts) <= 0.95 * width:
            return Labels(texts, points)
    points = min(style.SMALL_POINTS, max(5.0, width * style.POINTS_PER_INCH / 1.15))
    # Where even upright labels would touch, every second, third, ... one stands for the others.
    step = math.ceil(1.1 * points / style.POINTS_PER_INCH / width)
    shown = tuple(text if number % step == 0 else "" for number, text in enumerate(texts))
    return Labels(shown, points, upright=True)
