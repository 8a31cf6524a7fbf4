"""Layout of a heat map: where its cells and labels stand on the page.

Sizes are inches from the top left corner. An axis that is longer than a page is cut into blocks
that stand side by side, each with its own labels. A wide map is turned, so that its long axis runs
down the page: this keeps 255 drive sets legible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from chaosity.figures import figure_style as style
from chaosity.figures.axis_order_and_labels import Axis, AxisGroup, AxisValue
from chaosity.figures.figure_header_and_legends import MARGIN

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


@dataclass(frozen=True)
class RowBlock:
    """A part of the row axis, in its own column of the page."""

    groups: tuple[AxisGroup, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(group.value_count for group in self.groups)


@dataclass(frozen=True)
class AxisLabels:
    """Labels of an axis.

    Attributes:
        texts: by position on the axis.
        points: font size.
        fixed: whether the font is monospaced, so that the labels form a table.
        upright: whether the labels are written upwards.
    """

    texts: tuple[str, ...]
    points: float
    fixed: bool = False
    upright: bool = False

    @property
    def widest_inches(self) -> float:
        """Width of the widest label in inches."""
        return max(style.text_width(text, self.points, fixed=self.fixed) for text in self.texts)


@dataclass(frozen=True)
class HeatmapLayout:
    """Layout of a heat map.

    Attributes:
        turned: whether the figure's columns run down the page.
        down, across: row axis and column axis as drawn.
        blocks: parts of the row axis, side by side.
        cell_width, cell_height: of a cell.
        rows, columns: labels.
        headed: whether groups of rows have headings.
        bracket: width on the left for the names of row groups; 0 without them.
        named: whether column groups have names above them.
        title_above: whether the title of the row axis lies above it, since it is too long to stand.
        repeated: whether column labels stand above the blocks too.
        top: upper edge of the cells.
        gap: between groups of columns.
    """

    turned: bool
    down: Axis
    across: Axis
    blocks: tuple[RowBlock, ...]
    cell_width: float
    cell_height: float
    rows: AxisLabels
    columns: AxisLabels
    headed: bool
    bracket: float
    named: bool
    title_above: bool
    repeated: bool
    top: float
    gap: float

    @property
    def cells_width(self) -> float:
        """Width of a block's cells."""
        gaps = self.gap * (len(self.across.groups) - 1)
        return self.cell_width * len(self.across.values) + gaps

    @property
    def heading_height(self) -> float:
        """Height of a row group's heading."""
        return _HEADING if self.headed else 0.0

    @property
    def tallest_block_height(self) -> float:
        """Height of the tallest block."""
        return max(self.block_height(block) for block in self.blocks)

    @property
    def first_block_left(self) -> float:
        """Left edge of the first block's cells."""
        return self.block_left(0)

    @property
    def last_block_right(self) -> float:
        """Right edge of the last block's cells."""
        return self.block_left(len(self.blocks) - 1) + self.cells_width

    @property
    def column_label_height(self) -> float:
        """Height of the column labels and the title of the column axis."""
        return PAD + (self.columns.widest_inches if self.columns.upright else 0.12) + 0.26

    def block_left(self, number: int) -> float:
        """Return the left edge of a block's cells."""
        labels = self.rows.widest_inches + PAD
        first = MARGIN + (0.0 if self.title_above else _TITLE) + self.bracket + labels
        return first + number * (labels + self.cells_width + BLOCK_GAP)

    def block_height(self, block: RowBlock) -> float:
        """Return the height of a block's cells, gaps and headings."""
        gaps = GAP * (len(block.groups) - 1) + self.heading_height * len(block.groups)
        return block.rows * self.cell_height + gaps

    def column_left(self, position: int) -> float:
        """Return the distance of a column from its block's left edge."""
        before = sum(group.stop <= position for group in self.across.groups)
        return position * self.cell_width + self.gap * before


