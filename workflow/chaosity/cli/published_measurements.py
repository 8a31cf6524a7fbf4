"""``chaosity published``: table and figures of measurements that others published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import EXISTING_FILE, FOLDER, FORMS, UNIT_OPTION
from chaosity.units import format_count, format_percent, format_quantity

if TYPE_CHECKING:
    from chaosity.store.measurements import Measurements


@click.command("published")
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    required=True,
    help="Meaning of the columns: a file of templates/published.",
)
@click.option(
    "--host", default="published", show_default=True, help="Name to give to the machine of FILE."
)
@UNIT_OPTION
@click.option(
    "--output", type=FOLDER, required=True, help="Folder for measurements.parquet and figures/."
)
def draw_published_command(
    file: Path, form: str, host: str, unit: str | None, output: Path
) -> None:
    """Draw figures from a CSV FILE that others published.

    Writes measurements.parquet and the figures of its experiment, and prints the result of each
    figure in a sentence. If loads were measured alone and co-running, prints the slowdowns.
    """
    from chaosity.checked_yaml_files import EXPERIMENTS, load_experiment, yaml_file_names
    from chaosity.figures.draw_and_write_figures import draw_figures
    from chaosity.store.measurements import Measurements
    from chaosity.store.read_published_csv import read_published_csv
    from chaosity.store.tidy_table_parquet import write_parquet_table
    from chaosity.topology.topology_model import Topology

    table = read_published_csv(file, form, host, unit)
    output.mkdir(parents=True, exist_ok=True)
    write_parquet_table(table, output / "measurements.parquet")
    click.echo(f"{output / 'measurements.parquet'}: {format_count(len(table), 'row')}")
    name = table["experiment"].iloc[0]
    experiments = [load_experiment(name)] if name in yaml_file_names(EXPERIMENTS) else []
    measurements = Measurements.from_table(table)
    for figure in draw_figures(experiments, measurements, Topology(), output / "figures"):
        if figure.csv is not None:
            click.echo(f"{output / 'figures' / figure.csv}: {figure.sentence}")
    for sentence in _slowdown_sentences(measurements):
        click.echo(sentence)


def _slowdown_sentences(measurements: Measurements) -> Iterator[str]:
    """Yield a sentence for each co-running load with its slowdown."""
    from chaosity.statistics.cell_summary import summarise_cells
    from chaosity.statistics.corun_interference import summarise_corun_to_alone_ratios
    from chaosity.store.measurements import LOAD, less_is_better

    table = measurements.rows
    medians = summarise_cells(measurements).set_index(["point", *LOAD])["median"]
    for _, cost in summarise_corun_to_alone_ratios(measurements).iterrows():
        metric, ratio = cost["metric"], cost["median"]
        loads = table[table["point"] == cost["point"]]
        others = ", ".join(sorted(set(loads["initiator"]) - {cost["initiator"]}))
        value = medians[(cost["point"], *(cost[column] for column in LOAD))]
        effect = f"loses {format_percent(1.0 - ratio)}"
        if less_is_better(metric) or ratio > 1.0:
            effect = f"has {ratio:.2f} times its value alone"
        own, alone = (format_quantity(metric, each) for each in (value, value / ratio))
        yield f"{cost['initiator']} {effect} with {others} co-running: {own}, alone {alone}."
