"""Add a hover text for each mark to SVG files, so that one page can hold several of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lxml import etree

from chaosity.errors import printable_text

SVG = "http://www.w3.org/2000/svg"
# Attributes that refer to another element or file.
REFERENCES = ("href", "{http://www.w3.org/1999/xlink}href")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CELL = re.compile(r"cell-(\d+)-(\d+)")
# Text drawn over a mark has this id, so that the mark beneath it receives the pointer.
IGNORE = "ignore"
# A tenth of a point is 1/720 inch; matplotlib writes six decimals, which only make files larger.
_LONG_NUMBER = re.compile(r"(\d+\.\d{2})\d+")


def add_hover_texts(
    svg: bytes, name: str, title: str, description: str, texts: Mapping[str, str]
) -> str:
    """Return an SVG with a title, a description and a hover text for each mark.

    Every mark gets a `<title>`, which browsers show on hover, and the class `mark`. Every id gets
    the figure's name as prefix, so that ids of several figures in one page are unique.

    Args:
        svg: content of the file that matplotlib wrote.
        name: name of the figure.
        title: title of the figure, for screen readers.
        description: caption of the figure.
        texts: id of each mark -> its hover text.

    Raises:
        ValueError: a mark is not in the file.
    """
    # Matplotlib writes each text into a comment, also characters that XML cannot hold.
    valid = _NOT_IN_XML.sub("", svg.decode(errors="replace")).encode()
    root = etree.fromstring(valid, etree.XMLParser(remove_comments=True))
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    missing = dict(texts)
    for element in root.iter(f"{{{SVG}}}g"):
        identity = element.get("id", "")
        if identity == IGNORE:
            element.set("style", "pointer-events: none")
            del element.attrib["id"]
        elif identity in missing:
            _mark(element, missing.pop(identity))
    if missing:
        raise ValueError(f"figure {name}: the SVG has no mark {next(iter(missing))}")
    prefix_svg_ids(root, name)
    _shorten_numbers(root)
    for tag, text in (("desc", description), ("title", title)):
        root.insert(0, _text_element(tag, text))
    root.set("role", "group")
    root.set("aria-label", printable_text(title))
    etree.cleanup_namespaces(root)
    return etree.tostring(root, encoding="unicode") + "\n"


def _text_element(tag: str, text: str) -> etree._Element:
    """Return an SVG element that holds a text."""
    element = etree.Element(f"{{{SVG}}}{tag}")
    element.text = printable_text(text)  # XML cannot hold control characters
    return element


def _mark(element: etree._Element, text: str) -> None:
    """Give an element its hover text and the class `mark`."""
    element.insert(0, _text_element("title", text))
    element.set("class", "mark")
    if match := _CELL.fullmatch(element.get("id", "")):
        element.set("data-row", match.group(1))
        element.set("data-column", match.group(2))


def prefix_svg_ids(root: etree._Element, name: str) -> None:
    """Put a name before every id in an SVG and before every reference to an id."""
    for element in root.iter(etree.Element):
        for key in map(str, element.attrib):
            value = element.get(key, "")
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key in REFERENCES and value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))


def _shorten_numbers(root: etree._Element) -> None:
    """Round coordinates to hundredths of a point; glyphs are left exact since they are scaled."""
    for element in root.iter(f"{{{SVG}}}path", f"{{{SVG}}}use"):
        parent = element.getparent()
        if parent is not None and parent.tag == f"{{{SVG}}}defs":
            continue
        for key in ("d", "x", "y"):
            if value := element.get(key):
                element.set(key, _LONG_NUMBER.sub(r"\1", value))
