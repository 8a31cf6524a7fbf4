"""Draw rows with the templates in ``templates/figures``, as Vega-Lite, SVG and PNG.

A template is a Vega-Lite specification; each of its layers shows the rows with one role. To draw
marks in a new way, add a layer. To add a kind of figure, add a template NAME.yaml, which figures
select by `template: NAME`. Neither addition needs Python code. No step of the drawing uses the
network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import vl_convert
from lxml import etree

from chaosity.documents.checked_yaml import read_yaml
from chaosity.errors import UserError, printable_text
from chaosity.records.record_files import write_atomically
from chaosity.text_templates import TEMPLATES

FIGURE_TEMPLATES_FOLDER = TEMPLATES / "figures"
# Width of a figure in typographic points; the text on an A4 page has the same width.
FIGURE_WIDTH_POINTS = 540.0
PNG_SCALE = 2.0  # pixels per point
_VEGA_LITE_SCHEMA_URL = "https://vega.github.io/schema/vega-lite/v5.json"
_VEGA_LITE_VERSION = "5.20"
# Largest number of letters in a line of the title, and in a line of the subtitle.
_TITLE_LETTERS, _SUBTITLE_LETTERS = 88, 140
_SVG_NAMESPACE = "http://www.w3.org/2000/svg"
_NAME, _WHOLE_NAME = re.compile(r"\$([a-z_0-9]+)"), re.compile(r"\$([a-z_0-9]+)$")
# A row is drawn only if it has a value for each of these Vega-Lite channels that its layer uses.
_CHANNELS_THAT_NEED_VALUES = ("x", "x2", "y", "y2", "text")
_ID_IN_URL_PATTERN = re.compile(r"(?<=url\(#)[^)]+")
_LONG_NUMBER_PATTERN = re.compile(r"(\d\.\d{2})\d+")
# Attributes that are removed from the SVG. Vega writes these attributes for its scripts and for
# screen readers. A screen reader would read every line of a grid.
_REMOVED_SVG_ATTRIBUTES = (
    "class",
    "role",
    "aria-roledescription",
    "aria-hidden",
    "aria-label",
    "font-family",
)
# Width of wide letters and of narrow letters, as a share of the font size.
_WIDE, _NARROW = 0.56, 0.28
_FONT_FAMILY = "Liberation Sans, Arimo, Arial, Helvetica, sans-serif"

# `Row` is a row of a drawing, see `drawing_rows`; `VegaLiteSpec` is a specification of Vega-Lite.
Row = dict[str, Any]
VegaLiteSpec = dict[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn: the name of its template, and what the template needs."""

    template_name: str  # name of a file in templates/figures
    title: str
    subtitle: str  # where the values are from, in smaller letters below the title
    rows: Sequence[Row]
    values: Mapping[str, Any]  # value that replaces $name in the template, by name


@cache
def figure_template(name: str) -> VegaLiteSpec:
    """Return the template of a figure; the template `common` has parts that all templates share.

    Raises:
        UserError: there is no template with this name.
    """
    path = FIGURE_TEMPLATES_FOLDER / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in FIGURE_TEMPLATES_FOLDER.glob("*.yaml")))
        raise UserError(
            f"there is no template {name} of a figure",
            str(FIGURE_TEMPLATES_FOLDER),
            f"templates: {known}",
        )
    read: VegaLiteSpec = read_yaml(path)
    return read


def vega_lite_specification(drawing: Drawing) -> VegaLiteSpec:
    """Return the complete specification of a drawing in Vega-Lite, with its rows as data.

    Raises:
        UserError: the template names a value or a layer that does not exist.
    """
    common, own = figure_template("common"), dict(figure_template(drawing.template_name))
    values = {**drawing.values, "x_title": drawing.values.get("x_title", "")}
    if "panels" in own:
        values["layers"] = _layers_with_rows(own.pop("panels"), drawing, values)
        own |= common["panels"]
    spec = _fill_template(own, drawing, values)
    return {
        "$schema": _VEGA_LITE_SCHEMA_URL,
        "config": common["config"],
        "title": {
            "text": wrap(drawing.title, _TITLE_LETTERS) or [""],
            "subtitle": wrap(drawing.subtitle, _SUBTITLE_LETTERS),
        },
        "data": {"values": list(drawing.rows)},
        **spec,
    }


