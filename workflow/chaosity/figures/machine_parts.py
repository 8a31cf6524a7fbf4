"""The parts of a machine as its drawing shows them: values, intervals, and findings on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.components.make_component_documents import drive_component_name
from chaosity.errors import printable_line
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import (
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MainMatrix,
    package_bandwidths,
    read_main_matrices,
)
from chaosity.place_names import node_name, package_name, parse_place_name
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.read_node_matrix_csv import BANDWIDTH
from chaosity.topology.topology_model import (
    OTHER_PACKAGE,
    SAME_NODE,
    SAME_PACKAGE,
    UNKNOWN,
    Node,
)
from chaosity.units import UnitScale, choose_scale, format_binary_bytes, format_count

# Kernel of a link's values: reads alone do not share the link with the other direction.
_LINK_KERNEL = "read"
_DRIVES = "drives"
_RELATIONS = {
    SAME_NODE: "own node",
    SAME_PACKAGE: "other node of the package",
    OTHER_PACKAGE: "node of another package",
    UNKNOWN: "other node",
}


@dataclass(frozen=True)
class Line:
    """A line in the box of a node: its memory, its drives or a GPU."""

    label: str
    values: tuple[str, ...]  # empty if nothing was measured
    share: float | None = None  # value as a share of the best of all nodes; None without a bar
    findings: tuple[int, ...] = ()  # numbers of the findings that name this part
    hover: str = ""


class MachineParts:
    """What is known of each part of a machine.

    Attributes:
        topology: the topology of the host.
        findings: name of a component, or of the drives of a node -> numbers of the findings on it.
        paths_to_drives: number of a finding on a way from one package to the drives of another ->
            the finding.
    """

    def __init__(self, host: MeasuredHost, findings: Sequence[Anomaly]) -> None:
        """Number the findings from 1, in their order."""
        self.topology, self._measurements = host.topology, host.measurements
        self._matrices = read_main_matrices(host)
        self._packages = package_bandwidths(host)
        self.findings: dict[str, tuple[int, ...]] = {}
        self.paths_to_drives: dict[int, Anomaly] = {}
        for number, finding in enumerate(findings, start=1):
            targets = (parse_place_name(str(target)) for _, target in finding.cells)
            of_drives = any(target is not None and target.has_drives for target in targets)
            for component in finding.components:
                name = component.removeprefix("link ")
                if of_drives and "->" in name:
                    self.paths_to_drives[number] = finding
                else:
                    name = f"drives of {name}" if of_drives and name.startswith("node") else name
                    self.findings[name] = (*self.findings.get(name, ()), number)

    def rate_of_reads(self, reader: int | None, owner: int | None) -> Estimate | None:
        """Return what all cores of a package read from all memory of a package; None if unknown."""
        if reader is None:
            return None
        nodes = {n.os_index for n in self.topology.memory_nodes if n.package == owner}
        for (initiator, target), kernels in self._packages.items():
            place = parse_place_name(target)
            if initiator == package_name(reader) and place and set(place.indices) == nodes:
                return kernels.get(_LINK_KERNEL)
        return None

    def detail_of_node(self, node: Node) -> str:
        """Return the cores of a node, the kind of its memory unless it is DRAM, and the size."""
        cores = sum(node.os_index in core.nodes for core in self.topology.cores)
        kind = [node.kind] * (node.kind not in ("DRAM", "none", UNKNOWN))
        size = [format_binary_bytes(node.size_bytes)] if node.size_bytes else []
        if node.initiator:
            return ", ".join([format_count(cores, "core"), *kind, *size])
        return ", ".join([*kind, *size] if kind else ["no cores", *size])

    def lines_of_node(self, node: Node) -> list[Line]:
        """Return the lines of a node: its memory, its drives, its GPUs."""
        found = [self._memory_line(node)] if node.target else []
        drives = [
            drive_component_name(drive)
            for drive in self.topology.drives
            if drive.node == node.os_index
        ]
        if drives or node.os_index in self._rates_of_drives:
            found.append(self._drives_line(node, drives))
        gpus = [gpu for gpu in self.topology.compute_gpus if gpu.node == node.os_index]
        return found + [Line(printable_line(gpu.model or gpu.name or "GPU"), ("",)) for gpu in gpus]

    def _memory_line(self, node: Node) -> Line:
        """Return bandwidth and latency of a node's memory, from the node, or the nearest node."""
        name, values, shares = node_name(node.os_index), [], []
        hover = [f"memory of node {node.os_index}"]
        for quantity, matrix in self._of_memory.items():
            cells = [cell for cell in matrix.cells if cell.target == name]
            if not cells:
                continue
            cell = max(
                cells, key=lambda each: (each.node == node.os_index, matrix.share_of_best(each))
            )
            values.append(self._scales[quantity].text(cell.estimate.median))
            shares.append(matrix.share_of_best(cell))
            text = text_with_interval(matrix.metric, cell.estimate)
            hover.append(f"{quantity} from node {cell.node} ({matrix.source}): {text}")
        return Line("memory", tuple(values), shares[0] if shares else None, (), "; ".join(hover))

    def _drives_line(self, node: Node, drives: Sequence[str]) -> Line:
        """Return the rate of all drives of a node, read by the node."""
        names = [*drives, f"drives of {node_name(node.os_index)}"]
        numbers = tuple(sorted({n for name in names for n in self.findings.get(name, ())}))
        label = format_count(len(drives), "drive") if drives else "file"
        hover = f"{label} of node {node.os_index}, read by this node"
        rate = self._rates_of_drives.get(node.os_index)
        if rate is None:
            return Line(label, (), None, numbers, f"{hover}: not measured")
        best = max(each.median for each in self._rates_of_drives.values())
        value = self._scales[_DRIVES].text(rate.median)
        text = text_with_interval(BANDWIDTH, rate)
        return Line(label, (value,), rate.median / best, numbers, f"{hover}: {text}")

    @cached_property
    def _rates_of_drives(self) -> Mapping[int, Estimate]:
        """Return node -> rate at which it reads its own drives, with as many drives as measured."""
        rows = self._measurements.single_load_rows().where(metric=BANDWIDTH, initiator_kind="node")
        own = rows.rows["initiator_nodes"] == rows.rows["target_nodes"]
        rows = rows.select(own & (rows.rows["drives"] > 0)).valid_rows()
        if not len(rows):
            return {}
        cells = summarise_cells(rows).sort_values("drives", kind="stable")
        return {
            int(cell["initiator_nodes"]): Estimate.of_cell(cell)
            for cell in cells.to_dict("records")
            if str(cell["initiator_nodes"]).isdigit()
        }

    @cached_property
    def _of_memory(self) -> Mapping[str, MainMatrix]:
        """Return quantity -> its matrix of memory, as far as it was measured."""
        found = {name: self._matrices.get(name) for name in (MEMORY_BANDWIDTH, MEMORY_LATENCY)}
        return {name: matrix for name, matrix in found.items() if matrix is not None}

    @cached_property
    def _scales(self) -> Mapping[str, UnitScale]:
        """Return quantity -> its scale in the boxes of all nodes."""
        scales = {
            quantity: choose_scale(matrix.metric, [cell.estimate.median for cell in matrix.cells])
            for quantity, matrix in self._of_memory.items()
        }
        rates = [each.median for each in self._rates_of_drives.values()]
        return {**scales, _DRIVES: choose_scale(BANDWIDTH, rates)}

    def rows_by_distance(self) -> list[tuple[str, ...]]:
        """Return what a node gets from memory by its distance, a row of texts for each distance.

        The first row has the heads. Without other nodes there are no rows.
        """
        rows = []
        for relation, label in _RELATIONS.items():
            texts = [
                _range_text(
                    matrix.metric,
                    [each.estimate.median for each in matrix.cells if each.relation == relation],
                )
                for matrix in self._of_memory.values()
            ]
            if any(texts):
                rows.append((label, *texts))
        return [("from a node to the memory of", *self._of_memory), *rows] if len(rows) > 1 else []


def text_with_interval(metric: str, estimate: Estimate) -> str:
    """Return "18.3 GB/s, 95 % interval 17.9 to 18.8, n = 3"."""
    return estimate.text(choose_scale(metric, [estimate.median]))


def _range_text(metric: str, values: Sequence[float]) -> str:
    """Return the median of values, with the smallest and largest; empty without values."""
    if not values:
        return ""
    scale = choose_scale(metric, values)
    if len(values) == 1:
        return scale.text(values[0])
    ends = f"{scale.number(min(values))} to {scale.number(max(values))}"
    return f"{scale.text(median(values))} ({ends})"
