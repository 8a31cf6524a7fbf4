"""How all figures look, and the measuring of text that lets them be laid out without overlaps.

Sizes are in inches and points as on paper: a figure is at most as wide as the text of an A4 page,
so what is legible on the screen is legible in print.
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
# A4 is 8.27 in wide; 0.38 in of margin on each side is what printers leave.
WIDTH = 7.5

TITLE_POINTS, TEXT_POINTS, SMALL_POINTS = 10.5, 8.0, 7.0
# Below this, text on paper cannot be read without a magnifier.
SMALLEST_POINTS = 5.5

INK, GREY, RULE = "#1a1a1a", "#5f5f5f", "#b8b8b8"
UNMEASURED, FAILED, HATCH = "#e4e4e4", "#8a1c1c", "#c9a3a3"

# Cividis was made to look alike with and without colour-vision deficiency (Nuñez, Anderton and
# Renslow, PLOS ONE 2018).
COLOUR_MAP = "cividis"
# Okabe and Ito's palette (2008) without its yellow, which is too pale for lines on white; each
# colour has a marker, dash and hatch of its own, so nothing hangs on colour alone.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ((), (5, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (3, 1.2), (8, 2), (1.2, 2.4))
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "---", "ooo")

_SETTINGS = {
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
    "svg.fonttype": "path",  # glyphs are inside the file: no font is needed to show it
    "svg.hashsalt": "chaosity",  # names inside the file depend on its content only
    "path.simplify": False,
}


@contextmanager
def look() -> Iterator[None]:
    """Everything drawn inside looks like one family and does not depend on the user's settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure without any global state.

    Args:
        width: in inches.
        height: in inches.
    """
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def text_width(text: str, points: float, bold: bool = False, fixed: bool = False) -> float:
    """Width of one line of text in inches; `fixed` for letters of equal width."""
    return _unit_width(text, bold, fixed) * points / POINTS_PER_INCH


@lru_cache(maxsize=8192)
def _unit_width(text: str, bold: bool, fixed: bool) -> float:
    """Width of a text as a multiple of its size."""
    family = "DejaVu Sans Mono" if fixed else "DejaVu Sans"
    font = get_font(findfont(FontProperties(family=family, weight="bold" if bold else "normal")))
    font.set_size(100.0, POINTS_PER_INCH)
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    return float(font.get_width_height()[0]) / 64.0 / 100.0  # FreeType counts in 1/64 point


def wrapped(text: str, points: float, width: float, bold: bool = False) -> list[str]:
    """Text in lines that fit a width in inches; a word that is too long stays whole."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, points, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or [""]
