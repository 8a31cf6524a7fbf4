"""Fonts, colours and sizes of all figures, and the width of text.

Layouts are computed from the width of their text, so labels do not overlap. Sizes are inches and
points on paper: a figure is at most as wide as the text of an A4 page, so a figure that is legible
on the screen is legible in print.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags

POINTS_PER_INCH = 72.0
# A4 is 8.27 in wide; printers need a margin of 0.38 in on each side.
WIDTH = 7.5

TITLE_POINTS, TEXT_POINTS, SMALL_POINTS = 10.5, 8.0, 7.0
# Smaller text on paper needs a magnifier.
SMALLEST_POINTS = 5.5

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
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same text everywhere
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
    "hatch.linewidth": 0.6,
    "svg.fonttype": "path",  # the file holds the glyphs: no font is needed to show it
    "svg.hashsalt": "chaosity",  # ids inside the file depend on its content only
    "path.simplify": False,
}


@contextmanager
def apply_figure_style() -> Iterator[None]:
    """Apply the style of all figures; the user's matplotlib settings have no effect inside."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type] # the stub lists all keys
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that is not registered with pyplot.

    Args:
        width: in inches.
        height: in inches.
    """
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def text_width(text: str, points: float, bold: bool = False, fixed: bool = False) -> float:
    """Return the width of one line of text in inches; `fixed`: in a monospaced font."""
    return _unit_width(text, bold, fixed) * points / POINTS_PER_INCH


@lru_cache(maxsize=8192)
def _unit_width(text: str, bold: bool, fixed: bool) -> float:
    """Return the width of a text as a multiple of its font size."""
    family = "DejaVu Sans Mono" if fixed else "DejaVu Sans"
    font = get_font(findfont(FontProperties(family=family, weight="bold" if bold else "normal")))
    font.set_size(100.0, POINTS_PER_INCH)
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    return float(font.get_width_height()[0]) / 64.0 / 100.0  # FreeType counts in 1/64 point


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
