"""``chaosity anova``: which factors explain the differences in a CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chaosity.cli.shared_options import EXISTING_FILE, FOLDER
from chaosity.cli.terminal_output import print_json, print_rich
from chaosity.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from chaosity.statistics.anova import AnovaResult
    from chaosity.statistics.effects_and_contrasts import DifferenceWithInterval

# Number of lines of a table that the terminal shows. The JSON has all lines.
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
    help="Column of blocks, such as replicate; variation between blocks is no error. Default: none",
)
@click.option(
    "--transform",
    type=click.Choice(["auto", "better", "none", "log"]),
    default="auto",
    show_default=True,
    help="log: analyse logarithms. better: log or none, depending on which likelihood is larger. "
    "auto: log only if its likelihood is clearly larger.",
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
    from chaosity.figures.residual_plots import write_residual_plots
    from chaosity.statistics.anova import analyse_variance

    table = _read_csv_texts(file)
    names = [name.strip() for name in factors.split(",") if name.strip()]
    try:
        analysis = analyse_variance(table, response, names, block, transform)
    except UserError as error:
        where = f"{file}, {error.where}" if error.where else str(file)
        raise UserError(error.what, where, error.remedy) from None
    drawn = write_residual_plots(analysis, figures, f"{file.stem}_residuals") if figures else []
    if as_json:
        print_json(analysis.to_json())
    else:
        print_rich([*_analysis_text(analysis), *(Text(str(path)) for path in drawn)])


def _read_csv_texts(path: Path) -> pd.DataFrame:
    """Return the cells of a CSV file as texts; the index has the line numbers of the file."""
    import pandas as pd

    from chaosity.store.read_node_matrix_csv import read_csv_rows

    if not (rows := read_csv_rows(path)):
        raise UserError("is empty", str(path), "write a row of column names, then rows of values")
    (first, names), *body = rows
    where = f"{path}, row {first}"
    for column, name in enumerate(names, start=1):
        if not name:
            raise UserError(f"column {column} has no name", where)
        if names.count(name) > 1:
            raise UserError(f"two columns have the name {name!r}", where, "rename a column")
    for number, row in body:
        if len(row) != len(names):
            columns = f"the file has {len(names)} columns"
            raise UserError(f"the row has {len(row)} cells", f"{path}, row {number}", columns)
    return pd.DataFrame.from_dict(dict(body), orient="index", columns=names, dtype=object)


def _analysis_text(analysis: AnovaResult) -> Iterator[RenderableType]:
    """Yield the tables and sentences of an analysis of variance."""
    from chaosity.statistics.anova_table import p_value_text, variation_percent_text

    logs = analysis.transform == "log"
    variation = _table(
        f"Variation of {analysis.response}, n = {analysis.n}",
        ("source",),
        ("share", "degrees of freedom", "sum of squares", "mean square", "F", "p"),
    )
    for term in analysis.terms:
        variation.add_row(
            term.name,
            variation_percent_text(term.variation_percent),
            str(term.degrees_of_freedom),
            f"{term.sum_of_squares:.6g}",
            "" if term.mean_square is None else f"{term.mean_square:.6g}",
            "" if term.f is None else f"{term.f:.5g}",
            ""
            if term.p_value is None
            else p_value_text(term.p_value).removeprefix("p ").lstrip("= "),
        )
    effect_heads = ("n", "mean", "ratio to the mean" if logs else "effect", "95 % interval")
    effects = _table("Levels", ("factor", "level"), effect_heads)
    for effect in analysis.effects[:_MOST_LINES]:
        texts = (str(effect.n), f"{effect.mean:.4g}", *_interval_texts(effect.effect))
        effects.add_row(effect.factor, effect.level, *texts)
    pairs = _table(
        "Differences between levels",
        ("factor", "level", "against"),
        ("ratio" if logs else "difference", "95 % interval"),
    )
    pairs.add_column("interval by")
    for pair in analysis.contrasts[:_MOST_LINES]:
        method = f"{pair.adjusted}, all pairs" if pair.adjusted else "Student"
        difference = _interval_texts(pair.difference)
        pairs.add_row(pair.factor, pair.level, pair.against, *difference, method)
    for table in (variation, effects, pairs):
        yield table
        yield ""
    listed = (analysis.effects, analysis.contrasts)
    if omitted := sum(max(0, len(rows) - _MOST_LINES) for rows in listed):
        yield f"{omitted} more lines are in the JSON (--json)."
    analysed = f"the logarithm of {analysis.response}" if logs else analysis.response
    yield f"The sums of squares are those of {analysed}. {analysis.transform_reason}"
    yield from analysis.notes
    yield from (term.sentence for term in analysis.terms if term.sentence)
    yield f"[bold]{analysis.conclusion}[/bold]"


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(*left, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in right:
        table.add_column(head, justify="right")
    return table


def _interval_texts(interval: DifferenceWithInterval) -> tuple[str, str]:
    """Return two texts: the ratio, or the difference if there is no ratio, and its interval."""
    value, low, high = interval.value, interval.low, interval.high
    if interval.ratio is not None:
        value, low, high = interval.ratio, interval.ratio_low, interval.ratio_high
    return f"{value:.4g}", "none" if low is None else f"{low:.4g} to {high:.4g}"
