"""The page of a figure: title, provenance, legends, and marks without a value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TypedDict, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from chaosity.figures import figure_style as style
from chaosity.figures.svg_hover_texts import IGNORE

MARGIN = 0.1  # inches
_TITLE_LINE, _LINE = 0.185, 0.135
# Statuses without a value, in the order of the legend. `missing` is planned; `unmeasured` was
# measured and gave no value; `absent` is never planned.
STATUS_TEXTS = {
    "failed": "failed",
    "missing": "not measured yet",
    "unmeasured": "not measured",
    "absent": "not part of the experiment",
}
Entry = TypeVar("Entry")


class BoxStyle(TypedDict, total=False):
    """Fill and edge of a rectangle, as keyword arguments of matplotlib."""

    facecolor: str | tuple[float, ...]
    edgecolor: str
    hatch: str
    linewidth: float


class TextStyle(TypedDict, total=False):
    """Look of a text, as keyword arguments of matplotlib."""

    size: float
    weight: str
    color: str
    ha: str
    va: str
    rotation: float
    gid: str


# Text in the middle of a mark; the mark beneath it receives the pointer.
CENTRED = TextStyle(ha="center", va="center_baseline", gid=IGNORE)
_EMPTY: dict[str, BoxStyle] = {
    "failed": BoxStyle(facecolor="white", hatch="//////", edgecolor=style.HATCH, linewidth=0.6),
    "missing": BoxStyle(facecolor=style.UNMEASURED, edgecolor="white", linewidth=0.9),
    "unmeasured": BoxStyle(facecolor="white", hatch="....", edgecolor=style.HATCH, linewidth=0.6),
    "absent": BoxStyle(facecolor="white", edgecolor=style.UNMEASURED, linewidth=0.6),
}


def new_figure_sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure and axes over all of it, in inches from the top left corner."""
    figure = style.new_figure(width, height)
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set(xlim=(0, width), ylim=(height, 0))
    sheet.set_axis_off()
    return figure, sheet


def figure_header_height(title: str, provenance: str, width: float) -> float:
    """Return the height of title and provenance in inches, wrapped to a width in inches."""
    lines = len(style.wrap_text(provenance, style.SMALL_POINTS, width))
    title_lines = len(style.wrap_text(title, style.TITLE_POINTS, width, bold=True))
    return MARGIN + title_lines * _TITLE_LINE + lines * _LINE + 0.14


def write_figure_header(sheet: Axes, title: str, provenance: str, width: float) -> None:
    """Write the title and, smaller, the provenance at the top left of a sheet."""
    y = MARGIN
    for line in style.wrap_text(title, style.TITLE_POINTS, width, bold=True):
        sheet.text(MARGIN, y, line, size=style.TITLE_POINTS, weight="bold", va="top")
        y += _TITLE_LINE
    y += 0.03
    for line in style.wrap_text(provenance, style.SMALL_POINTS, width):
        sheet.text(MARGIN, y, line, size=style.SMALL_POINTS, color=style.GREY, va="top")
        y += _LINE


def missing_mark_style(status: str) -> BoxStyle:
    """Return fill and edge of a mark without a value, by its status."""
    return _EMPTY[status]


def draw_failed_mark_cross(sheet: Axes, x: float, y: float, room: float) -> None:
    """Draw the cross of a failed mark, centred in a square with sides of `room` inches."""
    size = min(11.0, 62.0 * room)
    look: TextStyle = {**CENTRED, "size": size, "weight": "bold", "color": style.FAILED}
    sheet.text(x, y, "\N{MULTIPLICATION SIGN}", **look)


# Draws 95 % intervals: draw_intervals(axes, x, y, xerr=..., ecolor=..., capsize=...).
draw_intervals = partial(
    Axes.errorbar, fmt="none", elinewidth=1.0, capthick=1.0, zorder=2, clip_on=False
)


def draw_status_legend(sheet: Axes, x: float, y: float, statuses: Collection[str]) -> None:
    """Draw the legend of marks without a value in one row; `y` is its middle."""
    for status, text in STATUS_TEXTS.items():
        if status not in statuses:
            continue
        sheet.add_patch(Rectangle((x, y - 0.055), 0.2, 0.11, **missing_mark_style(status)))
        if status == "failed":
            draw_failed_mark_cross(sheet, x + 0.1, y, 0.13)
        sheet.text(x + 0.26, y, text, size=style.SMALL_POINTS, va="center_baseline")
        x += 0.26 + style.text_width(text, style.SMALL_POINTS) + 0.22


def wrap_legend(
    entries: Sequence[tuple[str, Entry]], width: float, extra: float
) -> list[list[tuple[str, Entry]]]:
    """Split legend entries into rows that fit a width.

    Args:
        entries: text of each entry and what its symbol is drawn from.
        width: of a row, inches.
        extra: room of an entry in addition to its text, inches.
    """
    rows: list[list[tuple[str, Entry]]] = []
    used = width
    for text, entry in entries:
        needed = extra + style.text_width(text, style.SMALL_POINTS)
        if used + needed > width:
            rows.append([])
            used = 0.0
        rows[-1].append((text, entry))
        used += needed
    return rows
