"""Parts of pages that need no network: figures, drawings of other programs, texts as HTML."""

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
from chaosity.text_templates import FORMATS, TEMPLATES, write_text

# Browsers need about a second for the SVG of this many marks, and the page grows by a megabyte.
_MOST_INLINE_MARKS = 3000
# Figures have the size of print; on a screen, which is farther away, they are 25 % larger.
_PIXELS_PER_POINT = 4.0 / 3.0 * 1.25
_CODE = re.compile(r"`([^`]+)`")
# The width in the view box of an SVG: its width in points.
_VIEW_BOX = re.compile(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)')


@dataclass(frozen=True)
class FigureSection:
    """A figure on a page."""

    file: FigureFile  # the figure's files, title, caption and values
    svg: str | None  # the drawing; None for a figure that consists of tables alone
    width_pixels: int  # width of the drawing on a screen


def figure_section(figure: FigureFile, folder: Path) -> FigureSection:
    """Return a figure for a page; its files are in the folder.

    The drawing is the SVG, or the PNG of a figure with very many marks.
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
    """Return a URL for a path, relative to the report's folder."""
    # A colon in a folder's name would be the end of a URL's scheme.
    return quote(Path(os.path.relpath(path, output.parent)).as_posix(), safe="/+=,~")


def svg_as_image(data: bytes, description: str, where: str) -> str:
    """Return an SVG of another program as an image, in which no script can run.

    Raises:
        UserError: the bytes are not an SVG document; `where` is their name.
    """
    if b"<svg" not in data or not data.rstrip().endswith(b"</svg>"):
        raise UserError("the file is not an SVG file", where)
    return _image("image/svg+xml", data, description)


def _image(kind: str, data: bytes, description: str) -> str:
    return f'<img alt="{escape(description)}" src="data:{kind};base64,{b64encode(data).decode()}">'


def text_as_html(value: object) -> object:
    """Return a text as HTML; other values, such as drawings, are unchanged.

    A number stays on one line with its per cent sign, and n with its value. Words in backticks are
    shown as code.
    """
    if type(value) is not str:
        return value
    text = str(escape(value)).replace(" %", "\N{NO-BREAK SPACE}%")
    text = text.replace("n = ", "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return Markup(_CODE.sub(r"<code>\1</code>", text))


def render_page(template: str, **values: object) -> str:
    """Return a template as HTML; texts are escaped, drawings are inserted unchanged."""
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
    texts = (change_text, format_cpu_list, p_value_text, variation_percent_text, write_text)
    environment.globals |= FORMATS | {function.__name__: function for function in texts}
    return environment