def _fill_template(node: Any, drawing: Drawing, values: Mapping[str, Any]) -> Any:
    """Return a part of a template after values replaced names such as $title."""
    fill = partial(_fill_template, drawing=drawing, values=values)
    if isinstance(node, str):
        if found := _WHOLE_NAME.match(node):
            return _value_of_name(found[1], values, drawing.template_name)
        return _NAME.sub(
            lambda name: str(_value_of_name(name[1], values, drawing.template_name)), node
        )
    if isinstance(node, list):
        return [fill(each) for each in node]
    if not isinstance(node, dict):
        return node
    filled = {key: fill(each) for key, each in node.items() if key not in ("like", "layer")}
    if "layer" in node:
        filled["layer"] = _layers_with_rows(node["layer"], drawing, values)
    if "like" not in node:
        return filled
    merged = {**fill(node["like"]), **filled}
    return {key: each for key, each in merged.items() if filled.get(key, "") is not None}


def _value_of_name(name: str, values: Mapping[str, Any], kind: str) -> Any:
    if name not in values:
        raise UserError(
            f"${name} has no value in this figure", str(FIGURE_TEMPLATES_FOLDER / f"{kind}.yaml")
        )
    return values[name]


def _layers_with_rows(entries: Any, drawing: Drawing, values: Mapping[str, Any]) -> Any:
    """Return those layers that have rows; an entry is a layer or the name of a shared layer."""
    if isinstance(entries, str):
        return _fill_template(entries, drawing, values)
    shared = figure_template("common")["layers"]
    layers = []
    for entry in entries:
        if isinstance(entry, str) and entry not in shared:
            raise UserError(
                f"there is no layer {entry}",
                str(FIGURE_TEMPLATES_FOLDER / f"{drawing.template_name}.yaml"),
            )
        layer = _fill_template(shared[entry] if isinstance(entry, str) else entry, drawing, values)
        roles = layer.pop("role", None)
        if roles is not None:
            names = [roles] if isinstance(roles, str) else roles
            encoding = layer.get("encoding", {})
            fields = [
                encoding[side].get("field")
                for side in _CHANNELS_THAT_NEED_VALUES
                if side in encoding
            ]
            known = [field for field in fields if field]
            if not any(_row_has_values(row, names, known) for row in drawing.rows):
                continue
            tests = [f"indexof({json.dumps(names)}, datum.role) >= 0"]
            tests += [f"isValid(datum.{field})" for field in known]
            layer["transform"] = [{"filter": " && ".join(tests)}, *layer.get("transform", ())]
        layers.append(layer)
    return layers


def _row_has_values(row: Row, roles: Sequence[str], fields: Sequence[str]) -> bool:
    return row["role"] in roles and all(row.get(field) is not None for field in fields)


def write_drawing(drawing: Drawing, name: str, caption: str, directory: Path) -> None:
    """Write a drawing as NAME.svg, NAME.png and NAME.vl.json; the same rows give the same bytes."""
    spec = with_unprintable_characters_escaped(vega_lite_specification(drawing))
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    write_atomically(directory / f"{name}.vl.json", text + "\n")
    svg = embeddable_svg(
        vl_convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE_VERSION, allowed_base_urls=[]),
        name,
        printable_text(drawing.title),
        printable_text(caption),
    )
    write_atomically(directory / f"{name}.svg", svg)
    picture = vl_convert.svg_to_png(svg, scale=PNG_SCALE)
    write_atomically(directory / f"{name}.png", bytes(picture))


def with_unprintable_characters_escaped(node: Any) -> Any:
    """Return a JSON document in which numbers replace unprintable characters."""
    if isinstance(node, str):
        return printable_text(node)
    if isinstance(node, list):
        return [with_unprintable_characters_escaped(each) for each in node]
    if isinstance(node, dict):
        return {key: with_unprintable_characters_escaped(each) for key, each in node.items()}
    return node


