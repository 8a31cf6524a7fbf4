"""What all figures have around their data: sheet, header, legend, and marks without a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from chaosity.figures import style
from chaosity.figures.svg_marks import IGNORE

MARGIN = 0.1  # inches
_TITLE_LINE, _LINE = 0.185, 0.135
_EMPTY: dict[str, dict[str, Any]] = {
    "failed": {"facecolor": "white", "hatch": "//////", "edgecolor": style.HATCH, "linewidth": 0.6},
    "missing": {"facecolor": style.UNMEASURED, "edgecolor": "white", "linewidth": 0.9},
    "unmeasured": {
        "facecolor": "white",
        "hatch": "....",
        "edgecolor": style.HATCH,
        "linewidth": 0.6,
    },
    "absent": {"facecolor": "white", "edgecolor": style.UNMEASURED, "linewidth": 0.6},
}
Entry = TypeVar("Entry")


def new_sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure, and axes over all of it that count inches from the top left corner."""
    figure = style.new_figure(width, height)
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set(xlim=(0, width), ylim=(height, 0))
    sheet.set_axis_off()
    return figure, sheet


def header_height(title: str, provenance: str, width: float) -> float:
    """Height in inches of title and provenance when they are as wide as this."""
    lines = len(style.wrapped(provenance, style.SMALL_POINTS, width))
    heads = len(style.wrapped(title, style.TITLE_POINTS, width, bold=True))
    return MARGIN + heads * _TITLE_LINE + lines * _LINE + 0.14


def write_header(sheet: Axes, title: str, provenance: str, width: float) -> None:
    """Title and, smaller, where the values come from, at the top left of a sheet."""
    y = MARGIN
    for line in style.wrapped(title, style.TITLE_POINTS, width, bold=True):
        sheet.text(MARGIN, y, line, size=style.TITLE_POINTS, weight="bold", va="top")
        y += _TITLE_LINE
    y += 0.03
    for line in style.wrapped(provenance, style.SMALL_POINTS, width):
        sheet.text(MARGIN, y, line, size=style.SMALL_POINTS, color=style.GREY, va="top")
        y += _LINE


def empty_look(state: str) -> dict[str, Any]:
    """Fill and edge of what has no value: failed, missing (planned) or absent (never meant)."""
    return dict(_EMPTY.get(state, {}))


def cross(sheet: Axes, x: float, y: float, room: float) -> None:
    """The cross of a failed mark, in the middle of so many inches of room."""
    sheet.text(
        x, y, "\N{MULTIPLICATION SIGN}", size=min(11.0, 62.0 * room), weight="bold",
        color=style.FAILED, ha="center", va="center_baseline", gid=IGNORE,
    )  # fmt: skip


def legend_row(sheet: Axes, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
    """Patches of marks without a value, with words, in one row whose middle is y."""
    for state, words in entries:
        sheet.add_patch(Rectangle((x, y - 0.055), 0.2, 0.11, **empty_look(state)))
        if state == "failed":
            cross(sheet, x + 0.1, y, 0.13)
        sheet.text(x + 0.26, y, words, size=style.SMALL_POINTS, va="center_baseline")
        x += 0.26 + style.text_width(words, style.SMALL_POINTS) + 0.22


def in_rows(
    entries: Sequence[tuple[str, Entry]], width: float, extra: float
) -> list[list[tuple[str, Entry]]]:
    """Legend entries in rows that fit a width.

    Args:
        entries: words and whatever belongs to them.
        width: of a row, inches.
        extra: what an entry needs beside its words, inches.
    """
    rows: list[list[tuple[str, Entry]]] = []
    used = width
    for words, entry in entries:
        needed = extra + style.text_width(words, style.SMALL_POINTS)
        if used + needed > width:
            rows.append([])
            used = 0.0
        rows[-1].append((words, entry))
        used += needed
    return rows
