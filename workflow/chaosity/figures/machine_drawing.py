"""Draw the machine: packages, nodes, memory and drives in their places, with measured medians.

The drawing is the first thing in a report. It is computed here in pixels, and
``templates/figures/machine.svg.j2`` writes it. What a finding names is red and has the number of
the finding; what was not measured is grey.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.components.make_component_documents import drive_component_name
from chaosity.errors import printable_line
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import (
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    package_bandwidths,
    read_main_matrices,
)
from chaosity.place_names import node_name, parse_place_name
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.read_node_matrix_csv import BANDWIDTH
from chaosity.text_templates import TEMPLATES, make_environment
from chaosity.topology.topology_model import (
    OTHER_PACKAGE,
    SAME_NODE,
    SAME_PACKAGE,
    UNKNOWN,
    Node,
    Topology,
)
from chaosity.units import UnitScale, choose_scale, format_binary_bytes, format_count

# Width of the text column of a report on a laptop of 1280 pixels.
WIDTH = 952.0
# A node needs this width for "memory 38.1 GB/s 92.4 ns" in 12 pixels.
_NODE_WIDTH = 184.0
# A wider node would be a long empty bar.
_WIDEST_NODE = 300.0
_GAP, _PADDING = 10.0, 12.0
_TITLE_HEIGHT, _LINE_HEIGHT = 26.0, 19.0
# Room between two packages for the arrows of their link and their values.
_LINK_WIDTH = 128.0
_ARROW_HEIGHT = 44.0
# Packages beside each other; four of them are two rows.
_PACKAGES_IN_ROW = 3
# Kernel of the link's values: reads alone do not share the link with the other direction.
_LINK_KERNEL = "read"
_RELATIONS = {
    SAME_NODE: "own node",
    SAME_PACKAGE: "other node of the package",
    OTHER_PACKAGE: "node of another package",
    UNKNOWN: "other node",
}


@dataclass(frozen=True)
class Line:
    """A line in a box: what it is, its values, and its length as a share of the best such value."""

    label: str
    values: tuple[str, ...]  # empty if nothing was measured
    share: float | None = None  # None without a bar
    findings: tuple[int, ...] = ()  # numbers of the findings that name this part
    hover: str = ""


@dataclass(frozen=True)
class Box:
    """A package or a node: place in pixels, title, lines, and the boxes in it."""

    x: float
    y: float
    width: float
    height: float
    title: str
    detail: str
    hover: str
    findings: tuple[int, ...] = ()
    lines: tuple[Line, ...] = ()
    inner: tuple[Box, ...] = ()

    @property
    def middle(self) -> tuple[float, float]:
        """Return the centre of the box."""
        return self.x + self.width / 2.0, self.y + self.height / 2.0


@dataclass(frozen=True)
class Arrow:
    """An arrow between two points in pixels, with a text above its middle.

    A path between nodes has no text, since what crosses it is in the finding.
    """

    start: tuple[float, float]
    end: tuple[float, float]
    text: str
    hover: str
    findings: tuple[int, ...] = ()


@dataclass
class _Drawing:
    """The parts of a drawing, for the template."""

    title: str
    width: float = WIDTH
    height: float = 0.0
    packages: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    table: list[tuple[str, ...]] = field(default_factory=list)
    columns: tuple[float, ...] = (12.0, 250.0, 480.0)  # x of the table's columns
    table_y: float = 0.0


def draw_machine(host: MeasuredHost, findings: Sequence[Anomaly]) -> str:
    """Return the machine of a host as an SVG document.

    Args:
        host: its measurements and its topology.
        findings: what is wrong, in the order of their numbers in the report. A number is a link to
            ``#finding-N`` of the page around the drawing.
    """
    drawing = _MachineDrawing(host, findings).draw()
    template = make_environment(TEMPLATES / "figures", autoescape=True).get_template(
        "machine.svg.j2"
    )
    return template.render(drawing=drawing)


class _MachineDrawing:
    """The computation of a drawing, see `draw_machine`."""

    def __init__(self, host: MeasuredHost, findings: Sequence[Anomaly]) -> None:
        self.topology, self.measurements = host.topology, host.measurements
        self.matrices = read_main_matrices(host)
        self.packages = package_bandwidths(host)
        # Name of a component, or of the drives of a node -> numbers of the findings that name it.
        self.numbers: dict[str, tuple[int, ...]] = {}
        self.paths_to_drives: dict[int, Anomaly] = {}
        for number, finding in enumerate(findings, start=1):
            of_drives = any(_is_of_drives(target) for _, target in finding.cells)
            for component in finding.components:
                name = component.removeprefix("link ")
                if of_drives and "->" in name:
                    self.paths_to_drives[number] = finding
                else:
                    name = f"drives of {name}" if of_drives and name.startswith("node") else name
                    self.numbers[name] = (*self.numbers.get(name, ()), number)
        self.drawing = _Drawing(f"Machine with {_counted(self.topology)}")

    def draw(self) -> _Drawing:
        """Return all parts of the drawing."""
        groups = _nodes_by_package(self.topology)
        in_row = max(1, min(len(groups), _PACKAGES_IN_ROW if len(groups) != 4 else 2))
        between = _LINK_WIDTH if len(groups) == 2 else _GAP
        width = (WIDTH - between * (in_row - 1)) / in_row
        y = 0.0
        for start in range(0, len(groups), in_row):
            row = list(groups.items())[start : start + in_row]
            boxes = [
                self._package(package, nodes, place * (width + between), y, width)
                for place, (package, nodes) in enumerate(row)
            ]
            self.drawing.packages += boxes
            y += max(box.height for box in boxes) + _GAP
        if len(groups) == 2:
            self._link_packages(list(groups))
        self._draw_paths()
        lowest = max(
            (arrow.start[1] + _ARROW_HEIGHT / 2.0 for arrow in self.drawing.arrows), default=y
        )
        self._add_table(max(y, lowest) + _GAP)
        return self.drawing

    def _package(
        self, package: int | None, nodes: Sequence[Node], x: float, y: float, width: float
    ) -> Box:
        """Return the box of a package with its nodes, at a place."""
        inside = width - 2.0 * _PADDING
        most = max(1, int((inside + _GAP) // (_NODE_WIDTH + _GAP)))
        rows = math.ceil(len(nodes) / most)
        in_row = math.ceil(len(nodes) / rows)
        node_width = min(_WIDEST_NODE, (inside - _GAP * (in_row - 1)) / in_row)
        width = 2.0 * _PADDING + in_row * (node_width + _GAP) - _GAP
        lines = [self._lines(node) for node in nodes]
        height = _TITLE_HEIGHT + _LINE_HEIGHT * max(map(len, lines)) + 6.0
        boxes = tuple(
            Box(
                x=x + _PADDING + (place % in_row) * (node_width + _GAP),
                y=y + _TITLE_HEIGHT + 4.0 + (place // in_row) * (height + _GAP),
                width=node_width,
                height=height,
                title=f"node {node.os_index}",
                detail=self._node_detail(node),
                hover=f"node {node.os_index}: {self._node_detail(node)}",
                findings=self.numbers.get(node_name(node.os_index), ()),
                lines=tuple(own),
            )
            for place, (node, own) in enumerate(zip(nodes, lines, strict=True))
        )
        title = "memory of no package" if package is None else f"package {package}"
        if package is None and any(node.initiator for node in nodes):
            title = "machine"
        total = self._package_text(package)
        return Box(
            x=x,
            y=y,
            width=width,
            height=_TITLE_HEIGHT + 4.0 + rows * (height + _GAP) - _GAP + _PADDING,
            title=title,
            detail=total,
            hover=f"{title}: {total or 'not measured as a whole'}",
            findings=self.numbers.get(f"package{package}", ()),
            inner=boxes,
        )

    def _package_text(self, package: int | None) -> str:
        """Return what all nodes of a package read from their own memory together."""
        nodes = [n.os_index for n in self.topology.memory_nodes if n.package == package]
        for (initiator, target), kernels in self.packages.items():
            parsed = parse_place_name(target)
            own = parsed is not None and set(parsed.indices) == set(nodes)
            if initiator == f"package{package}" and own and _LINK_KERNEL in kernels:
                return f"all its memory {_text(BANDWIDTH, kernels[_LINK_KERNEL])}"
        return ""

    def _node_detail(self, node: Node) -> str:
        cores = Counter(n for core in self.topology.cores for n in core.nodes)[node.os_index]
        parts = [format_count(cores, "core")] * node.initiator
        parts += [node.kind] * (node.kind not in ("DRAM", "none", UNKNOWN))
        parts += [format_binary_bytes(node.size_bytes)] if node.size_bytes else []
        return ", ".join(parts if node.initiator or len(parts) > 1 else ["no cores", *parts])

    def _lines(self, node: Node) -> list[Line]:
        """Return the lines of a node: its memory, its drives, its GPUs."""
        found = [self._memory_line(node)] if node.target else []
        drives = [drive for drive in self.topology.drives if drive.node == node.os_index]
        of_drives = self.drives_of_nodes.get(node.os_index)
        if drives or of_drives:
            found.append(self._drives_line(node, len(drives), of_drives))
        gpus = [gpu for gpu in self.topology.compute_gpus if gpu.node == node.os_index]
        return found + [Line(printable_line(gpu.model or gpu.name or "GPU"), ("",)) for gpu in gpus]

    def _memory_line(self, node: Node) -> Line:
        """Return bandwidth and latency of a node's memory, from the node, or the nearest node."""
        name, values, shares = node_name(node.os_index), [], []
        hover = [f"memory of node {node.os_index}"]
        for quantity in (MEMORY_BANDWIDTH, MEMORY_LATENCY):
            matrix = self.matrices.get(quantity)
            cells = [cell for cell in matrix.cells if cell.target == name] if matrix else []
            if not matrix or not cells:
                continue
            cell = max(
                cells, key=lambda each: (each.node == node.os_index, matrix.share_of_best(each))
            )
            values.append(self._scales[quantity].text(cell.estimate.median))
            shares.append(matrix.share_of_best(cell))
            hover.append(
                f"{quantity} from node {cell.node} ({matrix.source}): "
                f"{_with_interval(matrix.metric, cell.estimate)}"
            )
        return Line("memory", tuple(values), shares[0] if shares else None, (), "; ".join(hover))

    def _drives_line(self, node: Node, count: int, rate: Estimate | None) -> Line:
        """Return the rate of all drives of a node, read by the node."""
        numbers = {
            number
            for drive in self.topology.drives
            if drive.node == node.os_index
            for number in self.numbers.get(drive_component_name(drive), ())
        } | {*self.numbers.get(f"drives of {node_name(node.os_index)}", ())}
        label = format_count(count, "drive") if count else "file"
        hover = f"{label} of node {node.os_index}, read by this node"
        if rate is None:
            return Line(label, (), None, tuple(sorted(numbers)), f"{hover}: not measured")
        best = max(each.median for each in self.drives_of_nodes.values())
        return Line(
            label,
            (self._scales["drives"].text(rate.median),),
            rate.median / best,
            tuple(sorted(numbers)),
            f"{hover}: {_with_interval(BANDWIDTH, rate)}",
        )

    @cached_property
    def drives_of_nodes(self) -> Mapping[int, Estimate]:
        """Return node -> rate at which it reads its own drives, with as many drives as measured."""
        rows = self.measurements.single_load_rows().where(metric=BANDWIDTH, initiator_kind="node")
        own = rows.rows["initiator_nodes"] == rows.rows["target_nodes"]
        rows = rows.select(own & (rows.rows["drives"] > 0)).valid_rows()
        if not len(rows):
            return {}
        cells = summarise_cells(rows).sort_values("drives", kind="stable")
        nodes = cells["initiator_nodes"].astype(str)
        return {
            int(node): Estimate.of_cell(cell)
            for node, cell in zip(nodes, cells.to_dict("records"), strict=True)
            if node.isdigit()
        }

    @cached_property
    def _scales(self) -> Mapping[str, UnitScale]:
        """Return quantity -> its scale in all boxes."""
        scales = {
            quantity: choose_scale(each.metric, [cell.estimate.median for cell in each.cells])
            for quantity, each in self.matrices.items()
        }
        rates = [each.median for each in self.drives_of_nodes.values()]
        return {**scales, "drives": choose_scale(BANDWIDTH, rates)}

    def _link_packages(self, packages: Sequence[int | None]) -> None:
        """Draw what passes between two packages: memory in both directions, and slow drives.

        An arrow has the direction of the data.
        """
        first, second = self.drawing.packages
        ends = (first.x + first.width + 8.0, second.x - 8.0)
        arrows: list[tuple[int, str, str, tuple[int, ...]]] = []
        for place, (owner, reader) in enumerate((packages, packages[::-1])):
            rate = self._read_over_link(reader, owner)
            text = "not measured" if rate is None else _text(BANDWIDTH, rate)
            what = f"package {reader} reads the memory of package {owner}"
            detail = "not measured" if rate is None else _with_interval(BANDWIDTH, rate)
            numbers = self.numbers.get(f"package{owner}->package{reader}", ())
            arrows.append((place, text, f"{what}: {detail}", numbers))
        for number, finding in self.paths_to_drives.items():
            if finding.initiator in [f"package{package}" for package in packages]:
                value = choose_scale(finding.metric, [finding.observed]).text(finding.observed)
                place = int(finding.initiator == f"package{packages[0]}")
                arrows.append((place, f"drives {value}", finding.sentence, (number,)))
        y = first.y + max(0.0, (first.height - _ARROW_HEIGHT * len(arrows)) / 2.0) + 24.0
        for row, (place, text, hover, numbers) in enumerate(arrows):
            start, end = ends if place == 0 else ends[::-1]
            height = y + _ARROW_HEIGHT * row
            self.drawing.arrows.append(Arrow((start, height), (end, height), text, hover, numbers))

    def _read_over_link(self, reader: int | None, owner: int | None) -> Estimate | None:
        nodes = {n.os_index for n in self.topology.memory_nodes if n.package == owner}
        for (initiator, target), kernels in self.packages.items():
            parsed = parse_place_name(target)
            if initiator == f"package{reader}" and parsed and set(parsed.indices) == nodes:
                return kernels.get(_LINK_KERNEL)
        return None

    def _draw_paths(self) -> None:
        """Draw an arrow for each path between nodes or packages that a finding names."""
        places = {
            node_name(int(box.title.split()[1])): box
            for each in self.drawing.packages
            for box in each.inner
        }
        places |= {each.title.replace(" ", ""): each for each in self.drawing.packages}
        known = {arrow.findings for arrow in self.drawing.arrows}
        for name, numbers in self.numbers.items():
            ends = [places[end] for end in name.split("->") if end in places]
            if len(ends) == 2 and numbers not in known:
                self.drawing.arrows.append(Arrow(ends[0].middle, ends[1].middle, "", name, numbers))

    def _add_table(self, y: float) -> None:
        """Add what a node gets from memory by its distance, with the range of all nodes."""
        rows: list[tuple[str, ...]] = []
        for relation, label in _RELATIONS.items():
            texts = [
                _range_text(
                    matrix.metric,
                    [c.estimate.median for c in matrix.cells if c.relation == relation],
                )
                for matrix in (
                    self.matrices.get(MEMORY_BANDWIDTH),
                    self.matrices.get(MEMORY_LATENCY),
                )
                if matrix is not None
            ]
            if any(texts):
                rows.append((label, *texts))
        if len(rows) > 1:  # a single node has its values in its box
            heads = [name for name in (MEMORY_BANDWIDTH, MEMORY_LATENCY) if name in self.matrices]
            self.drawing.table = [("from a node to the memory of", *heads), *rows]
        if not self.topology.nodes:
            self.drawing.table.append(("The topology of this host is not known.",))
        unplaced = [drive for drive in self.topology.drives if drive.node is None]
        if unplaced:
            self.drawing.table.append((f"{format_count(len(unplaced), 'drive')} of unknown node",))
        self.drawing.table_y = y + 8.0
        self.drawing.height = y + _LINE_HEIGHT * len(self.drawing.table) + 4.0


