"""Options, types of options, and functions to print lines and tables, for several commands.

This module repeats the paths of the config and of the published forms from `chaosity.documents`,
since an import of that package (with pydantic and yaml) would double the time of ``--help``.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError, printable_text
from chaosity.records.record_format import NOTHING_MEASURED

# Width of tables in a file or a pipe, in characters: more than any table needs.
_LINE_CHARACTERS_WITHOUT_TERMINAL = 100_000


def json_text(document: object) -> str:
    """Return a document as JSON with a line break at its end.

    Raises:
        ValueError: the document has NaN or infinity, which JSON does not allow.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return "".join(c if printable_text(c) == c else json.dumps(c)[1:-1] for c in text)


def print_json(document: object) -> None:
    """Print a document as JSON, see `json_text`."""
    echo(json_text(document), nl=False)


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text; control characters, which names of others can contain, are made visible."""
    click.echo(printable_text(str(text)), nl=nl, err=err)


class _PrintableConsole(Console):
    """A console of rich that prints control characters in texts as visible signs."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the segments of an object, without control characters in their texts."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_text(segment.text), segment.style)


def line_width() -> int:
    """Return the number of characters in a line of the terminal, or the value of COLUMNS.

    Lines in files, pipes and the journal have no limit, since a search would not find a name that
    continues on the next line.
    """
    return shutil.get_terminal_size((_LINE_CHARACTERS_WITHOUT_TERMINAL, 0)).columns


def styled_text(text: object, style: str = "") -> Text:
    """Return a printable text with a style of rich, such as "bold red"; see `printable_text`."""
    return Text(printable_text(str(text)), style)


def _print(part: RenderableType, *, wrap: bool) -> None:
    """Print to standard output, in colour only on a terminal and without the variable NO_COLOR."""
    console = _PrintableConsole(
        highlight=False, emoji=False, soft_wrap=not wrap, width=line_width()
    )
    console.print(part)


def print_line(*parts: object, style: str = "", wrap: bool = False) -> None:
    """Print a line.

    Args:
        parts: the parts of the line, each a text or a result of `styled_text`.
        style: the style of the whole line for rich, such as "bold red".
        wrap: whether to break the line between words at the width of the terminal.
    """
    texts = (part if isinstance(part, Text) else styled_text(part) for part in parts)
    _print(Text.assemble(*texts, style=style), wrap=wrap)


def print_that_nothing_was_measured(style: str = "") -> None:
    """Print that all values are simulated and not measured, see `NOTHING_MEASURED`."""
    print_line(f"{NOTHING_MEASURED}.", style=style)


def print_that_results_are_unusable(reason: str) -> None:
    """Print why a host's results are unusable and what to do; print nothing for an empty reason."""
    if reason:
        print_line(reason, style="red")


def print_what_is_not_determined(name: str, measured_by: str, or_else: str) -> None:
    """Print which number of the machine no measurement determines, and what to measure.

    Args:
        name: the number of the machine that no measurement determines.
        measured_by: the experiments that determine this number on most machines.
        or_else: what to measure on machines for which these experiments do not suffice.
    """
    print_line(
        f"No measurement determines {name}, so the intervals are wide. To determine it, measure "
        f"the {measured_by}; where that does not suffice, measure {or_else}."
    )


