"""Draw the machine: packages, nodes, memory and drives in their places, with measured medians.

The drawing is the first thing in a report. Places are computed here in pixels, and
``templates/figures/machine.svg.j2`` writes them. What a finding names is red and has the number of
the finding; what was not measured is grey; what is predicted is hatched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_parts import Line, MachineParts, text_with_interval
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.store.read_node_matrix_csv import BANDWIDTH
from chaosity.text_templates import TEMPLATES, make_environment
from chaosity.topology.topology_model import Node, Topology
from chaosity.units import format_count, format_quantity

# Width of the text column of a report on a laptop of 1280 pixels.
WIDTH = 952.0
# Two machines beside each other, and the room between them.
_NARROW, _BETWEEN_MACHINES = 464.0, 24.0
# A node needs this width for "memory 38.1 GB/s 92.4 ns" in 12 pixels.
_NODE_WIDTH = 184.0
# A wider node would be a long empty bar.
_WIDEST_NODE = 300.0
_GAP, _PADDING = 10.0, 12.0
_TITLE_HEIGHT, LINE_HEIGHT = 26.0, 19.0
# Room between two packages for the arrows of their link and their values.
_LINK_WIDTH, _LINK_HEIGHT = 128.0, 76.0
_ARROW_HEIGHT, _ARROW_WIDTH = 44.0, 150.0
# More packages have a table of what each reads from each, since their arrows would cross.
_MOST_LINKED = 4
_NOT_MEASURED = "not measured"


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
class Flow:
    """What flows between two packages, in the direction of the data."""

    source: Box
    sink: Box
    text: str
    hover: str
    findings: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """The arrow of a flow between two points in pixels, with its text and badges beside it."""

    flow: Flow
    start: tuple[float, float]
    end: tuple[float, float]
    text_at: tuple[float, float]
    badge_at: tuple[float, float]
    anchor: str = "middle"  # part of the text at `text_at`, as in SVG


@dataclass(frozen=True)
class TableRow:
    """A row of texts below the boxes; `columns` are the left ends of its texts."""

    columns: tuple[float, ...]
    texts: tuple[str, ...]
    is_head: bool = False
    findings: tuple[int, ...] = ()


@dataclass
class Machine:
    """The parts of the drawing of one machine, for the template."""

    title: str
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0
    page: str = ""  # the report to whose findings the badges lead; "" for the page around it
    packages: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    table: list[TableRow] = field(default_factory=list)
    table_y: float = 0.0


def draw_machine(host: MeasuredHost, findings: Sequence[Anomaly]) -> str:
    """Return the machine of a host as an SVG document.

    Args:
        host: its measurements and its topology.
        findings: what is wrong, in the order of their numbers in the report. A number is a link to
            ``#finding-N`` of the page around the drawing.
    """
    machine = _MachineDrawing(MachineParts(host, findings), WIDTH).draw()
    return _render([machine], f"Machine with {_counted(host.topology)}", machine.height)


def draw_machines(machines: Sequence[tuple[str, str, MachineParts]]) -> str:
    """Return several machines beside each other as an SVG document, two in a row.

    Args:
        machines: title, report (its findings are the links of the numbers) and parts of each
            machine, such as the configurations of a host.
    """
    drawn, y = [], 0.0
    for start in range(0, len(machines), 2):
        row = [
            (title, page, _MachineDrawing(parts, _NARROW).draw())
            for title, page, parts in machines[start : start + 2]
        ]
        for column, (title, page, machine) in enumerate(row):
            machine.title, machine.page = title, page
            machine.x, machine.y = column * (_NARROW + _BETWEEN_MACHINES), y + _TITLE_HEIGHT
        drawn += [machine for _, _, machine in row]
        y += _TITLE_HEIGHT + max(machine.height for _, _, machine in row) + _GAP
    return _render(drawn, f"Machines: {', '.join(title for title, _, _ in machines)}", y)


def _render(machines: Sequence[Machine], title: str, height: float) -> str:
    template = make_environment(TEMPLATES / "figures", autoescape=True).get_template(
        "machine.svg.j2"
    )
    return template.render(
        machines=machines, title=title, width=WIDTH, height=height, line_height=LINE_HEIGHT
    )


class _MachineDrawing:
    """The places of the parts of one machine, see `draw_machine`."""

    def __init__(self, parts: MachineParts, width: float) -> None:
        self.parts, self.topology, self.width = parts, parts.topology, width
        self.drawing = Machine("")

    def draw(self) -> Machine:
        """Return all parts of the drawing."""
        groups = nodes_by_package(self.topology)
        packages = [package for package in groups if package is not None]
        in_row = self._packages_in_row(len(packages))
        linked = 1 < len(packages) <= (_MOST_LINKED if self.width == WIDTH else 2)
        rows = [packages[start : start + in_row] for start in range(0, len(packages), in_row)]
        between = _LINK_WIDTH if linked and in_row > 1 else _GAP
        below = _LINK_HEIGHT if linked and len(rows) > 1 else _GAP
        width = (self.width - between * (in_row - 1)) / in_row
        y, drawn = 0.0, []
        for number, row in enumerate(rows):
            drawn.append(
                [
                    self._package(package, groups[package], place * (width + between), y, width)
                    for place, package in enumerate(row)
                ]
            )
            y += max(box.height for box in drawn[-1]) + (below if number < len(rows) - 1 else _GAP)
        self.drawing.packages += chain.from_iterable(drawn)
        if linked:
            for (above, first), (below_it, second) in combinations(_numbered(drawn), 2):
                self._link(first, second, above == below_it)
        if None in groups:
            self.drawing.packages.append(self._package(None, groups[None], 0.0, y, self.width))
            y += self.drawing.packages[-1].height + _GAP
        ends = [arrow.badge_at[1] + 12.0 for arrow in self.drawing.arrows]
        self._add_table(max(y, *ends, 0.0) + _GAP, [] if linked else packages)
        return self.drawing

    def _packages_in_row(self, packages: int) -> int:
        if self.width < WIDTH:
            return 1 if packages < _MOST_LINKED else 2
        return max(1, min(packages, 2 if packages <= _MOST_LINKED else 3))

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
        name, title, rate = "", "memory of no package", None
        if package is not None:
            name, title = package_name(package), f"package {package}"
            several = len(nodes) > 1  # else the only node has the value
            rate = self.parts.rate_of_reads(package, package) if several else None
        elif any(node.initiator for node in nodes):
            title = "machine"
        words = "all its memory" if width > _WIDEST_NODE else "memory"
        detail = f"{words} {format_quantity(BANDWIDTH, rate[0].median)}" if rate else ""
        drives = self.parts.drives_line_of_package(nodes) if package is not None else None
        below = LINE_HEIGHT if drives else 0.0
        return Box(
            x=x,
            y=y,
            width=2.0 * _PADDING + in_row * (node_width + _GAP) - _GAP,
            height=_TITLE_HEIGHT + 4.0 + rows * (height + _GAP) - _GAP + _PADDING + below,
            name=name,
            title=title,
            detail=detail,
            hover=f"{title}: {detail or 'not measured as a whole'}",
            findings=self.parts.findings.get(name, ()),
            lines=(drives,) if drives else (),
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

    def _link(self, first: Box, second: Box, beside: bool) -> None:
        """Draw the flows between two packages: beside, above or across from each other."""
        flows = [*self._flows(first, second)]
        if beside:
            ends = (first.x + first.width + 8.0, second.x - 8.0)
            y = first.y + max(0.0, (first.height - _ARROW_HEIGHT * len(flows)) / 2.0) + 24.0
            for lane, flow in enumerate(flows):
                start, end = ends if flow.source is first else ends[::-1]
                at, middle = y + _ARROW_HEIGHT * lane, sum(ends) / 2.0
                self._arrow(flow, (start, at), (end, at), (middle, at - 8.0), (middle, at + 13.0))
        elif first.x == second.x:
            ends = (first.y + first.height + 5.0, second.y - 5.0)
            x = first.middle[0] - _ARROW_WIDTH * len(flows) / 2.0 + 32.0
            for lane, flow in enumerate(flows):
                start, end = ends if flow.source is first else ends[::-1]
                at, middle = max(14.0, x) + _ARROW_WIDTH * lane, sum(ends) / 2.0
                text_at = (at + 16.0, middle + 4.0)
                self._arrow(flow, (at, start), (at, end), text_at, (at, middle), "start")
        else:
            for flow in flows[:2]:  # the links; the centre has no room for the ways to drives
                self._half_diagonal(flow)

    def _half_diagonal(self, flow: Flow) -> None:
        """Draw the half of a diagonal that ends at its sink; the other half is the way back."""
        corners = []
        for box, other in ((flow.source, flow.sink), (flow.sink, flow.source)):
            x = box.x + box.width + 3.0 if box.x < other.x else box.x - 3.0
            y = box.y + box.height + 3.0 if box.y < other.y else box.y - 3.0
            corners.append((x, y))
        (from_x, from_y), (x, y) = corners
        centre = ((from_x + x) / 2.0, (from_y + y) / 2.0)
        badge_at = (centre[0] + 0.7 * (x - centre[0]), centre[1] + 0.7 * (y - centre[1]))
        # The texts stand to the left and to the right of the crossing.
        side = -1.0 if x < centre[0] else 1.0
        text_at = (centre[0] + 28.0 * side, centre[1] + (-5.0 if y < centre[1] else 14.0))
        self._arrow(flow, centre, (x, y), text_at, badge_at, "end" if side < 0.0 else "start")

    def _arrow(
        self,
        flow: Flow,
        start: tuple[float, float],
        end: tuple[float, float],
        text_at: tuple[float, float],
        badge_at: tuple[float, float],
        anchor: str = "middle",
    ) -> None:
        self.drawing.arrows.append(Arrow(flow, start, end, text_at, badge_at, anchor))

    def _flows(self, first: Box, second: Box) -> Iterator[Flow]:
        """Yield what passes between two packages: memory in both directions, and slow drives."""
        for source, sink in ((first, second), (second, first)):
            found = self.parts.rate_of_reads(_number(sink), _number(source))
            text, detail = _NOT_MEASURED, _NOT_MEASURED
            if found is not None:
                text = format_quantity(BANDWIDTH, found[0].median)
                detail = f"{text_with_interval(BANDWIDTH, found[0])} ({found[1]})"
            hover = f"{sink.title} reads the memory of {source.title}: {detail}"
            way = initiator_to_target_name(source.name, sink.name)
            yield Flow(source, sink, text, hover, self.parts.findings.get(way, ()))
        for number, finding in self.parts.paths_to_drives.items():
            for source, sink in ((first, second), (second, first)):
                if (finding.initiator, finding.target) == (sink.name, source.name):
                    text = f"drives {format_quantity(finding.metric, finding.observed)}"
                    yield Flow(source, sink, text, finding.sentence, (number,))

    def _add_table(self, y: float, packages: Sequence[int]) -> None:
        """Add the values by distance, those of packages without arrows, and what has no place."""
        table, is_wide = self.drawing.table, self.width == WIDTH
        columns = (12.0, 250.0, 480.0) if is_wide else (12.0, 200.0, 330.0)
        rows = self.parts.rows_by_distance(with_ends=is_wide)
        table += [TableRow(columns, texts, not number) for number, texts in enumerate(rows)]
        self._add_matrix(packages)
        if not self.topology.nodes:
            table.append(TableRow(columns, ("The topology of this host is not known.",)))
        topology = self.topology
        for parts, word in ((topology.drives, "drive"), (topology.compute_gpus, "GPU")):
            if unplaced := sum(part.node is None for part in parts):
                text = f"{format_count(unplaced, word)} of unknown node"
                table.append(TableRow(columns, (text,)))
        for number, finding in self.parts.numbered.items():
            if number not in self._shown_findings():
                table.append(TableRow((34.0,), (_short(finding, self.width),), False, (number,)))
        self.drawing.table_y = y + 8.0
        self.drawing.height = y + LINE_HEIGHT * len(table) + 4.0

    def _add_matrix(self, packages: Sequence[int]) -> None:
        """Add what each package reads from the memory of each, if their links have no arrows."""
        rates = {
            (reader, owner): self.parts.rate_of_reads(reader, owner)
            for reader in packages
            for owner in packages
        }
        if len(packages) < 2 or not any(rates.values()):
            return
        step = min(92.0, (self.width - 140.0) / len(packages))
        columns = (12.0, *(140.0 + step * place for place in range(len(packages))))
        heads = ("reads from package", *map(str, packages))
        self.drawing.table.append(TableRow(columns, heads, True))
        for reader in packages:
            own = [rates[reader, owner] for owner in packages]
            texts = [format_quantity(BANDWIDTH, rate[0].median) if rate else "-" for rate in own]
            row = TableRow(columns, (f"by package {reader}", *texts))
            self.drawing.table.append(row)

    def _shown_findings(self) -> set[int]:
        """Return the numbers of the findings that a box, a line or an arrow has."""
        boxes = [box for each in self.drawing.packages for box in (each, *each.inner)]
        numbers = [each.findings for each in boxes]
        numbers += [line.findings for box in boxes for line in box.lines]
        numbers += [arrow.flow.findings for arrow in self.drawing.arrows]
        return set(chain.from_iterable(numbers))


def _numbered(rows: Sequence[Sequence[Box]]) -> list[tuple[int, Box]]:
    """Return each box with the number of its row."""
    return [(number, box) for number, row in enumerate(rows) for box in row]


def _number(package: Box) -> int:
    return int(package.name.removeprefix("package"))


def _short(finding: Anomaly, width: float) -> str:
    """Return the first words of a finding, as many as fit into a line."""
    most = int((width - 40.0) / 6.4)
    text = finding.sentence
    return text if len(text) <= most else f"{text[: most - 4].rsplit(' ', 1)[0]} ..."


def nodes_by_package(topology: Topology) -> dict[int | None, list[Node]]:
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
