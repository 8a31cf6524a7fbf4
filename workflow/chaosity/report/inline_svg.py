"""Puts SVG files into the page so that they need nothing from outside and do no harm."""

from __future__ import annotations

import re

from lxml import etree

from chaosity.errors import UserError

SVG = "http://www.w3.org/2000/svg"
_HREFS = ("href", "{http://www.w3.org/1999/xlink}href")
# What could run, load or restyle the rest of the page.
_UNWANTED = {"script", "foreignObject", "style", "metadata", "image", "iframe", "animate", "set"}


def inline_svg(text: str | bytes, scope: str, where: str = "drawing") -> str:
    """An SVG document as an element for an HTML page.

    Args:
        text: the whole document.
        scope: goes before every id, so that drawings do not use one another's parts.
        where: how an error names the document.

    Raises:
        UserError: it is no SVG.
    """
    data = text.encode() if isinstance(text, str) else text
    parser = etree.XMLParser(
        remove_comments=True, remove_pis=True, resolve_entities=False, no_network=True,
        huge_tree=True,
    )  # fmt: skip
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"is no SVG: {error.msg}", where) from error
    if etree.QName(root).localname != "svg":
        raise UserError("is no SVG", where)
    for element in list(root.iter(etree.Element)):
        if etree.QName(element).localname in _UNWANTED and element.getparent() is not None:
            element.getparent().remove(element)
            continue
        _scope(element, scope)
    _give_view_box(root)
    return etree.tostring(root, encoding="unicode")


def _scope(element: etree._Element, scope: str) -> None:
    """Prefix ids and references to them; drop handlers and references to anything else."""
    for key, value in list(element.attrib.items()):
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


def _give_view_box(root: etree._Element) -> None:
    """Make a drawing of fixed size able to shrink to the page.

    lstopo writes a view box with units, which is no view box, so browsers crop instead of shrink.
    """
    box = (root.get("viewBox") or "").replace("px", "")
    if not box and root.get("width") and root.get("height"):
        width, height = (str(root.get(key)).removesuffix("px") for key in ("width", "height"))
        box = f"0 0 {width} {height}"
    if box:
        root.set("viewBox", box)


def width_of(svg: str) -> float | None:
    """Width of an SVG element in its own units, as its view box says."""
    match = re.search(r'viewBox="[\d.-]+[ ,]+[\d.-]+[ ,]+([\d.]+)', svg)
    return float(match.group(1)) if match else None
