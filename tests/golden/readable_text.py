"""Files as short text that a person can review: HTML, SVG, JSON, CSV and Parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import yaml

# Begin and end a line. A term and its definition share one.
_BLOCKS = frozenset(
    {"p", "div", "section", "figure", "figcaption", "table", "caption", "tr", "summary"}
    | {"li", "dt", "h1", "h2", "h3", "h4"}
)
_STARTS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "li": "- ", "dd": ": "}
_STARTS |= {"td": " | ", "th": " | ", "br": " ", "span": " "}
_UNSEEN = {"style", "script", "svg", "title", "nav"}
# A longer table shows so many of its first rows.
_ROWS = 9


class _Text(HTMLParser):
    """The text of a page: a line for each block, and the cells of a row beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.unseen = 0
        self.rows = 0

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        """Begin a line or a cell."""
        self.unseen += tag in _UNSEEN
        self.rows = 0 if tag == "table" else self.rows + (tag == "tr")
        if tag in _BLOCKS:
            self.lines.append("")
        self.lines[-1] += _STARTS.get(tag, "")

    def handle_endtag(self, tag: str) -> None:
        """End a line."""
        self.unseen -= tag in _UNSEEN
        if tag == "tr" and self.rows > _ROWS:
            self.lines.pop()
        if tag == "table" and self.rows > _ROWS:
            self.lines.append(f"... {self.rows - _ROWS} more rows")
        if tag in _BLOCKS or tag == "dd":
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        """Add a text that a reader sees."""
        if not self.unseen:
            self.lines[-1] += data


def html_text(text: str, sections: Sequence[str] = ()) -> str:
    """Return what a reader of a page sees, without drawings: all, or some sections."""
    page = _Text()
    page.feed(text)
    lines = [" ".join(line.split()).removeprefix("| ") for line in page.lines]
    shown = []
    wanted = not sections
    for line in filter(None, lines):
        if line.startswith(("## ", "### ")) and sections:
            wanted = line.lstrip("# ") in sections
        shown += [line] if wanted else []
    return "".join(f"{line}\n" for line in shown)


def svg_text(text: str) -> str:
    """Return the texts that a drawing shows, and in brackets those that it shows to the mouse."""
    lines = []
    for each in ElementTree.fromstring(text).iter():
        shown = " ".join("".join(each.itertext()).split())
        kind = each.tag.rpartition("}")[2]
        if shown and kind in ("text", "title"):
            lines.append(f"[{shown}]" if kind == "title" else shown)
    return "".join(f"{line}\n" for line in lines)


def read(arguments: Sequence[str]) -> str:
    """Return a file as text: read FILE [SECTION of a page or COLUMN of a Parquet file]..."""
    path, parts = Path(arguments[0]), list(arguments[1:])
    if path.suffix == ".parquet":
        table = duckdb.read_parquet(str(path)).project(", ".join(parts) or "*").df()
        return str(table.to_csv(index=False, lineterminator="\n"))
    text = path.read_text()
    if path.suffix == ".html":
        return html_text(text, parts)
    if path.suffix == ".svg":
        return svg_text(text)
    if path.suffix == ".json":
        document = json.loads(text)
        chosen = {name: document[name] for name in parts} if parts else document
        return str(yaml.safe_dump(chosen, width=160, allow_unicode=True))
    return text
