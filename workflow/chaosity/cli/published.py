"""``chaosity published``: what others measured, through the same table and figures."""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.config import PUBLISHED, known_names, load_experiment
from chaosity.figures import draw
from chaosity.store import read_published, write_table


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--form", type=click.Choice(known_names(PUBLISHED)), required=True,
              help="What its columns mean: a file below templates/published.")  # fmt: skip
@click.option("--host", default="published", show_default=True, help="What to call the machine.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True,
              help="Folder for measurements.parquet and figures/.")  # fmt: skip
def published(file: Path, form: str, host: str, output: Path) -> None:
    """Draw a CSV FILE that others published as if it had been measured here.

    Writes measurements.parquet and the figures of the experiment that it belongs to, and says in
    one sentence each what is to be seen in them.
    """
    table = read_published(file, form, host)
    output.mkdir(parents=True, exist_ok=True)
    write_table(table, output / "measurements.parquet")
    experiment = load_experiment(table["experiment"].iloc[0])
    for figure in draw([experiment], table, {}, output / "figures"):
        if figure.csv is not None:
            click.echo(f"{output / 'figures' / figure.csv}: {figure.sentence}")
