"""Compute the layout of a heat map: the positions of its cells and labels on the page.

Sizes are inches from the top left corner. An axis that is longer than a page is divided into blocks
side by side, each with its own labels. A wide map is turned, so that its long axis goes down the
page: then 255 drive sets can be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.axis_order_and_labels import Axis, AxisGroup

# A map with more columns than this is turned when that makes it narrower.
MOST_COLUMNS = 32
# Rows that fit on a page below title and labels, at a row height with legible labels.
MOST_ROWS = 72
TALLEST_CELL, LOWEST_CELL = 0.31, 0.105
TALLEST_WITH_NOTE = 0.4  # a number and a smaller line below it
WIDEST_CELL, NARROWEST_CELL = 0.58, 0.02
GAP = 0.07  # between groups
PAD = 0.06  # between labels and cells
BLOCK_GAP = 0.2
LINE = 0.2  # height of group names above the cells
_HEADING = 0.17
_PAGE = 8.2  # height of the cells on a page
_TITLE = 0.2  # width of the upright title of the row axis


# A part of the row axis that stands in its own column of the page.
RowBlock = tuple[AxisGroup, ...]


@dataclass(frozen=True)
class AxisLabels:
    """Labels of an axis."""

    texts: tuple[str, ...]  # texts of the labels in the order of the axis
    points: float  # font size
    fixed: bool = False  # whether the font is monospaced, so that the labels form a table
    upright: bool = False  # whether the labels are written from bottom to top

    @property
    def widest_inches(self) -> float:
        """Return the width of the widest label in inches."""
        return max(style.text_width(text, self.points, fixed=self.fixed) for text in self.texts)


class HeatmapLayout:
    """Layout of a heat map.

    Attributes:
        turned: whether the figure's columns are drawn as rows, from top to bottom.
        down, across: row axis and column axis as drawn.
        blocks: parts of the row axis, side by side.
        cell_width, cell_height: size of a cell.
        row_labels, column_labels: labels of the axes as drawn.
        headed: whether groups of rows have headings.
        bracket: width on the left for the names of row groups; 0 without names.
        named: whether column groups have names above them.
        row_title, column_title: titles of the axes as drawn.
        title_above: whether the title of the row axis is above it, since it is too long beside it.
        repeated: whether column labels are drawn above the blocks too.
        top: position of the upper edge of the cells.
        gap: width between groups of columns.
    """

    def __init__(self, rows: Axis, columns: Axis, top: float, *, noted: bool = False) -> None:
        """Compute the layout below a header of height `top`.

        `rows` go down the page unless the map is turned; `noted`: whether cells have a second line.
        """
        self.turned = len(columns.values) > MOST_COLUMNS and len(columns.values) > len(rows.values)
        self.down, self.across = (columns, rows) if self.turned else (rows, columns)
        self.blocks = _cut_into_blocks(self.down)
        most_rows = max(map(row_count_of_block, self.blocks))
        table = _membership_labels(self.down)
        self.headed = len(self.down.values) > MOST_ROWS or table is not None
        tallest = TALLEST_WITH_NOTE if noted else TALLEST_CELL
        height = min(tallest, max(LOWEST_CELL, _PAGE / most_rows))
        self.row_labels = AxisLabels(
            table or tuple(map(self.down.tick_label, self.down.values)),
            min(style.SMALL_POINTS, max(5.0, 0.86 * height * style.POINTS_PER_INCH)),
            fixed=table is not None,
        )
        spare = style.WIDTH - 2 * style.MARGIN - 2 * _TITLE - BLOCK_GAP * (len(self.blocks) - 1)
        spare = spare / len(self.blocks) - self.row_labels.widest_inches - PAD
        # Gaps shrink where room is scarce, but stay wider than the lines between cells.
        self.gap = min(GAP, 0.5 * spare / len(self.across.values))
        spare -= self.gap * (len(self.across.groups) - 1)
        widest = 1.2 if len(self.across.values) <= 2 else WIDEST_CELL
        self.cell_width = min(widest, max(NARROWEST_CELL, spare / len(self.across.values)))
        if not self.headed and not self.turned:  # near-square cells, high enough for their labels
            height = min(height, max(LOWEST_CELL, 0.17, 0.72 * self.cell_width))
        self.cell_height = height
        self.named = len(self.across.groups) > 1 and _names_fit(self.across, self.cell_width)
        upright_title = style.text_width(_axis_title(self.down, self.named), style.TEXT_POINTS)
        self.title_above = upright_title > most_rows * height + 0.3
        bracketed = len(self.down.groups) > 1 and not self.headed and _names_fit(self.down, height)
        self.bracket = _TITLE if bracketed else 0.0
        self.row_title = _axis_title(self.down, bracketed or self.headed)
        self.column_title = _axis_title(self.across, self.named)
        self.column_labels = _column_labels(self.across, self.cell_width)
        self.repeated = len(self.blocks) > 1 and not self.column_labels.upright
        self.top = top + LINE * (self.named + self.title_above) + (0.14 if self.repeated else 0.0)

    @property
    def cells_width(self) -> float:
        """Return the width of a block's cells."""
        gaps = self.gap * (len(self.across.groups) - 1)
        return self.cell_width * len(self.across.values) + gaps

    @property
    def row_group_heading_height(self) -> float:
        """Return the height of a row group's heading."""
        return _HEADING if self.headed else 0.0

    @property
    def tallest_block_height(self) -> float:
        """Return the height of the tallest block."""
        return max(self.block_height(block) for block in self.blocks)

    @property
    def last_block_right(self) -> float:
        """Return the right edge of the last block's cells."""
        return self.block_left(len(self.blocks) - 1) + self.cells_width

    @property
    def column_label_height(self) -> float:
        """Return the height of the column labels and the title of the column axis."""
        labels = self.column_labels
        return PAD + (labels.widest_inches if labels.upright else 0.12) + 0.26

    def block_left(self, number: int) -> float:
        """Return the left edge of a block's cells."""
        labels = self.row_labels.widest_inches + PAD
        first = style.MARGIN + (0.0 if self.title_above else _TITLE) + self.bracket + labels
        return first + number * (labels + self.cells_width + BLOCK_GAP)

    def block_height(self, block: RowBlock) -> float:
        """Return the height of a block's cells, gaps and headings."""
        gaps = GAP * (len(block) - 1) + self.row_group_heading_height * len(block)
        return row_count_of_block(block) * self.cell_height + gaps

    def column_left_within_block(self, position: int) -> float:
        """Return the distance of a column from its block's left edge."""
        before = sum(group.stop <= position for group in self.across.groups)
        return position * self.cell_width + self.gap * before


