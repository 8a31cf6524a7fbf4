"""Make a Kubernetes NodeResourceTopology whose costs of zones are measured."""

from __future__ import annotations

from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import (
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MainMatrix,
    read_main_matrices,
    render_export,
    require_matrix,
)

# Costs are as in the SLIT, which the scheduler's plugins read otherwise: 10 is the least, and the
# plugin NodeResourceTopologyMatch takes no distance beyond 255.
_LEAST_COST, _LARGEST_COST = 10, 254


def export_node_resource_topology(host: MeasuredHost) -> str:
    """Return the object with the cost from each node to each node.

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
    slowness = {
        (cell.node, cell.target): cell.estimate.median
        if matrix.quantity == MEMORY_LATENCY
        else 1.0 / cell.estimate.median
        for cell in matrix.cells
    }
    least = min(slowness.values())
    costs: dict[int, dict[str, int]] = {node: {} for node in matrix.nodes}
    for (node, target), value in slowness.items():
        costs[node][target] = min(_LARGEST_COST, round(_LEAST_COST * value / least))
    for target in matrix.targets:
        costs.setdefault(int(target.removeprefix("node")), {})
    return costs
