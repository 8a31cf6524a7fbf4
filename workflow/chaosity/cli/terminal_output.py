"""JSON, templates of output, tables, headings and short names that several commands print."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest

import click
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from chaosity.errors import printable_text

# Wide enough for every table.
_NO_LIMIT = 100_000


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


def line_width() -> int:
    """Return the number of characters in a line of the terminal, or what COLUMNS says.

    Files, pipes and the journal have no limit: a name that is broken there is not found any more.
    """
    return shutil.get_terminal_size((_NO_LIMIT, 0)).columns


def print_rich(parts: Iterable[RenderableType], *, wrap: bool = False) -> None:
    """Print texts and tables to the terminal, without highlighted numbers.

    Colours are used only in a terminal, and only without the environment variable NO_COLOR.

    Args:
        parts: objects that rich can print; a plain `str` can have rich's markup.
        wrap: break lines at the width of the terminal, as tables do; see `line_width`.
    """
    console = _PrintableConsole(
        highlight=False, emoji=False, soft_wrap=not wrap, width=line_width()
    )
    for part in parts:
        console.print(part)


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


class _Place(str):
    """The place of a table among the lines of a template."""

    mark = "\0"  # no value has it: `_finalize` shows it by its number


def _finalize(value: object) -> object:
    """Return a value of a template without control characters and markup of others."""
    return (
        value if value is None or isinstance(value, _Place) else escape(printable_text(str(value)))
    )


class _TablesOfTemplate:
    """Tables of a template: its function `columns` begins a table, and `row` adds to the last one.

    A table is drawn at the place of `columns`, which returns a mark with the table's number.
    """

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.missing = ""

    def columns(
        self,
        left: Sequence[str],
        right: Sequence[str] = (),
        last: Sequence[str] = (),
        *,
        on_right: Collection[str] = (),
        whole: Collection[str] = (),
        missing: str = "",
        style: str = "plain",
        title: str | None = None,
        caption: str | None = None,
    ) -> _Place:
        """Begin a table; `last` are further columns on the left side of their cells.

        Columns of `left` that are in `on_right` too are aligned on the right, but wrapped. Those in
        `whole` are not wrapped. A cell without a value shows `missing`.
        Styles are plain (without lines), headless (without heads too), ruled (with all lines) and
        headed (with a line below the heads).
        """
        table = borderless_table([*map(escape, left)], [*map(escape, right)])
        if style in ("ruled", "headed"):
            heads = [Column(head) for head in left] + [Column(h, justify="right") for h in right]
            table = Table(*heads, box=box.SIMPLE_HEAD if style == "headed" else box.HEAVY_HEAD)
            table.show_edge = style == "ruled"
        for head in last:
            table.add_column(head, overflow="fold")
        for column in table.columns:
            column.justify = "right" if column.header in on_right else column.justify
            column.no_wrap |= column.header in whole
        self.missing = missing
        table.show_header = style != "headless"
        table.title, table.title_justify = title, "left"
        table.caption, table.caption_justify = caption, "left"
        self.tables.append(table)
        return _Place(f"{_Place.mark}{len(self.tables) - 1}")

    def add_row(
        self,
        *cells: object,
        style: str | None = None,
        cell_styles: Sequence[str] = (),
        ends_section: bool = False,
    ) -> None:
        """Add a row to the last table; cells are texts or numbers, each with a style if given."""
        styled = zip_longest(cells, cell_styles, fillvalue="")
        texts = (
            Text(printable_text(str(self.missing if cell is None else cell)), style=style_of_cell)
            for cell, style_of_cell in styled
        )
        self.tables[-1].add_row(*texts, style=style or None, end_section=ends_section)


def print_template(name: str, *, wrap: bool = False, **values: object) -> None:
    """Print the lines and tables of ``templates/terminal/NAME.j2``.

    The lines of the template can have rich's markup; `values` are printed as they are.

    Args:
        name: of the template.
        wrap: break lines at the width of the terminal.
        values: values that the template uses.
    """
    from chaosity.text_templates import TEMPLATES, make_environment

    tables = _TablesOfTemplate()
    environment = make_environment(TEMPLATES / "terminal", ("jinja2.ext.do",), _finalize)
    template = environment.get_template(f"{name}.j2")
    text = template.render(columns=tables.columns, row=tables.add_row, **values)
    lines = text.removesuffix("\n").split("\n")
    print_rich(
        (tables.tables[int(line[1:])] if line.startswith(_Place.mark) else line for line in lines),
        wrap=wrap,
    )


def short_processor_name(name: str | None) -> str:
    """Return a processor's name without trademark signs, number of cores and clock."""
    noise = r"\((R|TM)\)| @ .*|( \d+-Core)? Processor$| CPU\b"
    return re.sub(noise, "", name or "unknown processor")
