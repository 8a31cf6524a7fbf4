"""SVG files that say what each mark is, and that can stand beside others in one page."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lxml import etree

SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_CELL = re.compile(r"cell-(\d+)-(\d+)")
# Text drawn over a mark carries this id, so that the mark beneath it receives the pointer.
IGNORE = "ignore"
# A point beside the decimal is 1/720 inch; matplotlib writes six decimals, which only weigh.
_LONG_NUMBER = re.compile(r"(\d+\.\d{2})\d+")


def annotate(svg: bytes, name: str, title: str, description: str, texts: Mapping[str, str]) -> str:
    """Finish a figure that matplotlib wrote.

    Every mark gets a `<title>`, which browsers show on hover, and the class `mark`; every id gets
    the figure's name in front, so that several figures in one page do not use one another's parts.

    Args:
        svg: as matplotlib wrote it.
        name: of the figure.
        title: what the figure shows, for those who cannot see it.
        description: the sentence that says what to see in it.
        texts: text of each mark by its id.

    Raises:
        ValueError: a mark is not in the file.
    """
    root = etree.fromstring(svg, etree.XMLParser(remove_comments=True))
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    unseen = dict(texts)
    for element in root.iter(f"{{{SVG}}}g"):
        identity = element.get("id", "")
        if identity == IGNORE:
            element.set("style", "pointer-events: none")
            del element.attrib["id"]
        elif identity in unseen:
            _mark(element, unseen.pop(identity))
    if unseen:
        raise ValueError(f"figure {name} has no mark {next(iter(unseen))}")
    _prefix_ids(root, name)
    _shorten(root)
    for tag, text in (("desc", description), ("title", title)):
        root.insert(0, _text_element(tag, text))
    root.set("role", "group")
    root.set("aria-label", title)
    etree.cleanup_namespaces(root)
    return etree.tostring(root, encoding="unicode") + "\n"


def _text_element(tag: str, text: str) -> etree._Element:
    element = etree.Element(f"{{{SVG}}}{tag}")
    element.text = text
    return element


def _mark(element: etree._Element, text: str) -> None:
    """Make an element say what it is."""
    element.insert(0, _text_element("title", text))
    element.set("class", "mark")
    if match := _CELL.fullmatch(element.get("id", "")):
        element.set("data-row", match.group(1))
        element.set("data-column", match.group(2))


def _prefix_ids(root: etree._Element, name: str) -> None:
    """Put the figure's name before every id and every reference to one."""
    for element in root.iter(etree.Element):
        if identity := element.get("id"):
            element.set("id", f"{name}-{identity}")
        for key, value in element.attrib.items():
            if key in (_XLINK, "href") and value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))


def _shorten(root: etree._Element) -> None:
    """Cut coordinates to hundredths of a point outside glyphs, which are drawn at any size."""
    for element in root.iter(f"{{{SVG}}}path", f"{{{SVG}}}use"):
        parent = element.getparent()
        if parent is not None and parent.tag == f"{{{SVG}}}defs":
            continue
        for key in ("d", "x", "y"):
            if value := element.get(key):
                element.set(key, _LONG_NUMBER.sub(r"\1", value))
