"""Make features of a Slurm node from the measured values of a host."""

from __future__ import annotations

from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import (
    DRIVE_BANDWIDTH,
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MatrixCell,
    read_main_matrices,
    render_export,
    require_matrix,
)
from chaosity.topology.topology_model import SAME_NODE


def export_slurm_features(host: MeasuredHost) -> str:
    """Return a line of slurm.conf with the features of the host, and the command of scontrol.

    Raises:
        UserError: no bandwidth from node to node was measured, or the host is simulated.
    """
    host.refuse_simulated_values("Slurm")
    matrices = read_main_matrices(host)
    require_matrix(matrices, MEMORY_BANDWIDTH, host)
    cells = {name: matrix.cells for name, matrix in matrices.items()}
    slowest: dict[str, float] = {}
    longest: dict[str, float] = {}
    for name, relations in (("local", (SAME_NODE,)), ("any", None)):
        if own := _of_relations(cells[MEMORY_BANDWIDTH], relations):
            slowest[f"{name}_memory"] = min(cell.estimate.median for cell in own)
        if own := _of_relations(cells.get(MEMORY_LATENCY, ()), relations):
            longest[f"{name}_memory"] = max(cell.estimate.median for cell in own)
    # A file that stands in for a drive says nothing about one.
    if own := [cell for cell in cells.get(DRIVE_BANDWIDTH, ()) if not cell.is_of_file]:
        slowest["drive"] = min(cell.estimate.median for cell in own)
    return render_export("slurm", host, slowest=slowest, longest=longest)


def _of_relations(
    cells: tuple[MatrixCell, ...], relations: tuple[str, ...] | None
) -> list[MatrixCell]:
    return [cell for cell in cells if relations is None or cell.relation in relations]
