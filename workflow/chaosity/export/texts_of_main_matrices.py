"""Write files of other programs from the main matrices: fio, Kubernetes, ReFrame and Slurm.

Each function returns a text for a program that acts on the values, so each refuses simulated ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from chaosity.components.make_component_documents import drive_component_name
from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import (
    DRIVE_BANDWIDTH,
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MainMatrix,
    MatrixCell,
    read_main_matrices,
    render_export,
    require_matrix,
)
from chaosity.statistics.estimates_and_ratios import Estimate, intervals_with_confidence
from chaosity.topology.device_types import NvmeDrive
from chaosity.topology.topology_model import SAME_NODE

# Costs are as in the SLIT, which the scheduler's plugins read otherwise: 10 is the least, and the
# plugin NodeResourceTopologyMatch takes no distance beyond 255.
_LEAST_COST, _LARGEST_COST = 10, 254
# Of healthy hosts, at most this share fails any of its references, like that of the findings.
FALSE_ALARM_RATE = 0.01
# A reference that accepts half or twice its value finds no fault worth a test.
_LOWEST, _HIGHEST = -0.5, 1.0


def export_fio_job_file(host: MeasuredHost) -> str:
    """Return a fio job file: for each drive the node from which it is read fastest.

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


def export_node_resource_topology(host: MeasuredHost) -> str:
    """Return a Kubernetes NodeResourceTopology with the cost from each node to each node.

    Costs are latencies, 10 for the shortest; without latencies, inverse bandwidths.

    Raises:
        UserError: neither latency nor bandwidth was measured, or the host is simulated.
    """
    host.refuse_simulated_values("Kubernetes")
    matrices = read_main_matrices(host)
    matrix = matrices.get(MEMORY_LATENCY) or require_matrix(matrices, MEMORY_BANDWIDTH, host)
    return render_export("kubernetes", host, matrix=matrix, costs=_costs(matrix))


def _costs(matrix: MainMatrix) -> dict[int, dict[str, int]]:
    """Return node -> name of the target node -> cost, at least 10; nodes without cores are last."""
    costs: dict[int, dict[str, int]] = {node: {} for node in matrix.nodes}
    for cell in matrix.cells:
        cost = round(_LEAST_COST / matrix.share_of_best(cell))
        costs[cell.node][cell.target] = min(_LARGEST_COST, cost)
    for target in matrix.targets:
        costs.setdefault(int(target.removeprefix("node")), {})
    return costs


def export_reframe_references(host: MeasuredHost) -> str:
    """Return references for ReFrame's performance tests, of all cells that are precise enough.

    A reference is a value with a lower and an upper limit, as shares of the value.

    Raises:
        UserError: no cell has an interval, or the host is simulated.
    """
    host.refuse_simulated_values("ReFrame")
    number = len(_limits(read_main_matrices(host)))
    if not number:
        what = "no value has an interval, so limits are unknown"
        raise UserError(what, str(host.folder), "measure more replicates")
    with intervals_with_confidence(1.0 - FALSE_ALARM_RATE / number):
        found = _limits(read_main_matrices(host))
    references = {
        name: reference
        for name, reference in found.items()
        if reference[2] > _LOWEST and reference[3] < _HIGHEST
    }
    return render_export(
        "reframe",
        host,
        references=references,
        left_out=[name for name in found if name not in references],
        false_alarms=100.0 * FALSE_ALARM_RATE,
    )


def _limits(
    matrices: Mapping[str, MainMatrix],
) -> dict[str, tuple[MainMatrix, Estimate, float, float]]:
    """Return name of the reference -> matrix, estimate, lower limit (below 0) and upper limit."""
    return {
        "_".join(re.split("[- ]", f"{matrix.quantity} {cell.initiator} {cell.target}")): (
            matrix,
            cell.estimate,
            *prediction_limits(cell.estimate),
        )
        for matrix in matrices.values()
        for cell in matrix.cells
        if cell.estimate.low_and_high
    }


def prediction_limits(estimate: Estimate) -> tuple[float, float]:
    """Return the limits of one further measurement, as shares of the median: -0.02, 0.02.

    The interval of a median of n values has a half width of t s / sqrt(n) in logarithms. A further
    value has one of t s sqrt(1 + 1/n), which is sqrt(n + 1) times as much.
    """
    assert estimate.low is not None and estimate.high is not None
    widening = math.sqrt(estimate.n + 1.0)
    low, high = (
        math.expm1(widening * math.log(end / estimate.median))
        for end in (estimate.low, estimate.high)
    )
    return low, high


def export_slurm_features(host: MeasuredHost) -> str:
    """Return a line of slurm.conf with the features of the host, and the command of scontrol.

    Raises:
        UserError: no bandwidth from node to node was measured, or the host is simulated.
    """
    host.refuse_simulated_values("Slurm")
    matrices = read_main_matrices(host)
    require_matrix(matrices, MEMORY_BANDWIDTH, host)
    medians: dict[str, dict[str, list[float]]] = {}
    for name, matrix in matrices.items():
        # A file that stands in for a drive says nothing about one.
        cells = [cell for cell in matrix.cells if not cell.is_of_file]
        local = [cell.estimate.median for cell in cells if cell.relation == SAME_NODE]
        medians[name] = {"local": local, "any": [cell.estimate.median for cell in cells]}
    slowest = {
        f"{place}_memory": min(own) for place, own in medians[MEMORY_BANDWIDTH].items() if own
    }
    longest = {
        f"{place}_memory": max(own) for place, own in medians.get(MEMORY_LATENCY, {}).items() if own
    }
    if own := medians.get(DRIVE_BANDWIDTH, {}).get("any"):
        slowest["drive"] = min(own)
    return render_export("slurm", host, slowest=slowest, longest=longest)