def row_count_of_block(block: RowBlock) -> int:
    """Return the number of rows of a block."""
    return sum(group.value_count for group in block)


def _axis_title(axis: Axis, named: bool) -> str:
    """Return an axis title; the title names the groups when the figure does not name them."""
    if named or len(axis.groups) < 2 or axis.has_mixed_kinds:
        return axis.title
    return f"{axis.title}, grouped by {axis.groups[0].label.split()[0].rstrip('s')}"


def _cut_into_blocks(axis: Axis) -> list[RowBlock]:
    """Divide an axis into parts that fit the height of a page, between groups where possible."""
    if len(axis.values) <= MOST_ROWS:
        return [axis.groups]
    blocks: list[RowBlock] = [()]
    for group in axis.groups:
        size = math.ceil(group.value_count / math.ceil(group.value_count / MOST_ROWS))
        for start in range(group.start, group.stop, size):
            piece = AxisGroup(group.label, start, min(group.stop, start + size))
            if blocks[-1] and row_count_of_block(blocks[-1]) + piece.value_count > MOST_ROWS:
                blocks.append(())
            blocks[-1] += (piece,)
    return blocks


def _membership_labels(axis: Axis) -> tuple[str, ...] | None:
    """Return labels of many node sets with a column for each node, such as `0·23····`.

    The result is None for other axes, and when a node number has two digits.
    """
    kinds = {value.kind for value in axis.values}
    if kinds != {"node_drives"} or len(axis.values) <= MOST_COLUMNS:
        return None
    nodes = sorted({node for value in axis.values for node in value.nodes})
    if nodes and nodes[-1] > 9:
        return None
    return tuple(
        "".join(str(node) if node in value.nodes else "·" for node in nodes)
        for value in axis.values
    )


def _names_fit(axis: Axis, cell: float) -> bool:
    """Return whether all group names fit beside their cells; `cell`: size of a cell in inches."""
    return not axis.has_mixed_kinds and all(
        style.text_width(group.label, style.SMALL_POINTS) <= group.value_count * cell
        for group in axis.groups
    )


def _column_labels(axis: Axis, width: float) -> AxisLabels:
    """Return labels for cells with a width in inches: level if a small font fits, else upright."""
    texts = tuple(map(axis.tick_label, axis.values))
    for points in (style.SMALL_POINTS, 6.0, style.SMALLEST_POINTS):
        if max(style.text_width(text, points) for text in texts) <= 0.95 * width:
            return AxisLabels(texts, points)
    points = min(style.SMALL_POINTS, max(5.0, width * style.POINTS_PER_INCH / 1.15))
    # Where upright labels would touch too, only every second, third, ... label is shown.
    step = math.ceil(1.1 * points / style.POINTS_PER_INCH / width)
    shown = tuple(text if number % step == 0 else "" for number, text in enumerate(texts))
    return AxisLabels(shown, points, upright=True)
