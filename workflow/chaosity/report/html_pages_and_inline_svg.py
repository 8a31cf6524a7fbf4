"""Render pages that need no network, and make SVG files safe for insertion into a page."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from lxml import etree
from markupsafe import Markup, escape

from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.figures.svg_hover_texts import REFERENCES, prefix_svg_ids
from chaosity.statistics.anova import p_value_text, variation_percent_text
from chaosity.statistics.estimates_and_ratios import change_text
from chaosity.text_templates import FORMATS, TEMPLATES, write_text

# Elements that can run code, load files, or restyle the rest of the page.
_UNSAFE = {"script", "foreignObject", "style", "metadata", "image", "iframe", "animate", "set"}


def inline_svg(text: str | bytes, scope: str, where: str = "drawing") -> str:
    """Return an SVG document as an element for an HTML page.

    Args:
        text: the whole document.
        scope: prefix of all ids, so that two drawings on a page have no id in common.
        where: name of the document in errors.

    Raises:
        UserError: the text is not an SVG document.
    """
    data = text.encode() if isinstance(text, str) else text
    parser = etree.XMLParser(
        remove_comments=True,
        remove_pis=True,
        resolve_entities=False,
        no_network=True,
        huge_tree=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"the file is not an SVG file: {error.msg}", where) from error
    if etree.QName(root).localname != "svg":
        raise UserError("the file is not an SVG file", where)
    for element in list(root.iter(etree.Element)):
        parent = element.getparent()
        if etree.QName(element).localname in _UNSAFE and parent is not None:
            parent.remove(element)
        else:
            _remove_unsafe_attributes(element)
    prefix_svg_ids(root, scope)
    _set_view_box(root)
    return str(etree.tostring(root, encoding="unicode"))


def _remove_unsafe_attributes(element: etree._Element) -> None:
    """Remove event handlers and references to other files."""
    for key, value in [(str(key), str(value)) for key, value in element.attrib.items()]:
        outside = key in REFERENCES and not value.startswith("#")
        if outside or etree.QName(key).localname.lower().startswith("on"):
            del element.attrib[key]


def _set_view_box(root: etree._Element) -> None:
    """Give a drawing of fixed size a view box, so that browsers scale it to the width of the page.

    lstopo writes the view box with units. Browsers ignore such a view box and crop the drawing.
    """
    box = (root.get("viewBox") or "").replace("px", "")
    if not box and root.get("width") and root.get("height"):
        width, height = (str(root.get(key)).removesuffix("px") for key in ("width", "height"))
        box = f"0 0 {width} {height}"
    if box:
        root.set("viewBox", box)


def svg_width(svg: str) -> float | None:
    """Return the width of an SVG element in its own units; None without a view box."""
    match = _VIEW_BOX.search(svg)
    return float(match.group(1)) if match else None


# Browsers need about a second for 4 MB of drawings before they show a page. The drawings of a page
# that would take longer than two seconds are compressed to about a tenth, and the page's script
# draws them when they come into view. A smaller page needs no script for its drawings, and can be
# printed at once.
_LARGEST_PLAIN_PAGE = 8_000_000
_DRAWING = re.compile(r'<div class="drawing" style="([^"]*)">(<svg .*?</svg>)\s*</div>', re.DOTALL)
# Width and height of a drawing in its own units.
_VIEW_BOX = re.compile(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)[ ,]+([\d.]+)')
_LABEL = re.compile(r'aria-label="[^"]*"')


def pack_drawings(page: str) -> str:
    """Return a page with its drawings compressed, or unchanged if it is not large."""
    return _DRAWING.sub(_packed_drawing, page) if len(page) > _LARGEST_PLAIN_PAGE else page


def _packed_drawing(found: re.Match[str]) -> str:
    """Return a drawing as the attribute that ``figure_hover_texts.js`` unpacks."""
    style, svg = found.groups()
    label, box = _LABEL.search(svg), _VIEW_BOX.search(svg)
    ratio = " / ".join(box.groups()) if box else "2"
    packed = b64encode(gzip.compress(svg.encode(), mtime=0)).decode()
    return (
        f'<div class="drawing" style="{style}; --ratio: {ratio}"'
        f' role="img" {label.group() if label else ""}'
        f' data-packed="{packed}"><noscript>This page needs JavaScript to show a drawing; its SVG'
        " file needs none.</noscript></div>"
    )


_CODE = re.compile(r"`([^`]+)`")


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
