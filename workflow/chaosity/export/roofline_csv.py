"""Make a table of the highest measured memory bandwidth of each initiator, for roofline models."""

from __future__ import annotations

from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import MEMORY, MeasuredHost, size_sweeps
from chaosity.export.main_matrices import origin_of_export
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.store.read_node_matrix_csv import BANDWIDTH

# Initiators that programs run on: a thread, an L3 domain, a node, a package, the machine.
_KINDS = ["pu", "l3", "node", "package", "machine"]
_KEY = ["initiator_kind", "initiator", "target"]
_NAMES = {"median": BANDWIDTH} | {end: f"{end}_bytes_per_second" for end in ("low", "high")}
_ESTIMATE = ["relation", "kernel", "experiment", "benchmark", *_NAMES.values(), "n"]
_ORIGIN = ["host", "configuration", "origin", "command"]


def export_roofline_csv(host: MeasuredHost) -> str:
    """Return a row for each initiator and its memory, with the kernel of the highest median.

    Raises:
        UserError: no bandwidth of a memory node was measured.
    """
    rows = host.measurements.single_load_rows().valid_rows()
    rows = rows.where(metric=BANDWIDTH, initiator_kind=_KINDS, target_kind=["node", "nodes"])
    rows = rows.select(rows.rows["category"].str.startswith(MEMORY, na=False))
    rows = rows.select(~rows.rows["experiment"].isin(size_sweeps(rows)))
    if not len(rows):
        raise UserError("no bandwidth of memory was measured", str(host.folder), "run `make run`")
    cells = summarise_cells(rows).sort_values("median", ascending=False, kind="stable")
    peaks = cells.drop_duplicates(_KEY).rename(columns=_NAMES)
    order = peaks["initiator_kind"].map(_KINDS.index)
    peaks = peaks.assign(order=order, **origin_of_export(host, "roofline"))
    peaks = peaks.sort_values(["order", "initiator", "target"])
    text: str = peaks.to_csv(index=False, columns=[*_KEY, *_ESTIMATE, *_ORIGIN])
    return text