def embeddable_svg(svg: str, name: str, title: str, caption: str) -> str:
    """Return Vega's SVG with hover texts, and so that a page can have several SVGs.

    The description of a mark becomes a `<title>`, which browsers show on hover, and the mark gets
    the class `mark`. Each id begins with the name of the figure. Attributes that nobody needs are
    removed.
    """
    root = etree.fromstring(svg.encode(), etree.XMLParser(huge_tree=True))
    _add_hatches(root)
    for element in list(root.iter(etree.Element)):
        _simplify_svg_element(element)
    ids = dict.fromkeys(each for element in root.iter() if (each := element.get("id")))
    numbers = {each: f"{name}-{number}" for number, each in enumerate(ids)}
    for element in root.iter(etree.Element):
        for key, value in element.items():
            if key == "id":
                element.set(key, numbers[value])
            elif "url(#" in (text := str(value)):
                element.set(
                    key, _ID_IN_URL_PATTERN.sub(lambda found: numbers.get(found[0], found[0]), text)
                )
    for tag, words in (("desc", caption), ("title", title)):
        element = etree.Element(f"{{{_SVG_NAMESPACE}}}{tag}")
        element.text = words
        root.insert(0, element)
    root.set("role", "group")
    root.set("aria-label", title)
    root.set("font-family", _FONT_FAMILY)
    etree.cleanup_namespaces(root)
    return etree.tostring(root, encoding="unicode") + "\n"


def _simplify_svg_element(element: etree._Element) -> None:
    """Turn the description of an element into a hover text; remove attributes that nobody needs."""
    parent = element.getparent()
    tag = etree.QName(element).localname
    is_mark = element.get("role") == "graphics-symbol" and tag in ("path", "text")
    label = element.get("aria-label")
    fixed = tag == "text" and "Mono" in element.get("font-family", "")
    for key in _REMOVED_SVG_ATTRIBUTES:
        if not (fixed and key == "font-family"):
            element.attrib.pop(key, "")
    for key in ("d", "transform", "x2", "y2"):
        if long := element.get(key):
            element.set(key, _LONG_NUMBER_PATTERN.sub(r"\1", long))
    if element.get("opacity") == "1":
        del element.attrib["opacity"]
    if is_mark and label:
        element.set("class", "mark")
        title = etree.SubElement(element, f"{{{_SVG_NAMESPACE}}}title")
        title.text = label
        return
    if tag == "path" and element.get("d") in ("", "M0,0h0v0h0Z") and parent is not None:
        parent.remove(element)
    # A text over a mark ignores the pointer, so that the browser shows the hover text of the mark.
    if tag == "g" and len(element) and all(etree.QName(e).localname == "text" for e in element):
        element.set("pointer-events", "none")


def _add_hatches(root: etree._Element) -> None:
    """Add the hatches that layers use for predicted marks, missing marks, and bars."""
    common = figure_template("common")
    lines = common["hatches"]
    looks = {
        name: (fill["ground"], fill["ink"], fill["opacity"], lines[fill["lines"]])
        for name, fill in common["hatched_fills"].items()
    }
    for number, colour in enumerate(common["series"]["colours"] * len(lines)):
        looks[f"bar{number}"] = (colour, "#fff", 0.7, lines[bar_hatch_number(number)])
    used = {
        each
        for e in root.iter()
        for text in e.values()
        for each in _ID_IN_URL_PATTERN.findall(str(text))
    }
    defs = etree.Element(f"{{{_SVG_NAMESPACE}}}defs")
    for name, (ground, ink, opacity, path) in looks.items():
        if name not in used:
            continue
        tile = {"id": name, "width": "5", "height": "5", "patternUnits": "userSpaceOnUse"}
        pattern = etree.SubElement(defs, f"{{{_SVG_NAMESPACE}}}pattern", tile)
        if ground:
            square = {"width": "5", "height": "5", "fill": ground}
            etree.SubElement(pattern, f"{{{_SVG_NAMESPACE}}}rect", square)
        strokes = {"d": path, "stroke": ink, "stroke-opacity": f"{opacity:g}", "fill": "none"}
        etree.SubElement(
            pattern, f"{{{_SVG_NAMESPACE}}}path", {**strokes, "stroke-linecap": "round"}
        )
    if len(defs):
        root.insert(0, defs)


def bar_hatch_number(number: int) -> int:
    """Return the number of the hatch of series `number`; a reused colour gets another hatch."""
    common = figure_template("common")
    colours, hatches = len(common["series"]["colours"]), len(common["hatches"])
    return (number + number // colours) % hatches


def text_width_points(text: str, font_points: float) -> float:
    """Return the approximate width of a line of text in typographic points."""
    return font_points * sum(_NARROW if letter in " .,:;'|il!ft" else _WIDE for letter in text)
