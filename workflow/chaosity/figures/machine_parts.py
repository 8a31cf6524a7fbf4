"""Find the values, intervals and findings of each part of a machine, for its drawing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.components import drive_component_name
from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.errors import printable_short_line
from chaosity.export.main_matrices import (
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MainMatrix,
    MeasuredHost,
    read_main_matrices,
)
from chaosity.place_names import node_name, parse_place_name, place_in_words
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates import Estimate
from chaosity.store.csv_tables import BANDWIDTH
from chaosity.store.measurements import PREDICTED, LeftOutPoints, Measurements, parse_nodes
from chaosity.topology.devices import (
    accelerators_of_known_kinds,
    sentence_on_what_is_not_measured,
)
from chaosity.topology.topology_model import OTHER_PACKAGE, SAME_NODE, SAME_PACKAGE
from chaosity.topology.topology_parts import UNKNOWN, Gpu, Node
from chaosity.units import UnitScale, choose_scale, format_binary_bytes, format_count

# The kernel whose bandwidth shows the speed of a link, since reads move data in one direction only.
_LINK_KERNEL = "read"
_DRIVES_LABEL = "drives"
_RELATION_TEXTS = {
    SAME_NODE: "own node",
    SAME_PACKAGE: "other node of the package",
    OTHER_PACKAGE: "node of another package",
    UNKNOWN: "other node",
}
# States of a part; a further state is PREDICTED.
MEASURED, FAULTY, UNMEASURED = "measured", "faulty", "unmeasured"


@dataclass(frozen=True)
class TextLine:
    """A line in the box of a node: on its memory, its drives, a GPU, or a slow path to the node."""

    label: str
    values: tuple[str, ...]  # values as text; empty if nothing was measured
    share: float | None = None  # length of the bar, as a share of the best value; None without
    findings: tuple[int, ...] = ()  # numbers of the findings that name this part
    hover: str = ""
    is_predicted: bool = False

    @property
    def state(self) -> str:
        """Return the state of the part: the first of FAULTY, UNMEASURED, PREDICTED, MEASURED."""
        if self.findings:
            return FAULTY
        if not self.values:
            return UNMEASURED
        return PREDICTED if self.is_predicted else MEASURED


class MachineParts:
    """The values of each part of a machine, and the findings on it.

    Attributes:
        topology: the topology of the host.
        findings: name of a component, or a text such as "drives of node3" -> numbers of the
            findings on this part.
        paths_to_drives: number of a finding -> finding, for findings on the path between one
            package and the drives of another.
        slow_paths: name of a node -> label -> line on a part of the node that is slow only from
            another node, or only together with drives of other nodes. The part is not red in the
            drawing.
        numbered: number of a finding -> finding.
    """

    def __init__(self, host: MeasuredHost, findings: Sequence[Anomaly]) -> None:
        """Number the findings from 1 on, in the given order."""
        self._host, self.topology, self._measurements = host, host.topology, host.measurements
        self._left_out = LeftOutPoints.read(host.folder)
        self._matrices = read_main_matrices(host)
        self.numbered = dict(enumerate(findings, start=1))
        self.findings: dict[str, tuple[int, ...]] = {}
        self.paths_to_drives: dict[int, Anomaly] = {}
        self.slow_paths: dict[str, dict[str, TextLine]] = {}
        for number, finding in self.numbered.items():
            self._add_finding(number, finding)

    def _add_finding(self, number: int, finding: Anomaly) -> None:
        """Add a finding to the slow parts, or to the slow paths to parts."""
        targets = [parse_place_name(str(target)) for _, target in finding.cells]
        of_drives = finding.is_on_drives
        sets = {target.indices for target in targets if target and target.kind == "nodes_drives"}
        readers = {str(initiator) for initiator, _ in finding.cells}
        nodes_of_readers = set[str]().union(
            *(self._nodes_of_initiator.get(reader, {reader}) for reader in readers)
        )
        for component in finding.components:
            name = component.removeprefix("link ")
            source, _, target = name.partition("->")
            home = self.node_of_drive.get(name, name)
            others = {node_name(n) for nodes in sets for n in nodes} - {home}
            if target.startswith("node"):
                self._add_slow_path(target, "from ", [source], number, finding)
            elif of_drives and target:
                self.paths_to_drives[number] = finding
            elif home.startswith("node") and len(sets) == 1 and others:
                self._add_slow_path(home, "with ", [*others], number, finding)
            elif of_drives and home.startswith("node") and home not in nodes_of_readers:
                word = "from " if home == name else "drive, "
                self._add_slow_path(home, word, [*readers], number, finding)
            else:
                name = f"drives of {name}" if of_drives and name.startswith("node") else name
                self.findings[name] = (*self.findings.get(name, ()), number)

    @cached_property
    def _nodes_of_initiator(self) -> Mapping[str, set[str]]:
        """Return name of an initiator -> names of the nodes of its processing units."""
        rows = self._measurements.rows[["initiator", "initiator_nodes"]].drop_duplicates().dropna()
        return {
            str(initiator): {*map(node_name, parse_nodes(nodes))}
            for initiator, nodes in rows.itertuples(index=False)
            if nodes
        }

    def _add_slow_path(
        self, node: str, word: str, others: Sequence[str], number: int, finding: Anomaly
    ) -> None:
        """Add a finding to the line on a slow path to a part of a node."""
        nodes = f"{len(others)} nodes" if len(others) > 1 else place_in_words(others[0])
        value = choose_scale(finding.metric, [finding.observed]).text(finding.observed)
        line = TextLine(f"{word}{nodes}", (value,), None, (number,), finding.sentence)
        lines = self.slow_paths.setdefault(node, {})
        if known := lines.get(line.label):
            hover = f"{known.hover} {line.hover}"
            line = replace(known, findings=(*known.findings, number), hover=hover)
        lines[line.label] = line

    @cached_property
    def node_of_drive(self) -> Mapping[str, str]:
        """Return name of a drive -> name of its node, for the drives whose node is known."""
        return {
            drive_component_name(drive): node_name(drive.node)
            for drive in self.topology.drives
            if drive.node is not None
        }

    def package_read_rate(self, from_package: int, of_package: int) -> tuple[Estimate, str] | None:
        """Return how fast all cores of one package read memory of a package, and the rate's source.

        If this rate was not measured and each package has one node, the rate comes from the matrix
        of nodes. The result is None if there is no rate.
        """
        ends = [
            [n.os_index for n in nodes if n.package == package]
            for nodes, package in (
                (self.topology.initiator_nodes, from_package),
                (self.topology.memory_nodes, of_package),
            )
        ]
        if found := self._rates_of_reads.get((format_cpu_list(ends[0]), format_cpu_list(ends[1]))):
            return found
        matrix = self._matrices.get(MEMORY_BANDWIDTH)
        if matrix and from_package != of_package and len(ends[0]) == len(ends[1]) == 1:
            cell = matrix.cell_of.get((ends[0][0], node_name(ends[1][0])))
            return (cell.estimate, matrix.source) if cell else None
        return None

    @cached_property
    def _rates_of_reads(self) -> Mapping[tuple[str, str], tuple[Estimate, str]]:
        """Return (nodes of the cores, nodes of the memory) -> (rate of reads, source of the rate).

        If several groups of comparable rows have a pair, the group with the most pairs counts.
        """
        rows = self._host.memory_rows().valid_rows()
        rows = rows.where(metric=BANDWIDTH, kernel=_LINK_KERNEL, initiator_kind=["node", "package"])
        return {
            (str(cell["initiator_nodes"]), str(cell["target_nodes"])): (
                Estimate.of_cell(cell),
                f"{cell['kernel']} of {cell['experiment']}, {cell['benchmark']}",
            )
            for cell in _summarised_cells(rows)
        }

    def detail_of_node(self, node: Node) -> str:
        """Return as text a node's number of cores, kind of memory (unless DRAM) and memory size."""
        cores = [core for core in self.topology.cores if node.os_index in core.nodes]
        kinds = [
            sum(set(core.cpus) <= {*kind.cpus} for core in cores)
            for kind in self.topology.core_kinds
        ]
        numbers = " + ".join(map(str, filter(None, reversed(kinds))))
        text = f"{numbers} cores" if "+" in numbers else format_count(len(cores), "core")
        kind = [node.kind] * (node.kind not in ("DRAM", "none", UNKNOWN))
        size = [format_binary_bytes(node.size_bytes)] if node.size_bytes else []
        if node.initiator:
            return ", ".join([text, *kind, *size])
        return ", ".join([*kind, *size] if kind else ["no cores", *size])

    def lines_of_node(self, node: Node) -> list[TextLine]:
        """Return the lines in the box of a node, on memory, drives, slow paths and devices."""
        found = [self.memory_line(node)] if node.target else []
        drives = self.drives_line(node)
        found += [drives] if drives else []
        found += self.slow_paths.get(node_name(node.os_index), {}).values()
        for gpu in self.topology.compute_gpus:
            if gpu.node == node.os_index:
                found += self._gpu_lines(gpu)
        engines = Counter(
            each.kind
            for each in accelerators_of_known_kinds(self.topology.accelerators)
            if each.node == node.os_index
        )
        for kind, number in engines.items():
            found.append(
                TextLine(f"{number} x {kind}", (), hover=sentence_on_what_is_not_measured(kind))
            )
        return found

    def memory_line(self, node: Node) -> TextLine:
        """Return the line on a node's memory, seen from this node or else the best node."""
        name, values, shares = node_name(node.os_index), [], []
        hover = [f"memory of node {node.os_index}"]
        for quantity, matrix in self._memory_matrices.items():
            cells = [cell for cell in matrix.cells if cell.target == name]
            if not cells:
                continue
            cell = max(
                cells, key=lambda each: (each.node == node.os_index, matrix.share_of_best(each))
            )
            values.append(self._unit_scale_of_quantity[quantity].text(cell.estimate.median))
            shares.append(matrix.share_of_best(cell))
            text = text_with_interval(matrix.metric, cell.estimate)
            hover.append(f"{quantity} from node {cell.node} ({matrix.source}): {text}")
        share = shares[0] if shares else None
        return TextLine("memory", tuple(values), share, (), "; ".join(hover))

    def drives_line(self, node: Node) -> TextLine | None:
        """Return a line on how fast a node reads all its drives; None if it has no drives."""
        own = [drive for drive in self.topology.drives if drive.node == node.os_index]
        rate = self._rates_of_drives.get(str(node.os_index))
        if not own and rate is None:
            return None
        name = f"drives of {node_name(node.os_index)}"
        names = [*map(drive_component_name, own), name]
        numbers = tuple(sorted({n for each in names for n in self.findings.get(each, ())}))
        label = format_count(len(own), "drive") if own else "file"
        hover = f"{label} of node {node.os_index}, read by this node"
        best = max((r.median for n, r in self._rates_of_drives.items() if n.isdigit()), default=0.0)
        return self._line_of_drives(label, hover, rate, best, numbers)

    def drives_line_of_package(self, nodes: Sequence[Node]) -> TextLine | None:
        """Return a line on how fast one node reads all drives of its package, or None."""
        with_drives = {drive.node for drive in self.topology.drives}
        own = [node.os_index for node in nodes if node.os_index in with_drives]
        rate = self._rates_of_drives.get(format_cpu_list(own))
        if len(own) < 2 or rate is None:
            return None
        hover = "the drives of all nodes of this package, read by its fastest node"
        best = math.inf if rate.n else rate.median  # a measured value has no bar
        return self._line_of_drives("all its drives, read by a node", hover, rate, best)

    def _line_of_drives(
        self,
        label: str,
        hover: str,
        rate: Estimate | None,
        best: float,
        numbers: tuple[int, ...] = (),
    ) -> TextLine:
        if rate is None:
            return TextLine(label, (), None, numbers, f"{hover}: not measured")
        scale = self._unit_scale_of_quantity[_DRIVES_LABEL]
        value = scale.text(rate.median)
        text = f"predicted, {value}, {rate.interval_text(scale.number)}"
        if rate.n:
            text = text_with_interval(BANDWIDTH, rate)
        share = rate.median / best
        return TextLine(label, (value,), share, numbers, f"{hover}: {text}", not rate.n)

    @cached_property
    def _rates_of_drives(self) -> Mapping[str, Estimate]:
        """Return nodes of drives -> rate at which the fastest of these nodes reads all the drives.

        A measured rate is preferred to a predicted rate. Of several groups of comparable rows, the
        group with the most pairs of reader and drives counts, since the rate of the fastest group
        would be too high by chance.
        """
        cells = _summarised_cells(
            _rows_of_own_drives(self._measurements.single_load_rows().valid_rows())
        )
        if self._left_out is not None:
            predicted = _rows_of_own_drives(Measurements(self._left_out.predictions)).rows
            cells += predicted.assign(median=predicted["value"], n=0, pairs=0).to_dict("records")  # type: ignore[arg-type]
        found = {}
        rank = itemgetter("drives", "pairs", "median")
        for cell in sorted(cells, key=rank):
            found[str(cell["target_nodes"])] = Estimate.of_cell(cell)
        return found

    def _gpu_lines(self, gpu: Gpu) -> Iterator[TextLine]:
        """Yield lines on a GPU: its memory bandwidth, and rates of copies to and from the GPU."""
        name = printable_short_line(gpu.model or gpu.name or "GPU")
        kernels = {None: "memory bandwidth", "to_device": "copies to it", "from_device": "from it"}
        rates = {kernel: self._rates_of_gpus.get((gpu.pci, kernel)) for kernel in kernels}
        texts = {
            kernel: (scale.text(rate.median), f"{kernels[kernel]}: {rate.text(scale)}")
            for kernel, rate in rates.items()
            if rate and (scale := choose_scale(BANDWIDTH, [rate.median]))
        }
        own = [text for kernel, text in texts.items() if kernel is None]
        hover = [name, *(text for _, text in own)]
        yield TextLine(name, tuple(value for value, _ in own), None, (), "; ".join(hover))
        copies = [text for kernel, text in texts.items() if kernel is not None]
        if copies:
            hover = [name, *(text for _, text in copies)]
            values = (" / ".join(value for value, _ in copies),)
            yield TextLine("copies to / from it", values, None, (), "; ".join(hover))

    @cached_property
    def _rates_of_gpus(self) -> Mapping[tuple[str | None, str | None], Estimate]:
        """Return (slot, kernel) -> best rate of a GPU alone; kernel None is the GPU's memory."""
        slots = {each.name: each.pci for each in self.topology.opencl_devices if each.pci}
        rows = self._measurements.single_load_rows().valid_rows()
        rows = rows.where(metric=BANDWIDTH, target_kind="opencl")
        found: dict[tuple[str | None, str | None], Estimate] = {}
        for cell in sorted(_summarised_cells(rows), key=lambda cell: float(cell["median"])):
            kernel = cell["kernel"] if isinstance(cell["kernel"], str) else None
            found[slots.get(str(cell["target"])), kernel] = Estimate.of_cell(cell)
        return found

    @cached_property
    def _memory_matrices(self) -> Mapping[str, MainMatrix]:
        """Return quantity -> its matrix of memory, for each measured quantity."""
        found = {name: self._matrices.get(name) for name in (MEMORY_BANDWIDTH, MEMORY_LATENCY)}
        return {name: matrix for name, matrix in found.items() if matrix is not None}

    @cached_property
    def _unit_scale_of_quantity(self) -> Mapping[str, UnitScale]:
        """Return quantity -> unit with prefix that the boxes of all nodes use."""
        scales = {
            quantity: choose_scale(matrix.metric, [cell.estimate.median for cell in matrix.cells])
            for quantity, matrix in self._memory_matrices.items()
        }
        rates = [each.median for each in self._rates_of_drives.values()]
        return {**scales, _DRIVES_LABEL: choose_scale(BANDWIDTH, rates)}

    def rows_by_distance(self, *, with_ends: bool) -> list[tuple[str, ...]]:
        """Return a table of texts: bandwidth and latency of memory, with a row for each distance.

        Each text has the median over all nodes. `with_ends` adds the smallest and the largest
        value. The first row has the headings. For a machine with one node, the table is empty.
        """
        rows = []
        for relation, label in _RELATION_TEXTS.items():
            texts = [
                _median_and_range_text(
                    matrix.metric,
                    [each.estimate.median for each in matrix.cells if each.relation == relation],
                    with_ends,
                )
                for matrix in self._memory_matrices.values()
            ]
            if any(texts):
                rows.append((label, *texts))
        return (
            [("from a node to the memory of", *self._memory_matrices), *rows]
            if len(rows) > 1
            else []
        )


