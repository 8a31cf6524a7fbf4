"""Makes SVG files safe and self-contained, for insertion into an HTML page."""

from __future__ import annotations

import re

from lxml import etree

from chaosity.errors import UserError

_HREFS = ("href", "{http://www.w3.org/1999/xlink}href")
# Elements that can run code, load files, or restyle the rest of the page.
_UNSAFE = {"script", "foreignObject", "style", "metadata", "image", "iframe", "animate", "set"}


def inline_svg(text: str | bytes, scope: str, where: str = "drawing") -> str:
    """An SVG document as an element for an HTML page.

    Args:
        text: the whole document.
        scope: prefix of all ids, so that drawings do not share ids.
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
        raise UserError(f"is not an SVG file: {error.msg}", where) from error
    if etree.QName(root).localname != "svg":
        raise UserError("is not an SVG file", where)
    for element in list(root.iter(etree.Element)):
        parent = element.getparent()
        if etree.QName(element).localname in _UNSAFE and parent is not None:
            parent.remove(element)
            continue
        _prefix_ids(element, scope)
    _set_view_box(root)
    return str(etree.tostring(root, encoding="unicode"))


def _prefix_ids(element: etree._Element, scope: str) -> None:
    """Prefix ids and references to ids; remove event handlers and all other references."""
    for key, value in [(str(key), str(value)) for key, value in element.attrib.items()]:
        if key == "id":
            element.set(key, f"{scope}-{value}")
        elif key in _HREFS:
            if value.startswith("#"):
                element.set(key, f"#{scope}-{value[1:]}")
            else:
                del element.attrib[key]
        elif etree.QName(key).localname.lower().startswith("on"):
            del element.attrib[key]
        elif "url(" in value:
            element.set(key, value.replace("url(#", f"url(#{scope}-"))


def _set_view_box(root: etree._Element) -> None:
    """Give a drawing of fixed size a view box, so that it shrinks to the width of the page.

    lstopo writes the view box with units. Browsers ignore such a view box and crop the drawing.
    """
    box = (root.get("viewBox") or "").replace("px", "")
    if not box and root.get("width") and root.get("height"):
        width, height = (str(root.get(key)).removesuffix("px") for key in ("width", "height"))
        box = f"0 0 {width} {height}"
    if box:
        root.set("viewBox", box)


def svg_width(svg: str) -> float | None:
    """Width of an SVG element in its own units, from its view box; None without a view box."""
    match = re.search(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)', svg)
    return float(match.group(1)) if match else None