def lay_out_heatmap(rows: Axis, columns: Axis, top: float, *, noted: bool = False) -> HeatmapLayout:
    """Return the layout of a heat map.

    Args:
        rows: axis that runs down, unless the map is turned.
        columns: axis that runs across.
        top: height of the header in inches.
        noted: whether cells have a second line of text.
    """
    turned = len(columns.values) > MOST_COLUMNS and len(columns.values) > len(rows.values)
    down, across = (columns, rows) if turned else (rows, columns)
    blocks = _cut_into_blocks(down)
    table = _membership_labels(down)
    headed = len(down.values) > MOST_ROWS or table is not None
    tallest = TALLEST_WITH_NOTE if noted else TALLEST_CELL
    height = min(tallest, max(LOWEST_CELL, _PAGE / max(block.rows for block in blocks)))
    row_labels = AxisLabels(
        table or tuple(map(down.tick_label, down.values)),
        min(style.SMALL_POINTS, max(5.0, 0.86 * height * style.POINTS_PER_INCH)),
        fixed=table is not None,
    )
    spare = style.WIDTH - 2 * MARGIN - 2 * _TITLE - BLOCK_GAP * (len(blocks) - 1)
    spare = spare / len(blocks) - row_labels.widest_inches - PAD
    # Gaps shrink where room is scarce, but stay wider than the lines between cells.
    gap = min(GAP, 0.5 * spare / len(across.values))
    spare -= gap * (len(across.groups) - 1)
    few = len(across.values) <= 2
    widest = 1.2 if few else WIDEST_CELL
    width = min(widest, max(NARROWEST_CELL, spare / len(across.values)))
    if not headed and not turned:  # near-square cells, high enough for their labels
        height = min(height, max(LOWEST_CELL, 0.17, 0.72 * width))
    named = len(across.groups) > 1 and _names_fit(across, width)
    tall = max(block.rows for block in blocks) * height
    title_above = style.text_width(_axis_title(down, named), style.TEXT_POINTS) > tall + 0.3
    bracket = _TITLE if len(down.groups) > 1 and not headed and _names_fit(down, height) else 0.0
    column_labels = _column_labels(across, width)
    repeated = len(blocks) > 1 and not column_labels.upright
    top += LINE * (named + title_above) + (0.14 if repeated else 0.0)
    return HeatmapLayout(
        turned=turned,
        down=down,
        across=across,
        blocks=blocks,
        cell_width=width,
        cell_height=height,
        rows=row_labels,
        columns=column_labels,
        headed=headed,
        bracket=bracket,
        named=named,
        title_above=title_above,
        repeated=repeated,
        top=top,
        gap=gap,
    )


def row_axis_title(layout: HeatmapLayout) -> str:
    """Return the title of the axis that runs down."""
    return _axis_title(layout.down, bool(layout.bracket) or layout.headed)


def column_axis_title(layout: HeatmapLayout) -> str:
    """Return the title of the axis that runs across."""
    return _axis_title(layout.across, layout.named)


def _axis_title(axis: Axis, named: bool) -> str:
    """Return an axis title; it names the groups when the groups have no names of their own."""
    if named or len(axis.groups) < 2 or axis.has_mixed_kinds:
        return axis.title
    return f"{axis.title}, grouped by {axis.groups[0].label.split()[0].rstrip('s')}"


def _cut_into_blocks(axis: Axis) -> tuple[RowBlock, ...]:
    """Cut an axis into page-high parts, between groups where possible."""
    if len(axis.values) <= MOST_ROWS:
        return (RowBlock(axis.groups),)
    pieces: list[AxisGroup] = []
    for group in axis.groups:
        size = math.ceil(group.value_count / math.ceil(group.value_count / MOST_ROWS))
        for start in range(group.start, group.stop, size):
            pieces.append(AxisGroup(group.label, start, min(group.stop, start + size)))
    blocks: list[list[AxisGroup]] = [[]]
    for piece in pieces:
        held = sum(other.value_count for other in blocks[-1])
        if blocks[-1] and held + piece.value_count > MOST_ROWS:
            blocks.append([])
        blocks[-1].append(piece)
    return tuple(RowBlock(tuple(block)) for block in blocks)


def _membership_labels(axis: Axis) -> tuple[str, ...] | None:
    """Return labels of many node sets with a column for each node, such as `0·23····`.

    None for other axes, and when a node has two digits.
    """
    kinds = {value.kind for value in axis.values}
    if kinds != {"node_drives"} or len(axis.values) <= MOST_COLUMNS:
        return None
    nodes = sorted({node for value in axis.values for node in value.nodes})
    if nodes and nodes[-1] > 9:
        return None

    def label(value: AxisValue) -> str:
        return "".join(str(node) if node in value.nodes else "·" for node in nodes)

    return tuple(label(value) for value in axis.values)


def _names_fit(axis: Axis, cell: float) -> bool:
    """Whether the names of all groups fit beside their cells; `cell`: size of a cell in inches."""
    return not axis.has_mixed_kinds and all(
        style.text_width(group.label, style.SMALL_POINTS) <= group.value_count * cell
        for group in axis.groups
    )


def _column_labels(axis: Axis, width: float) -> AxisLabels:
    """Return labels for cells of a width in inches: level if a small font fits, else upright."""
    texts = tuple(map(axis.tick_label, axis.values))
    for points in (style.SMALL_POINTS, 6.0, style.SMALLEST_POINTS):
        if max(style.text_width(text, points) for text in texts) <= 0.95 * width:
            return AxisLabels(texts, points)
    points = min(style.SMALL_POINTS, max(5.0, width * style.POINTS_PER_INCH / 1.15))
    # Where upright labels would touch too, only every second, third, ... label is shown.
    step = math.ceil(1.1 * points / style.POINTS_PER_INCH / width)
    shown = tuple(text if number % step == 0 else "" for number, text in enumerate(texts))
    return AxisLabels(shown, points, upright=True)
