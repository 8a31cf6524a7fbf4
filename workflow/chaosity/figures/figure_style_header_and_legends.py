"""Define the style of all figures, their title and legends, and the look of marks without a value.

Layouts are computed from the width of their text, so labels do not overlap. Sizes are inches and
points on paper. A figure is at most as wide as the text of an A4 page, so a figure that can be read
on the screen can be read in print.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TypedDict, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from chaosity.figures.svg_hover_texts import IGNORE
from chaosity.store.left_out_points import LEFT_OUT, PREDICTED

POINTS_PER_INCH = 72.0
# A4 is 8.27 in wide; printers need a margin of 0.38 in on each side.
WIDTH = 7.5

TITLE_POINTS, TEXT_POINTS, SMALL_POINTS = 10.5, 8.0, 7.0
# Smaller text on paper needs a magnifier.
SMALLEST_POINTS = 5.5
PNG_DOTS_PER_INCH = 200

INK, GREY, RULE, GRID = "#1a1a1a", "#5f5f5f", "#b8b8b8", "#e6e6e6"
UNMEASURED, FAILED, HATCH = "#e4e4e4", "#8a1c1c", "#c9a3a3"

# Cividis was made to look alike with and without colour-vision deficiency (Nuñez, Anderton and
# Renslow, PLOS ONE 2018).
COLOUR_MAP = "cividis"
# Okabe and Ito's palette (2008) without its yellow, which is too pale for lines on white. Each
# colour has its own marker, dash and hatch, so series differ without colour too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ((), (5, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (3, 1.2), (8, 2), (1.2, 2.4))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "---", "ooo")

_SETTINGS: dict[str, object] = {
    "font.family": "DejaVu Sans",  # matplotlib brings this font, so all texts look the same
    "font.size": TEXT_POINTS,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL_POINTS,
    "ytick.labelsize": SMALL_POINTS,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "text.color": INK,
    "text.parse_math": False,  # a name with $ is no formula
    "hatch.linewidth": 0.6,
    "svg.fonttype": "path",  # the file has the glyphs, so no font is needed to show the text
    "svg.hashsalt": "chaosity",  # ids inside the file depend on its content only
    "path.simplify": False,
}


@contextmanager
def figure_style_context() -> Iterator[None]:
    """Apply the style of all figures; the user's matplotlib settings have no effect inside."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type] # the stub lists all keys
        yield


@lru_cache(maxsize=8192)
def text_width(text: str, points: float, bold: bool = False, fixed: bool = False) -> float:
    """Return the width of one line of text in inches; `fixed` says that the font is monospaced."""
    family = "DejaVu Sans Mono" if fixed else "DejaVu Sans"
    font = FontProperties(family=family, weight="bold" if bold else "normal", size=points)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / POINTS_PER_INCH