def _is_of_drives(target: object) -> bool:
    """Return whether a target is a drive, several drives, or a file in place of one."""
    place = parse_place_name(str(target))
    return place is not None and place.kind.endswith(("drive", "drives", "disk", "file"))


def _nodes_by_package(topology: Topology) -> dict[int | None, list[Node]]:
    """Return package -> its nodes; nodes that span packages are in None, the machine."""
    found: dict[int | None, list[Node]] = {}
    for node in topology.nodes:
        if node.initiator or node.target:
            found.setdefault(node.package, []).append(node)
    return dict(sorted(found.items(), key=lambda item: (item[0] is None, item[0] or 0)))


def _counted(topology: Topology) -> str:
    parts = ((topology.packages, "package"), (topology.nodes, "node"), (topology.drives, "drive"))
    return ", ".join(format_count(len(items), word) for items, word in parts if items)


def _text(metric: str, estimate: Estimate) -> str:
    return choose_scale(metric, [estimate.median]).text(estimate.median)


def _with_interval(metric: str, estimate: Estimate) -> str:
    scale = choose_scale(metric, [estimate.median])
    return f"{scale.text(estimate.median)}, {estimate.interval_and_n_text(scale.number)}"


def _range_text(metric: str, values: Iterable[float]) -> str:
    """Return the median of values, with the smallest and largest; empty without values."""
    found = sorted(values)
    if not found:
        return ""
    scale, middle = choose_scale(metric, found), float(pd.Series(found).median())
    if len(found) == 1:
        return scale.text(middle)
    return f"{scale.text(middle)} ({scale.number(found[0])} to {scale.number(found[-1])})"
