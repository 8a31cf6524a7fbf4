"""Draw the machine: packages, nodes, memory and drives in their places, with measured medians.

The drawing is the first thing in a report. Places are computed here in pixels, and
``templates/figures/machine.svg.j2`` writes them. What a finding names is red and has the number of
the finding; what was not measured is grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.figures.machine_parts import Line, MachineParts, text_with_interval
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.store.read_node_matrix_csv import BANDWIDTH
from chaosity.text_templates import TEMPLATES, make_environment
from chaosity.topology.topology_model import Node, Topology
from chaosity.units import format_count, format_quantity

# Width of the text column of a report on a laptop of 1280 pixels.
WIDTH = 952.0
# A node needs this width for "memory 38.1 GB/s 92.4 ns" in 12 pixels.
_NODE_WIDTH = 184.0
# A wider node would be a long empty bar.
_WIDEST_NODE = 300.0
_GAP, _PADDING = 10.0, 12.0
_TITLE_HEIGHT, LINE_HEIGHT = 26.0, 19.0
# Room between two packages for the arrows of their link and their values.
_LINK_WIDTH = 128.0
_ARROW_HEIGHT = 44.0
# Packages beside each other; four of them are two rows.
_PACKAGES_IN_ROW = 3
_COLUMNS = (12.0, 250.0, 480.0)  # left ends of the columns of the table


@dataclass(frozen=True)
class Box:
    """The box of a package or a node: its place in pixels, its texts, and the boxes in it."""

    x: float
    y: float
    width: float
    height: float
    name: str  # name of the component, such as node3
    title: str
    detail: str
    hover: str
    findings: tuple[int, ...] = ()  # numbers of the findings that name it
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
    height: float = 0.0
    packages: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    table: list[tuple[str, ...]] = field(default_factory=list)
    table_y: float = 0.0


def draw_machine(host: MeasuredHost, findings: Sequence[Anomaly]) -> str:
    """Return the machine of a host as an SVG document.

    Args:
        host: its measurements and its topology.
        findings: what is wrong, in the order of their numbers in the report. A number is a link to
            ``#finding-N`` of the page around the drawing.
    """
    drawing = _MachineDrawing(MachineParts(host, findings)).draw()
    environment = make_environment(TEMPLATES / "figures", autoescape=True)
    return environment.get_template("machine.svg.j2").render(
        drawing=drawing, width=WIDTH, line_height=LINE_HEIGHT, columns=_COLUMNS
    )


class _MachineDrawing:
    """The places of the parts, see `draw_machine`."""

    def __init__(self, parts: MachineParts) -> None:
        self.parts, self.topology = parts, parts.topology
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
        if len(groups) == 2 and None not in groups:
            self._link_packages([package for package in groups if package is not None])
        self._draw_paths()
        ends = [arrow.start[1] + _ARROW_HEIGHT / 2.0 for arrow in self.drawing.arrows]
        self._add_table(max(y, *ends, 0.0) + _GAP)
        return self.drawing

    def _package(
        self, package: int | None, nodes: Sequence[Node], x: float, y: float, width: float
    ) -> Box:
        """Return the box of a package with its nodes; it gets at most the given width."""
        inside = width - 2.0 * _PADDING
        most = max(1, int((inside + _GAP) // (_NODE_WIDTH + _GAP)))
        rows = math.ceil(len(nodes) / most)
        in_row = math.ceil(len(nodes) / rows)
        node_width = min(_WIDEST_NODE, (inside - _GAP * (in_row - 1)) / in_row)
        lines = [tuple(self.parts.lines_of_node(node)) for node in nodes]
        height = _TITLE_HEIGHT + LINE_HEIGHT * max(map(len, lines)) + 6.0
        boxes = tuple(
            self._node(
                node,
                own,
                x + _PADDING + (place % in_row) * (node_width + _GAP),
                y + _TITLE_HEIGHT + 4.0 + (place // in_row) * (height + _GAP),
                node_width,
                height,
            )
            for place, (node, own) in enumerate(zip(nodes, lines, strict=True))
        )
        if package is not None:
            name, title = package_name(package), f"package {package}"
        else:
            name = ""
            title = "machine" if any(n.initiator for n in nodes) else "memory of no package"
        rate = self.parts.rate_of_reads(package, package)
        detail = f"all its memory {format_quantity(BANDWIDTH, rate.median)}" if rate else ""
        return Box(
            x=x,
            y=y,
            width=2.0 * _PADDING + in_row * (node_width + _GAP) - _GAP,
            height=_TITLE_HEIGHT + 4.0 + rows * (height + _GAP) - _GAP + _PADDING,
            name=name,
            title=title,
            detail=detail,
            hover=f"{title}: {detail or 'not measured as a whole'}",
            findings=self.parts.findings.get(name, ()),
            inner=boxes,
        )

    def _node(
        self, node: Node, lines: tuple[Line, ...], x: float, y: float, width: float, height: float
    ) -> Box:
        """Return the box of a node with its lines."""
        name, title = node_name(node.os_index), f"node {node.os_index}"
        detail = self.parts.detail_of_node(node)
        findings = self.parts.findings.get(name, ())
        hover = f"{title}: {detail}"
        return Box(x, y, width, height, name, title, detail, hover, findings, lines)

    def _link_packages(self, packages: Sequence[int]) -> None:
        """Draw what passes between two packages: memory in both directions, and slow drives.

        An arrow has the direction of the data.
        """
        first, second = self.drawing.packages
        ends = (first.x + first.width + 8.0, second.x - 8.0)
        # Whether the data flow to the left, text, hover text, numbers of findings.
        arrows: list[tuple[bool, str, str, tuple[int, ...]]] = []
        names = (first.name, second.name)
        for to_left in (False, True):
            owner, reader = packages[::-1] if to_left else packages
            rate = self.parts.rate_of_reads(reader, owner)
            text = "not measured" if rate is None else format_quantity(BANDWIDTH, rate.median)
            detail = "not measured" if rate is None else text_with_interval(BANDWIDTH, rate)
            hover = f"package {reader} reads the memory of package {owner}: {detail}"
            way = initiator_to_target_name(*(names[::-1] if to_left else names))
            arrows.append((to_left, text, hover, self.parts.findings.get(way, ())))
        for number, finding in self.parts.paths_to_drives.items():
            if finding.initiator in names:
                text = f"drives {format_quantity(finding.metric, finding.observed)}"
                to_left = finding.initiator == first.name
                arrows.append((to_left, text, finding.sentence, (number,)))
        y = first.y + max(0.0, (first.height - _ARROW_HEIGHT * len(arrows)) / 2.0) + 24.0
        for row, (to_left, text, hover, numbers) in enumerate(arrows):
            start, end = ((x, y + _ARROW_HEIGHT * row) for x in (ends[::-1] if to_left else ends))
            self.drawing.arrows.append(Arrow(start, end, text, hover, numbers))

    def _draw_paths(self) -> None:
        """Draw an arrow for each path between nodes or packages that a finding names."""
        boxes = [box for each in self.drawing.packages for box in (each, *each.inner)]
        places = {box.name: box for box in boxes}
        drawn = {arrow.findings for arrow in self.drawing.arrows}
        for name, numbers in self.parts.findings.items():
            ends = [places[end].middle for end in name.split("->") if end in places]
            if len(ends) == 2 and numbers not in drawn:
                self.drawing.arrows.append(Arrow(ends[0], ends[1], "", name, numbers))

    def _add_table(self, y: float) -> None:
        """Add the values by distance below the boxes, and what has no place in them."""
        table = self.parts.rows_by_distance()
        if not self.topology.nodes:
            table.append(("The topology of this host is not known.",))
        if unplaced := sum(drive.node is None for drive in self.topology.drives):
            table.append((f"{format_count(unplaced, 'drive')} of unknown node",))
        self.drawing.table, self.drawing.table_y = table, y + 8.0
        self.drawing.height = y + LINE_HEIGHT * len(table) + 4.0


def _nodes_by_package(topology: Topology) -> dict[int | None, list[Node]]:
    """Return package -> its nodes; nodes that belong to no single package are in None."""
    found: dict[int | None, list[Node]] = {}
    for node in topology.nodes:
        if node.initiator or node.target:
            found.setdefault(node.package, []).append(node)
    return dict(sorted(found.items(), key=lambda item: (item[0] is None, item[0] or 0)))


def _counted(topology: Topology) -> str:
    """Return the numbers of packages, nodes and drives as a text."""
    parts = ((topology.packages, "package"), (topology.nodes, "node"), (topology.drives, "drive"))
    return ", ".join(format_count(len(items), word) for items, word in parts if items)
