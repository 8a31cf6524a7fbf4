"""Make a fio job file that reads each drive from its best node."""

from __future__ import annotations

from collections.abc import Iterator

from chaosity.components.make_component_documents import drive_component_name
from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import (
    DRIVE_BANDWIDTH,
    MainMatrix,
    MatrixCell,
    read_main_matrices,
    render_export,
    require_matrix,
)
from chaosity.topology.device_types import NvmeDrive


def export_fio_job_file(host: MeasuredHost) -> str:
    """Return the job file: for each drive the node from which it is read fastest.

    Raises:
        UserError: no NVMe drive was read from a node, or the host is simulated.
    """
    host.refuse_simulated_values("fio")
    matrix = require_matrix(read_main_matrices(host), DRIVE_BANDWIDTH, host)
    drives = list(_drives(host, matrix))
    if not drives:
        raise UserError("no NVMe drive of the topology was read from a node", str(host.folder))
    with_memory = {node.os_index for node in host.topology.memory_nodes}
    return render_export("fio", host, matrix=matrix, drives=drives, with_memory=with_memory)


def _drives(host: MeasuredHost, matrix: MainMatrix) -> Iterator[tuple[NvmeDrive, str, MatrixCell]]:
    """Yield each measured drive with its path for fio and its best cell."""
    measured = {cell.target for cell in matrix.cells}
    for drive in host.topology.drives:
        target = drive_component_name(drive)
        if drive.name and target in measured:
            # The kernel's name can change with each boot; udev's name of the slot does not.
            namespace = drive.name.rpartition("n")[2]
            path = f"disk/by-path/pci-{drive.pci}-nvme-{namespace}" if drive.pci else drive.name
            # A colon separates files of fio.
            yield drive, f"/dev/{path}".replace(":", r"\:"), matrix.best_cell(target)
