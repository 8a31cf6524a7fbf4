"""Render pages that need no network: figures, drawings of other programs, texts as HTML."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.figures.figure_files import FigureFile
from chaosity.statistics.anova import p_value_text, variation_percent_text
from chaosity.statistics.estimates import change_text
from chaosity.text_templates import FORMATS, TEMPLATES, text_of_macro

# A figure with more marks than this is shown as PNG: as SVG, it takes a browser about a second and
# makes the page a megabyte larger.
_MOST_INLINE_MARKS = 3000
# Pixels on a screen for a point of a figure. Figures have the size of print, and are 25 % larger on
# a screen, which is farther away.
_PIXELS_PER_POINT = 4.0 / 3.0 * 1.25
_CODE = re.compile(r"`([^`]+)`")
# Finds the width in the view box of an SVG, which is the figure's width in points.
_VIEW_BOX = re.compile(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)')


@dataclass(frozen=True)
class FigureSection:
    """A figure on a page."""

    file: FigureFile  # the figure's files, title, caption and values
    svg: str | None  # the drawing; None for a figure that consists of tables alone
    width_pixels: int  # width of the drawing on a screen


def figure_section(figure: FigureFile, folder: Path) -> FigureSection:
    """Return a figure for a page; the files of the figure are in `folder`.

    The drawing is the SVG or, for a figure with very many marks, the PNG.
    """
    if not (figure.svg and figure.png):
        return FigureSection(figure, None, 0)
    text = (folder / figure.svg).read_text(encoding="utf-8")
    found = _VIEW_BOX.search(text)
    width = round(float(found[1]) * _PIXELS_PER_POINT) if found else 0
    if text.count('class="mark"') > _MOST_INLINE_MARKS:
        text = _image("image/png", (folder / figure.png).read_bytes(), "drawing of many marks")
    return FigureSection(figure, text, width)


def path_relative_to_report(path: Path, output: Path) -> str:
    """Return the URL of a path, relative to the folder of the page `output`."""
    # A colon in a folder's name is quoted, since a browser would read it as the end of a URL's
    # scheme.
    return quote(Path(os.path.relpath(path, output.parent)).as_posix(), safe="/+=,~")


def svg_as_image(data: bytes, description: str, where: str) -> str:
    """Return an SVG of another program as an HTML image, in which no script can run.

    Raises:
        UserError: the bytes are not an SVG document; the error names the file `where`.
    """
    if b"<svg" not in data or not data.rstrip().endswith(b"</svg>"):
        raise UserError("the file is not an SVG file", where)
    return _image("image/svg+xml", data, description)


def _image(kind: str, data: bytes, description: str) -> str:
    return f'<img alt="{escape(description)}" src="data:{kind};base64,{b64encode(data).decode()}">'


def text_as_html(value: object) -> object:
    """Return a text as HTML; return a value that is no text, such as a drawing, unchanged.

    A number and its per cent sign stay on one line, and so do "n =" and its value. Words in
    backticks are shown as code.
    """
    if type(value) is not str:
        return value
    text = str(escape(value)).replace(" %", "\N{NO-BREAK SPACE}%")
    text = text.replace("n = ", "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return Markup(_CODE.sub(r"<code>\1</code>", text))


def render_page(template: str, **values: object) -> str:
    """Return the HTML of a filled page template; texts are escaped, drawings inserted unchanged."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES / "report", TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text_as_html,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = (change_text, format_cpu_list, p_value_text, variation_percent_text, text_of_macro)
    environment.globals |= FORMATS | {function.__name__: function for function in texts}
    return environment
