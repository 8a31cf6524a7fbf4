"""JSON, tables, headings and short names that several commands print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from chaosity.errors import printable_text
from chaosity.units import format_count


def json_text(document: object) -> str:
    """Return a document as JSON with a line break at its end.

    Raises:
        ValueError: the document holds NaN or infinity, which JSON does not have.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return "".join(c if printable_text(c) == c else json.dumps(c)[1:-1] for c in text)


def print_json(document: object) -> None:
    """Print a document as JSON, see `json_text`."""
    echo(json_text(document), nl=False)


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text, which can have names and messages of others, see `printable_text`."""
    click.echo(printable_text(str(text)), nl=nl, err=err)


class _PrintableConsole(Console):
    """A console whose texts cannot control the terminal; styles come from rich alone."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the segments of an object."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_text(segment.text), segment.style)


def print_rich(parts: Iterable[RenderableType], *, wrap: bool = False) -> None:
    """Print texts and tables to the terminal, without highlighted numbers.

    Args:
        parts: objects that rich can print; a plain `str` can have rich's markup.
        wrap: break lines at the width of the terminal.
    """
    console = _PrintableConsole(highlight=False, soft_wrap=not wrap)
    for part in parts:
        console.print(part)


def bold_heading(title: str) -> Text:
    """Return a bold line, with an empty line above it."""
    return Text(f"\n{title}", style="bold")


def borderless_table(left: Sequence[str], right: Sequence[str] = ()) -> Table:
    """Return a table without lines.

    Args:
        left: heads of the first columns, which are aligned on the left; long texts are wrapped.
        right: heads of further columns, which are aligned on the right; texts are not wrapped.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in left:
        table.add_column(head, overflow="fold")
    for head in right:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def omitted_rows_sentence(number: int, noun: str) -> Iterator[str]:
    """Yield a sentence with the number of rows that were not printed; nothing if it is 0."""
    if number > 0:
        yield f"and {format_count(number, f'more {noun}')}: --all prints them."


def short_processor_name(name: str | None) -> str:
    """Return a processor's name without trademark signs, number of cores and clock."""
    noise = r"\((R|TM)\)| @ .*|( \d+-Core)? Processor$| CPU\b"
    return re.sub(noise, "", name or "unknown processor")
