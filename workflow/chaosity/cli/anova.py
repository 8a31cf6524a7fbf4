"""``chaosity anova``: which factors explain the differences in anybody's table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import click
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from chaosity.errors import UserError
from chaosity.figures.residual_plots import write_residuals
from chaosity.statistics.anova import TRANSFORMS, Analysis, analyse
from chaosity.statistics.anova_terms import p_text, percent_text
from chaosity.statistics.contrasts import Interval


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--response", required=True, metavar="COLUMN", help="The column of values.")
@click.option("--factors", required=True, metavar="COLUMN,...",
              help="Columns that were varied, taken as categories.")  # fmt: skip
@click.option("--block", metavar="COLUMN",
              help="Column of blocks that hold everything once, such as replicates.")  # fmt: skip
@click.option("--transform", type=click.Choice(TRANSFORMS), default="auto", show_default=True,
              help="Analyse logarithms; auto: if the residuals clearly call for it.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON on standard output.")
@click.option("--figures", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Draw the residuals into this folder.")  # fmt: skip
def anova(
    file: Path,
    response: str,
    factors: str,
    block: str | None,
    transform: str,
    as_json: bool,
    figures: Path | None,
) -> None:
    """Say which factors explain the differences in FILE, a CSV with a row for each value.

    Prints the allocation of variation, F tests, effects and differences of levels with 95 %
    intervals, and what to think of each factor in a sentence. For example:

    \b
    chaosity anova stream.csv --response MBps --factors node,kernel --block run
    """  # noqa: D301 (click's mark for lines that are not to be filled)
    table = read_csv(file)
    names = [name.strip() for name in factors.split(",") if name.strip()]
    try:
        found = analyse(table, response, names, block, transform)
    except UserError as error:
        where = f"{file}, {error.where}" if error.where else str(file)
        raise UserError(error.what, where, error.remedy) from None
    drawn = write_residuals(found, figures, f"{file.stem}_residuals") if figures else []
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    show(found)
    for path in drawn:
        click.echo(path)


def read_csv(path: Path) -> pd.DataFrame:
    """A CSV file as texts; the index counts rows as an editor does, names in row 1.

    Raises:
        UserError: the file is empty or no text, a name is missing or there twice, or a row has
            more or fewer cells than there are names.
    """
    rows, places = [], []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append([cell.strip() for cell in row])
                    places.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"is no CSV file: {error}", str(path)) from error
    if not rows:
        raise UserError("is empty", str(path), "a row of names and rows of values belong there")
    names, values = rows[0], rows[1:]
    for number, name in enumerate(names, start=1):
        if not name:
            raise UserError(f"column {number} has no name", f"{path}, row {places[0]}")
        if names.count(name) > 1:
            raise UserError(
                f"two columns are called {name!r}", f"{path}, row {places[0]}", "rename one of them"
            )
    for place, row in zip(places[1:], values, strict=True):
        if len(row) != len(names):
            raise UserError(
                f"has {len(row)} cells", f"{path}, row {place}",
                f"there are {len(names)} columns",
            )  # fmt: skip
    return pd.DataFrame(values, columns=names, index=places[1:], dtype=object)


# Of very many pairs and levels the terminal shows the first; all are in the JSON.
_MOST_LINES = 40


def show(found: Analysis, console: Console | None = None) -> None:
    """Print an analysis for people."""
    console = console or Console(highlight=False, soft_wrap=True)
    unit = f"the logarithm of {found.response}" if found.transform == "log" else found.response
    variation = _table(f"Variation of {found.response}, n = {found.n}")
    variation.add_column("source", no_wrap=True)
    for head in ("share", "degrees of freedom", "sum of squares", "mean square", "F", "p"):
        variation.add_column(head, justify="right")
    for term in found.terms:
        variation.add_row(
            term.name,
            percent_text(term.variation_percent),
            str(term.degrees_of_freedom),
            f"{term.sum_of_squares:.6g}",
            "" if term.mean_square is None else f"{term.mean_square:.6g}",
            "" if term.f is None else f"{term.f:.5g}",
            "" if term.p_value is None else p_text(term.p_value).removeprefix("p ").lstrip("= "),
        )
    console.print(variation, "")
    departure = "ratio to the middle" if found.transform == "log" else "effect"
    effects = _table("Levels")
    for head in ("factor", "level"):
        effects.add_column(head)
    for head in ("n", "mean", departure, "95 % interval"):
        effects.add_column(head, justify="right")
    for effect in found.effects[:_MOST_LINES]:
        effects.add_row(
            effect.factor, effect.level, str(effect.n), f"{effect.mean:.4g}",
            *_shown(effect.effect),
        )  # fmt: skip
    console.print(effects, "")
    pairs = _table("Differences between levels")
    for head in ("factor", "level", "against"):
        pairs.add_column(head)
    for head in ("ratio" if found.transform == "log" else "difference", "95 % interval"):
        pairs.add_column(head, justify="right")
    pairs.add_column("interval by")
    for pair in found.contrasts[:_MOST_LINES]:
        pairs.add_row(pair.factor, pair.level, pair.against, *_shown(pair.difference),
                      f"{pair.adjusted}, all pairs" if pair.adjusted else "Student")  # fmt: skip
    console.print(pairs, "")
    omitted = max(0, len(found.effects) - _MOST_LINES) + max(0, len(found.contrasts) - _MOST_LINES)
    if omitted:
        console.print(f"{omitted} more lines are in the JSON (--json).")
    console.print(f"Sums of squares are of {unit}. {found.transform_reason}")
    for line in (*found.notes, *(term.sentence for term in found.terms if term.sentence)):
        console.print(line)
    console.print(f"[bold]{found.conclusion}[/bold]")


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)


def _shown(interval: Interval) -> tuple[str, str]:
    """A difference or ratio, and its interval."""
    parts = (interval.value, interval.low, interval.high)
    if interval.ratio is not None:
        parts = (interval.ratio, interval.ratio_low, interval.ratio_high)
    value, low, high = parts
    return f"{value:.4g}", "none" if low is None else f"{low:.4g} to {high:.4g}"
