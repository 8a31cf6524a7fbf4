"""``chaosity published``: what others measured, through the same table and figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pandas as pd

from chaosity.config import EXPERIMENTS, PUBLISHED, known_names, load_experiment
from chaosity.figures import draw
from chaosity.statistics import LOAD, corun_slowdown, less_is_better, summarise
from chaosity.store import read_published, write_table
from chaosity.units import count, percent, quantity


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--form", type=click.Choice(known_names(PUBLISHED)), required=True,
              help="What its columns mean: a file below templates/published.")  # fmt: skip
@click.option("--host", default="published", show_default=True, help="What to call the machine.")
@click.option("--unit", help="Of the numbers in a matrix, such as MB/s; else the file's name or "
              "their size tells it.")  # fmt: skip
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True,
              help="Folder for measurements.parquet and figures/.")  # fmt: skip
def published(file: Path, form: str, host: str, unit: str | None, output: Path) -> None:
    """Draw a CSV FILE that others published as if it had been measured here.

    Writes measurements.parquet and the figures of the experiment that it belongs to, and says in
    one sentence each what is to be seen in them. Where loads were measured alone and together, it
    says what each lost.
    """
    table = read_published(file, form, host, unit)
    output.mkdir(parents=True, exist_ok=True)
    write_table(table, output / "measurements.parquet")
    click.echo(f"{output / 'measurements.parquet'}: {count(len(table), 'row')}")
    name = table["experiment"].iloc[0]
    known = [load_experiment(name)] if name in known_names(EXPERIMENTS) else []
    for figure in draw(known, table, {}, output / "figures"):
        if figure.csv is not None:
            click.echo(f"{output / 'figures' / figure.csv}: {figure.sentence}")
    for sentence in losses(table):
        click.echo(sentence)


def losses(table: pd.DataFrame) -> Iterator[str]:
    """What each load loses beside others, a sentence each."""
    costs = corun_slowdown(table)
    cells = summarise(table).set_index(["point", *LOAD])["median"]
    for _, cost in costs.iterrows():
        own = table[table["point"] == cost["point"]]
        others = sorted(set(own["initiator"]) - {cost["initiator"]})
        beside = cells[(cost["point"], *(cost[part] for part in LOAD))]
        alone = beside / cost["median"]
        shares = quantity(cost["metric"], beside), quantity(cost["metric"], alone)
        change = 1.0 - cost["median"]
        words = f"loses {percent(change)}"
        if less_is_better(cost["metric"]) or change < 0.0:
            words = f"has {cost['median']:.2f} times its value alone"
        yield f"{cost['initiator']} {words} beside {', '.join(others)}: {shares[0]} of {shares[1]}."
