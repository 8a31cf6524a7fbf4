"""``chaosity weights``: interleave weights from measured bandwidths."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import (
    DWP_OPTION,
    EXISTING_FILE,
    FILE_OR_RESULTS,
    FORMS,
    JSON_OPTION,
    UNIT_OPTION,
    parse_worker_nodes,
    refuse_without_effect,
)
from chaosity.cli.terminal_output import print_json, print_template
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError

if TYPE_CHECKING:
    from chaosity.store.read_node_matrix_csv import NodeMatrix


@click.command("weights")
@click.argument("file", metavar="MATRIX.csv|RESULTS", type=FILE_OR_RESULTS)
@click.option(
    "--workers",
    required=True,
    metavar="NODES",
    help="Worker nodes, on which the program's threads run, such as 0,1 or 0-3.",
)
@DWP_OPTION
@UNIT_OPTION
@click.option(
    "--against",
    type=EXISTING_FILE,
    help="CSV file with measured placements, to compare their ranks with the expected ranks.",
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default="stream_placement",
    show_default=True,
    help="Meaning of the columns of --against: a file of templates/published.",
)
@JSON_OPTION
def weights_command(
    file: Path,
    workers: str,
    dwp: float,
    unit: str | None,
    against: Path | None,
    form: str,
    as_json: bool,
) -> None:
    """Compute interleave weights for the pages of a program that needs bandwidth.

    MATRIX.csv has the initiator node in the first column, then the bandwidth to each target node.
    RESULTS is a folder results/HOST/CONFIGURATION or its measurements.parquet. Then the weights
    from paths that were measured with all workers at once are printed too.

    Prints the canonical weights of BWAP (Gureya et al., IPDPS 2020): the share of the pages for
    each node, the same as integer weights for the Linux kernel, and the commands that use them.
    """
    from chaosity.store.read_published_csv import read_published_csv
    from chaosity.text_templates import write_sentences
    from chaosity.weights.canonical_weights import compare_alone_and_contended_weights
    from chaosity.weights.interleave_weight_advice import advise_interleave_weights
    from chaosity.weights.placement_bandwidth_model import rank_correlations_of_all_and_interleaved

    if against is None:
        refuse_without_effect("without --against", "form")
    worker_nodes = parse_worker_nodes(workers)
    is_table = file.is_dir() or file.suffix == ".parquet"
    alone, contended = read_bandwidths_alone_and_contended(file, unit, worker_nodes)
    advice = advise_interleave_weights(alone, worker_nodes, dwp)
    comparison = contended and compare_alone_and_contended_weights(alone, contended, worker_nodes)
    placements = read_published_csv(against, form, "published") if against else None
    ranks = (
        {} if placements is None else rank_correlations_of_all_and_interleaved(alone, placements)
    )
    if as_json:
        document = advice.to_json()
        if is_table:
            document["contended"] = comparison.to_json() if comparison else None
        if ranks:
            document["rank_correlation"] = {name: asdict(rank) for name, rank in ranks.items()}
        print_json(document)
        return
    print_template(
        "weights",
        advice=advice,
        format_cpu_list=format_cpu_list,
        comparison=comparison,
        is_table=is_table,
        ranks=write_sentences("weights", "ranks", ranks=ranks),
    )


def read_bandwidths_alone_and_contended(
    path: Path, unit: str | None, workers: list[int]
) -> tuple[NodeMatrix, NodeMatrix | None]:
    """Return the bandwidth of each path measured alone, and measured with all workers at once.

    Args:
        path: CSV file, tidy table, or folder of results; for a CSV file the second is None.
        unit: unit of the values in a CSV file, or None to infer it.
        workers: worker nodes.

    Raises:
        UserError: the path has no bandwidths, or a unit is given for a tidy table.
    """
    from chaosity.export.host_measurements_for_export import (
        read_measured_host,
        select_node_bandwidths,
    )
    from chaosity.result_folders import MEASUREMENTS_FILE
    from chaosity.store.read_node_matrix_csv import read_matrix_csv
    from chaosity.weights.canonical_weights import find_contended_bandwidth_matrix

    if path.suffix != ".parquet" and not path.is_dir():
        return read_matrix_csv(path, "bandwidth", unit), None
    if path.is_file() and path.name != MEASUREMENTS_FILE:
        raise UserError("the table is another one", str(path), f"name {MEASUREMENTS_FILE}")
    if unit:
        raise UserError("a tidy table has units of its own", "--unit", "remove the option --unit")
    host = read_measured_host(path if path.is_dir() else path.parent)
    contended = find_contended_bandwidth_matrix(host.measurements, workers)
    return select_node_bandwidths(host).matrix, contended
