"""``chaosity anova``: which factors explain the differences in a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import EXISTING_FILE, FOLDER, print_json, print_line, print_table
from chaosity.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from chaosity.statistics.anova import AnovaResult
    from chaosity.statistics.linear_models import DifferenceWithInterval

# Largest number of lines of a table that the terminal shows; the JSON has all lines.
_MOST_PRINTED_LINES = 40


@click.command("anova")
@click.argument("file", type=EXISTING_FILE)
@click.option("--response", required=True, metavar="COLUMN", help="Column of the values.")
@click.option(
    "--factors",
    required=True,
    metavar="COLUMN,...",
    help="Columns of the factors. Each value is the name of a level, even if it is a number.",
)
@click.option(
    "--block",
    metavar="COLUMN",
    help="Column of blocks, such as replicate. Variation between blocks does not count as error."
    " Default: none",
)
@click.option(
    "--transform",
    type=click.Choice(["auto", "better", "none", "log"]),
    default="auto",
    show_default=True,
    help="log: analyse logarithms. better: log or none, whichever has the larger likelihood. "
    "auto: log only if its likelihood is clearly larger.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="Confidence of intervals and tests. At 0.9, a term is significant if p is below 0.1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all numbers.")
@click.option("--figures", type=FOLDER, metavar="FOLDER", help="Draw the residuals in FOLDER.")
def anova_command(
    file: Path,
    response: str,
    factors: str,
    block: str | None,
    transform: str,
    confidence: float,
    as_json: bool,
    figures: Path | None,
) -> None:
    """Show which factors explain the differences in FILE, a CSV file with a row for each value.

    The command prints the allocation of variation, F tests, effects of levels and of combinations
    of levels, differences between levels with intervals, and a conclusion for each factor.

    Example: chaosity anova results/demo/paper_server/nps4/figures/latency_by_node.csv
    --response median_latency_ns --factors initiator,target
    """
    from chaosity.figures.figure_files import write_residual_plots
    from chaosity.statistics.anova import analyse_variance

    table = _read_csv_texts(file)
    names = [name.strip() for name in factors.split(",") if name.strip()]
    try:
        analysis = analyse_variance(table, response, names, block, transform, confidence)
    except UserError as error:
        where = f"{file}, {error.where}" if error.where else str(file)
        raise UserError(error.what, where, error.remedy) from None
    drawn = write_residual_plots(analysis, figures, f"{file.stem}_residuals") if figures else []
    if as_json:
        print_json(analysis.to_json())
    else:
        _print_analysis(analysis, confidence)
        for path in drawn:
            print_line(path)


def _print_analysis(analysis: AnovaResult, confidence: float) -> None:
    """Print an analysis, with at most `_MOST_PRINTED_LINES` lines of each table."""
    from chaosity.statistics.anova import p_value_text, variation_percent_text
    from chaosity.statistics.estimates import confidence_text

    logs = analysis.transform == "log"
    interval = f"{confidence_text(confidence)} interval"
    terms = [
        (
            *(term.name, variation_percent_text(term.variation_percent), term.degrees_of_freedom),
            *(
                _number_text(term.sum_of_squares, 6),
                _number_text(term.mean_square, 6),
                _number_text(term.f, 5),
            ),
            "" if term.p_value is None else p_value_text(term.p_value)[2:].removeprefix("= "),
        )
        for term in analysis.terms
    ]
    levels = [
        (each.factor, each.level, each.n, _number_text(each.mean, 4), *_value_cells(each.effect))
        for each in analysis.effects[:_MOST_PRINTED_LINES]
    ]
    pairs = [
        (
            *(pair.factor, pair.level, pair.against, *_value_cells(pair.difference)),
            f"{pair.adjusted}, all pairs" if pair.adjusted else "Student",
        )
        for pair in analysis.contrasts[:_MOST_PRINTED_LINES]
    ]
    combinations = [
        (each.term, " x ".join(each.levels), each.n, *_value_cells(each.effect))
        for each in analysis.interactions[:_MOST_PRINTED_LINES]
    ]
    shares = "share,degrees of freedom,sum of squares,mean square,F,p"
    effect, of_mean = ("ratio", "ratio to the mean") if logs else ("effect", "effect")
    difference = "ratio" if logs else "difference"
    between = "Differences between levels"
    added = "Interactions: what a combination adds to the effects of its levels"
    tables: list[tuple[str, Sequence[Sequence[object]], str, str, str]] = [
        (f"Variation of {analysis.response}, n = {analysis.n}", terms, "source", shares, ""),
        ("Levels", levels, "factor,level", f"n,mean,{of_mean},{interval}", ""),
        (between, pairs, "factor,level,against", f"{difference},{interval}", "interval by"),
    ]
    if combinations:
        tables.append((added, combinations, "interaction,levels", f"n,{effect},{interval}", ""))
    for title, rows, *heads in tables:
        left, right, last = (each.split(",") if each else [] for each in heads)
        print_table(rows, left, right, last, title=title, style="headed")
        print_line()
    lists = (analysis.effects, analysis.contrasts, analysis.interactions)
    if omitted := sum(len(each[_MOST_PRINTED_LINES:]) for each in lists):
        print_line(f"{omitted} more lines are in the JSON (--json).")
    print_line(
        f"The sums of squares are computed from {'the logarithm of ' * logs}{analysis.response}. "
        f"{analysis.transform_reason}"
    )
    for sentence in (*analysis.notes, *(term.sentence for term in analysis.terms)):
        if sentence:
            print_line(sentence)
    print_line(analysis.conclusion, style="bold")


def _number_text(value: float | None, digits: int) -> str:
    """Return a number as text with `digits` significant digits; None gives ""."""
    return "" if value is None else f"{value:.{digits}g}"


def _value_cells(each: DifferenceWithInterval) -> tuple[str, str]:
    """Return an effect and its interval as two texts; a ratio if logarithms were analysed."""
    value, low, high = each.value, each.low, each.high
    if each.ratio is not None:
        value, low, high = each.ratio, each.ratio_low, each.ratio_high
    return _number_text(value, 4), "none" if low is None else f"{low:.4g} to {high:.4g}"


def _read_csv_texts(path: Path) -> pd.DataFrame:
    """Return the cells of a CSV file as texts; the index has the line numbers."""
    import pandas as pd

    from chaosity.store.csv_tables import read_csv_or_mlc_table

    table = read_csv_or_mlc_table(path)
    place = table.place_of_line(table.first_line)
    for column, name in enumerate(table.names, start=1):
        if not name:
            raise UserError(f"column {column} has no name", place)
        if table.names.count(name) > 1:
            raise UserError(f"two columns have the name {name!r}", place, "rename a column")
    return pd.DataFrame.from_dict(table.rows, orient="index", columns=table.names, dtype=object)
