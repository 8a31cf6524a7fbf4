"""``chaosity anova``: which factors explain the differences in a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import EXISTING_FILE, FOLDER
from chaosity.cli.terminal_output import print_json, print_template
from chaosity.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

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
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="Of intervals, and of tests: at 0.9, a term is significant if p is below 0.1.",
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

    Prints the allocation of variation, F tests, effects of levels and of their combinations, and
    differences between levels with intervals, and a conclusion for each factor.

    \b
    chaosity anova stream.csv --response MBps --factors node,kernel --block run
    """  # noqa: D301 (click's mark for lines that are not to be filled)
    from chaosity.figures.residual_plots import write_residual_plots
    from chaosity.statistics.anova import analyse_variance, p_value_text, variation_percent_text
    from chaosity.statistics.estimates_and_ratios import confidence_text

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
        print_template(
            "anova",
            analysis=analysis,
            drawn=drawn,
            most_lines=_MOST_LINES,
            confidence=confidence_text(confidence),
            variation_percent_text=variation_percent_text,
            p_value_text=p_value_text,
        )


def _read_csv_texts(path: Path) -> pd.DataFrame:
    """Return the cells of a CSV file as texts; the index has the line numbers of the file."""
    import pandas as pd

    from chaosity.store.read_csv_table import read_csv_table

    table = read_csv_table(path)
    place = table.place(table.first_line)
    for column, name in enumerate(table.names, start=1):
        if not name:
            raise UserError(f"column {column} has no name", place)
        if table.names.count(name) > 1:
            raise UserError(f"two columns have the name {name!r}", place, "rename a column")
    return pd.DataFrame.from_dict(table.rows, orient="index", columns=table.names, dtype=object)