def _summarised_cells(rows: Measurements) -> list[dict[str, Any]]:
    """Return a mapping for each cell of `rows`, see `summarise_cells`.

    The value `pairs` of a cell is the number of pairs of initiator and target in the cell's group
    of comparable rows. Cells of groups with more pairs come later. So if several groups have the
    same pair, the last cell of the pair is from the group with the most pairs.
    """
    found = []
    for _, part in rows.comparable_slices():
        pairs = part.initiator_target_pair_count
        cells = summarise_cells(part).to_dict("records")
        found += [{**{str(k): v for k, v in cell.items()}, "pairs": pairs} for cell in cells]
    return sorted(found, key=itemgetter("pairs"))


def _rows_of_own_drives(rows: Measurements) -> Measurements:
    """Return the rows in which one node reads its drives, with or without drives of other nodes."""
    rows = rows.where(metric=BANDWIDTH, initiator_kind="node")
    rows = rows.select(rows.rows["drives"].fillna(0) > 0)
    nodes = rows.rows[["initiator_nodes", "target_nodes"]].astype(str)
    own = [
        reader.isdigit() and owners[:1].isdigit() and int(reader) in parse_cpu_list(owners)
        for reader, owners in nodes.itertuples(index=False)
    ]
    return rows.select(np.array(own, dtype=bool))


def text_with_interval(metric: str, estimate: Estimate) -> str:
    """Return a value as text, such as "18.3 GB/s, 95 % interval 17.9 to 18.8, n = 3"."""
    return estimate.text(choose_scale(metric, [estimate.median]))


def _median_and_range_text(metric: str, values: Sequence[float], with_ends: bool) -> str:
    """Return the median of values as text; `with_ends` adds the smallest and the largest value."""
    if not values:
        return ""
    scale = choose_scale(metric, values)
    if len(values) == 1 or not with_ends:
        return scale.text(median(values))
    ends = f"{scale.number(min(values))} to {scale.number(max(values))}"
    return f"{scale.text(median(values))} ({ends})"