def print_table(
    rows: Iterable[Sequence[object]],
    left: Sequence[str] = (),
    right: Sequence[str] = (),
    last: Sequence[str] = (),
    *,
    on_right: Collection[str] = (),
    whole: Collection[str] = (),
    missing: str = "",
    style: Literal["plain", "headless", "ruled", "headed"] = "plain",
    title: str | None = None,
) -> None:
    """Print a table that fits into `line_width`.

    Args:
        rows: cells of each row: texts or results of `styled_text`; an empty row separates sections.
        left: heads of the first columns, which are aligned on the left; long texts are wrapped.
        right: heads of further columns, which are aligned on the right; texts are not wrapped.
        last: heads of the last columns, which are aligned and wrapped like the columns of `left`.
        on_right: heads of columns of `left` that are aligned on the right, but still wrapped.
        whole: heads of columns of `left` that are not wrapped.
        missing: text of a cell that is None.
        style: plain (without lines), headless (without lines and heads), ruled (with all lines) or
            headed (with a line below the heads).
        title: line above the table.
    """
    if title:
        print_line(title, style="italic")
    table = Table(box=None, pad_edge=False, header_style="dim")
    if style in ("ruled", "headed"):
        table = Table(box=box.SIMPLE_HEAD if style == "headed" else box.HEAVY_HEAD)
        table.show_edge = style == "ruled"
    for head in (*left, *right, *last):
        of_numbers = head in right or head in on_right
        table.add_column(
            styled_text(head),
            justify="right" if of_numbers else "left",
            overflow="ellipsis" if head in right else "fold",
            no_wrap=head in right or head in whole,
        )
    table.show_header = style != "headless"
    for cells in rows:
        if cells:
            shown = (missing if cell is None else cell for cell in cells)
            table.add_row(
                *(cell if isinstance(cell, Text) else styled_text(cell) for cell in shown)
            )
        else:
            table.add_section()
    _print(table, wrap=True)


def short_processor_name(name: str | None) -> str:
    """Return a processor's name without trademark signs, number of cores and clock."""
    noise = r"\((R|TM)\)| @ .*|( \d+-Core)? Processor$| CPU\b"
    return re.sub(noise, "", name or "unknown processor")


_REPOSITORY = Path(__file__).resolve().parents[3]
NAMES_OF_PUBLISHED_FORMS = sorted(
    path.stem for path in (_REPOSITORY / "templates" / "published").glob("*.yaml")
)

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class _ResultsPath(click.Path):
    """The type of an option: a file, or the only folder of results at or below the given folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path of the file or of the folder of results.

        Raises:
            UserError: the folder has no results, or results of several configurations.
        """
        from chaosity.result_folders import find_results_folder

        path = Path(str(super().convert(value, param, ctx)))
        return find_results_folder(path) if path.is_dir() else path


RESULTS_FOLDER = _ResultsPath(exists=True, file_okay=False, path_type=Path)
FILE_OR_RESULTS = _ResultsPath(exists=True, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
UNIT_OPTION = click.option(
    "--unit",
    help="Unit of the values, such as MB/s or ns. Default: the unit in the name of "
    "the file, or else the unit that fits the size of the values.",
)
DWP_OPTION = click.option(
    "--dwp",
    type=float,
    default=0.0,
    show_default=True,
    help="Data-to-worker proximity: 0 keeps the canonical weights, 1 puts all pages on the "
    "workers' nodes.",
)
TOPOLOGY_OF_MACHINE_OPTION = click.option(
    "--topology",
    type=EXISTING_FILE,
    help="With --machine: the machine's topology, an hwloc XML file.",
)
CONFIG_OPTION = click.option(
    "--config",
    "config_file",
    type=EXISTING_FILE,
    default=_REPOSITORY / "config" / "config.yaml",
    show_default="config/config.yaml of the project",
    help="Config of the workflow.",
)


def is_option_typed(parameter: str) -> bool:
    """Return whether the user typed the option that sets this parameter of the running command."""
    return click.get_current_context().get_parameter_source(parameter) is (
        ParameterSource.COMMANDLINE
    )


def refuse_options_without_effect(because: str, *parameters: str) -> None:
    """Raise an error if the user typed an option of the running command that has no effect.

    `because` is the reason, such as "with --json"; `parameters` has the parameters of the options.

    Raises:
        UserError: the user typed one of these options.
    """
    for option in click.get_current_context().command.params:
        if option.name in parameters and is_option_typed(option.name):
            what = f"the option has no effect {because}"
            raise UserError(what, option.opts[0], "leave it out")


def parse_worker_nodes(text: str) -> list[int]:
    """Return the nodes in a list such as 0,2-3, in the order of the list; a node can occur twice.

    Raises:
        UserError: the text is not a list of nodes.
    """
    try:
        return [node for part in text.split(",") for node in parse_cpu_list(part)]
    except ValueError as error:
        raise UserError(str(error), "--workers", "write a list such as 0,1 or 0-3") from None