def wrap_text(text: str, points: float, width: float, bold: bool = False) -> list[str]:
    """Split a text into lines that fit a width in inches; words are never split."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, points, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or [""]


MARGIN = 0.1  # inches
_TITLE_LINE, _LINE = 0.185, 0.135
# Statuses without a value, in the order of the legend. `missing` was planned but not measured;
# `unmeasured` ran but gave no value; `absent` was not planned; a budget left out `left_out` and
# `predicted`, and other values let expect those that are predicted.
STATUS_TEXTS = {
    "failed": "failed",
    "missing": "not measured yet",
    PREDICTED: "predicted, not measured",
    LEFT_OUT: "left out by the budget",
    "unmeasured": "not measured",
    "absent": "not part of the experiment",
}
# Rows of a legend: text of each entry and what its symbol is drawn from.
Entry = TypeVar("Entry")
LegendRows = list[list[tuple[str, Entry]]]
LEGEND_LINE = 0.165  # inches
BOX_WIDTH, LINE_WIDTH = 0.26, 0.4  # room of a symbol before its text, inches
_LEGEND_GAP = 0.22  # inches


class RectangleStyle(TypedDict, total=False):
    """Fill and edge of a rectangle, as keyword arguments of matplotlib."""

    facecolor: str | tuple[float, ...]
    edgecolor: str
    hatch: str
    hatchcolor: tuple[float, ...]
    linewidth: float


# Writes text in the middle of a mark; the mark beneath it receives the pointer.
write_centred = partial(Axes.text, ha="center", va="center_baseline", gid=IGNORE)
# Fill and edge of a mark without a value, by its status. A predicted mark has the colour of its
# prediction.
MISSING_MARK_STYLES: dict[str, RectangleStyle] = {
    PREDICTED: RectangleStyle(facecolor="0.6", hatch="/////", edgecolor="white", linewidth=0.6),
    LEFT_OUT: RectangleStyle(facecolor="white", hatch="..", edgecolor=UNMEASURED, linewidth=0.6),
    "failed": RectangleStyle(facecolor="white", hatch="//////", edgecolor=HATCH, linewidth=0.6),
    "missing": RectangleStyle(facecolor=UNMEASURED, edgecolor="white", linewidth=0.9),
    "unmeasured": RectangleStyle(facecolor="white", hatch="....", edgecolor=HATCH, linewidth=0.6),
    "absent": RectangleStyle(facecolor="white", edgecolor=UNMEASURED, linewidth=0.6),
}


def figure_header_height(title: str, provenance: str, width: float) -> float:
    """Return the height of title and provenance in inches, wrapped to a width in inches."""
    lines = len(wrap_text(provenance, SMALL_POINTS, width))
    title_lines = len(wrap_text(title, TITLE_POINTS, width, bold=True))
    return MARGIN + title_lines * _TITLE_LINE + lines * _LINE + 0.14


def new_figure_with_header(
    width: float, height: float, title: str, provenance: str, header_width: float
) -> tuple[Figure, Axes]:
    """Return a figure, and axes that cover it and count inches from the top left corner.

    Title and, in smaller type, provenance are at the top left, wrapped to `header_width` inches.
    """
    figure = Figure(figsize=(width, height), facecolor="white")
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set(xlim=(0, width), ylim=(height, 0))
    sheet.set_axis_off()
    y = MARGIN
    for line in wrap_text(title, TITLE_POINTS, header_width, bold=True):
        sheet.text(MARGIN, y, line, size=TITLE_POINTS, weight="bold", va="top")
        y += _TITLE_LINE
    y += 0.03
    for line in wrap_text(provenance, SMALL_POINTS, header_width):
        sheet.text(MARGIN, y, line, size=SMALL_POINTS, color=GREY, va="top")
        y += _LINE
    return figure, sheet


def draw_failed_mark_cross(sheet: Axes, x: float, y: float, room: float) -> None:
    """Draw the cross of a failed mark, centred in a square with sides of `room` inches."""
    write = partial(write_centred, size=min(11.0, 62.0 * room), weight="bold", color=FAILED)
    write(sheet, x, y, "\N{MULTIPLICATION SIGN}")


# Draws 95 % intervals: draw_intervals(axes, x, y, xerr=..., ecolor=..., capsize=...).
draw_intervals = partial(
    Axes.errorbar, fmt="none", elinewidth=1.0, capthick=1.0, zorder=2, clip_on=False
)


def draw_rectangle_as_legend_symbol(sheet: Axes, x: float, y: float, look: RectangleStyle) -> None:
    """Draw a rectangle as the symbol of a legend entry; `y` is its middle."""
    sheet.add_patch(Rectangle((x, y - 0.055), 0.2, 0.11, **look))


def draw_legend_of_missing_values(
    sheet: Axes, x: float, y: float, statuses: Collection[str]
) -> None:
    """Draw the legend of marks without a value in one row; `y` is its middle."""

    def draw_symbol(x: float, y: float, status: str) -> None:
        draw_rectangle_as_legend_symbol(sheet, x, y, MISSING_MARK_STYLES[status])
        if status == "failed":
            draw_failed_mark_cross(sheet, x + 0.1, y, 0.13)

    row = [(text, status) for status, text in STATUS_TEXTS.items() if status in statuses]
    draw_legend(sheet, [row], x, y, BOX_WIDTH, draw_symbol)


def draw_legend(
    sheet: Axes,
    rows: LegendRows[Entry],
    left: float,
    top: float,
    symbol_width: float,
    draw_symbol: Callable[[float, float, Entry], object],
) -> None:
    """Draw legend entries row by row; `top` is the middle of the first row in inches."""
    for number, row in enumerate(rows):
        x, y = left, top + LEGEND_LINE * number
        for text, entry in row:
            draw_symbol(x, y, entry)
            sheet.text(x + symbol_width, y, text, size=SMALL_POINTS, va="center_baseline")
            x += symbol_width + text_width(text, SMALL_POINTS) + _LEGEND_GAP


def split_legend_into_rows(
    entries: Sequence[tuple[str, Entry]], width: float, symbol_width: float
) -> LegendRows[Entry]:
    """Return legend entries in rows that fit a width in inches."""
    rows: LegendRows[Entry] = []
    used = width
    for text, entry in entries:
        needed = symbol_width + text_width(text, SMALL_POINTS) + _LEGEND_GAP
        if used + needed > width:
            rows.append([])
            used = 0.0
        rows[-1].append((text, entry))
        used += needed
    return rows
