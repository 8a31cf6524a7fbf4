"""``chaosity anova``: which factors explain the differences in a CSV file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table

from chaosity.cli.options_and_output import EXISTING_FILE, FOLDER
from chaosity.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from chaosity.statistics.anova import Analysis
    from chaosity.statistics.effects_and_contrasts import Interval

# Lines of a table that the terminal shows; all are in the JSON.
_MOST_LINES = 40


@click.command("anova")
@click.argument("file", type=EXISTING_FILE)
@click.option("--response", required=True, metavar="COLUMN", help="Column of the values.")
@click.option(
    "--factors",
    required=True,
    metavar="COLUMN,...",
    help="Columns that were varied; their values are categories.",
)
@click.option(
    "--block",
    metavar="COLUMN",
    help="Blocking column (for example replicate), removed from the error. Default: none.",
)
@click.option(
    "--transform",
    type=click.Choice(["auto", "better", "none", "log"]),
    default="auto",
    show_default=True,
    help="log: analyse logarithms. better: the transform with the larger likelihood. "
    "auto: log only if it is clearly better.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all numbers.")
@click.option("--figures", type=FOLDER, metavar="FOLDER", help="Draw the residuals in FOLDER.")
def anova_command(
    file: Path,
    response: str,
    factors: str,
    block: str | None,
    transform: str,
    as_json: bool,
    figures: Path | None,
) -> None:
    """Show which factors explain the differences in FILE, a CSV file with a row for each value.

    Prints the allocation of variation, F tests, effects, and differences between levels with 95 %
    intervals, and a conclusion for each factor.

    \b
    chaosity anova stream.csv --response MBps --factors node,kernel --block run
    """  # noqa: D301 (click's mark for lines that are not to be filled)
    # Heavy libraries are imported inside functions, so that --help does not wait for them.
    from chaosity.figures.residual_plots import write_residuals
    from chaosity.statistics.anova import analyse

    table = _read_csv_texts(file)
    names = [name.strip() for name in factors.split(",") if name.strip()]
    try:
        analysis = analyse(table, response, names, block, transform)
    except UserError as error:
        where = f"{file}, {error.where}" if error.where else str(file)
        raise UserError(error.what, where, error.remedy) from None
    drawn = write_residuals(analysis, figures, f"{file.stem}_residuals") if figures else []
    if as_json:
        click.echo(json.dumps(analysis.to_json(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    _print_analysis(analysis, Console(highlight=False, soft_wrap=True))
    for path in drawn:
        click.echo(path)


def _read_csv_texts(path: Path) -> pd.DataFrame:
    """The cells of a CSV file as texts; the index holds row numbers as an editor counts them.

    Raises:
        UserError: the file is empty or is not text, a column name is missing or not unique, or a
            row has more or fewer cells than there are columns.
    """
    import pandas as pd

    rows, numbers = [], []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append([cell.strip() for cell in row])
                    numbers.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"is not a CSV file: {error}", str(path)) from error
    if not rows:
        raise UserError("is empty", str(path), "write a row of column names, then rows of values")
    names, values = rows[0], rows[1:]
    for column, name in enumerate(names, start=1):
        if not name:
            raise UserError(f"column {column} has no name", f"{path}, row {numbers[0]}")
        if names.count(name) > 1:
            raise UserError(
                f"two columns are called {name!r}", f"{path}, row {numbers[0]}", "rename one"
            )
    for number, row in zip(numbers[1:], values, strict=True):
        if len(row) != len(names):
            raise UserError(
                f"has {len(row)} cells", f"{path}, row {number}", f"there are {len(names)} columns"
            )
    return pd.DataFrame(values, columns=names, index=numbers[1:], dtype=object)


def _print_analysis(analysis: Analysis, console: Console) -> None:
    """Print the tables and sentences of an analysis of variance."""
    in_logarithms = analysis.transform == "log"
    console.print(_variation_table(analysis), "")
    effects = _table("Levels", ("factor", "level"))
    for head in ("n", "mean", "ratio to the mean" if in_logarithms else "effect", "95 % interval"):
        effects.add_column(head, justify="right")
    for effect in analysis.effects[:_MOST_LINES]:
        value, interval = _interval_text(effect.effect)
        mean = f"{effect.mean:.4g}"
        effects.add_row(effect.factor, effect.level, str(effect.n), mean, value, interval)
    console.print(effects, "")
    pairs = _table("Differences between levels", ("factor", "level", "against"))
    for head in ("ratio" if in_logarithms else "difference", "95 % interval"):
        pairs.add_column(head, justify="right")
    pairs.add_column("interval by")
    for pair in analysis.contrasts[:_MOST_LINES]:
        method = f"{pair.adjusted}, all pairs" if pair.adjusted else "Student"
        value, interval = _interval_text(pair.difference)
        pairs.add_row(pair.factor, pair.level, pair.against, value, interval, method)
    console.print(pairs, "")
    omitted = sum(
        max(0, len(rows) - _MOST_LINES) for rows in (analysis.effects, analysis.contrasts)
    )
    if omitted:
        console.print(f"{omitted} more lines are in the JSON (--json).")
    analysed = f"the logarithm of {analysis.response}" if in_logarithms else analysis.response
    console.print(f"Sums of squares are of {analysed}. {analysis.transform_reason}")
    sentences = (term.sentence for term in analysis.terms if term.sentence)
    for line in (*analysis.notes, *sentences):
        console.print(line)
    console.print(f"[bold]{analysis.conclusion}[/bold]")


def _variation_table(analysis: Analysis) -> Table:
    """The allocation of variation: a row for each term of the model."""
    from chaosity.statistics.anova_table import p_text, percent_text

    table = _table(f"Variation of {analysis.response}, n = {analysis.n}", ())
    table.add_column("source", no_wrap=True)
    for head in ("share", "degrees of freedom", "sum of squares", "mean square", "F", "p"):
        table.add_column(head, justify="right")
    for term in analysis.terms:
        table.add_row(
            term.name,
            percent_text(term.variation_percent),
            str(term.degrees_of_freedom),
            f"{term.sum_of_squares:.6g}",
            "" if term.mean_square is None else f"{term.mean_square:.6g}",
            "" if term.f is None else f"{term.f:.5g}",
            "" if term.p_value is None else p_text(term.p_value).removeprefix("p ").lstrip("= "),
        )
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    return Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)


def _interval_text(interval: Interval) -> tuple[str, str]:
    """A difference or, where there is one, a ratio; and its interval."""
    value, low, high = interval.value, interval.low, interval.high
    if interval.ratio is not None:
        value, low, high = interval.ratio, interval.ratio_low, interval.ratio_high
    return f"{value:.4g}", "none" if low is None else f"{low:.4g} to {high:.4g}"
