"""Draw a machine: its packages, nodes, memory and drives, with measured medians.

A report begins with this drawing. This module computes positions in pixels, and the template
``templates/figures/machine.svg.j2`` writes the SVG. A part that a finding names is red and has the
number of the finding; an unmeasured part is grey; a predicted value is hatched. The page of all
hosts has a small drawing in each row. In a small drawing, a node is a rectangle: the upper part is
the memory of the node, and the lower part is its drives.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.figures.machine_parts import FAULTY, MachineParts, TextLine, text_with_interval
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.store.csv_tables import BANDWIDTH
from chaosity.text_templates import TEMPLATES, template_environment
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import Node
from chaosity.units import format_count, format_quantity

# Width of a drawing: that of the text of a report on a screen of 1280 pixels.
DRAWING_WIDTH_PIXELS = 952.0
# Width of each of two machines side by side, and width of the gap between them.
_NARROW, _BETWEEN_MACHINES = 464.0, 24.0
# Least width of a node's box, which fits the text "memory 38.1 GB/s 92.4 ns" in letters of 12
# pixels.
_LEAST_NODE_WIDTH = 184.0
# Largest width of a node's box, since most of a wider box would be empty.
_WIDEST_NODE = 300.0
_GAP, _PADDING = 10.0, 12.0
_TITLE_HEIGHT, LINE_HEIGHT = 26.0, 19.0
# Width and height of the space between two packages, with arrows and values of their link.
_LINK_WIDTH, _LINK_HEIGHT = 128.0, 76.0
_ARROW_HEIGHT, _ARROW_WIDTH = 44.0, 150.0
# Largest number of packages with arrows between them; if there are more packages, a table shows the
# reads between packages, since arrows would cross each other.
_MOST_PACKAGES_WITH_ARROWS = 4
_NOT_MEASURED_TEXT = "not measured"
# Sizes in a small drawing, in pixels: width of a node, height of the node's memory, height of the
# node's drives, width of a gap between nodes, and width of the frame of a package.
_SMALL, _SMALL_MEMORY, _SMALL_DRIVES, _SMALL_GAP, _SMALL_FRAME = 15, 8, 5, 3, 4
_SMALL_NODES_IN_ROW, _SMALL_PACKAGES_IN_ROW = 4, 2
_GAP_OF_SMALL_PACKAGES_PIXELS = 12  # pixels between packages, so that a red link is visible


@dataclass(frozen=True)
class Box:
    """The box of a package or a node: its position in pixels, its texts, and the boxes in it."""

    x: float
    y: float
    width: float
    height: float
    name: str  # name of the component, such as node3
    title: str
    detail: str
    hover: str
    findings: tuple[int, ...] = ()  # numbers of the findings that name this component
    lines: tuple[TextLine, ...] = ()
    inner: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Flow:
    """A flow of data from one package to another, with its measured value as text."""

    source: Box
    sink: Box
    text: str
    hover: str
    findings: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """The arrow of a flow: positions of its ends, its text and its badges in pixels."""

    flow: Flow
    start: tuple[float, float]
    end: tuple[float, float]
    text_at: tuple[float, float]
    badge_at: tuple[float, float]
    anchor: str = "middle"  # part of the text at `text_at` (SVG's `text-anchor`)


@dataclass(frozen=True)
class TableRow:
    """A row of texts below the boxes; `columns` has the left edge of each text in pixels."""

    columns: tuple[float, ...]
    texts: tuple[str, ...]
    is_head: bool = False
    findings: tuple[int, ...] = ()


def draw_machine(parts: MachineParts) -> str:
    """Return the drawing of a machine as an SVG document.

    The badge of finding N is a link to ``#finding-N`` in the page that contains the drawing.
    """
    topology, machine = parts.topology, _Machine(parts, DRAWING_WIDTH_PIXELS)
    counts = ((topology.packages, "package"), (topology.nodes, "node"), (topology.drives, "drive"))
    counted = ", ".join(format_count(len(items), word) for items, word in counts if items)
    return _render_svg("machine", f"Machine with {counted}", [machine], machine.height)


def draw_machines(machines: Sequence[tuple[str, str, MachineParts]]) -> str:
    """Return a drawing of several machines, two side by side, as an SVG document.

    A machine is given by its title, the path of its report, and its parts. The machines can be one
    host in several configurations. The badges of findings are links to the findings in the reports.
    """
    drawn, y = list[_Machine](), 0.0
    for start in range(0, len(machines), 2):
        row = [_Machine(parts, _NARROW, *named) for *named, parts in machines[start : start + 2]]
        for column, machine in enumerate(row):
            machine.x, machine.y = column * (_NARROW + _BETWEEN_MACHINES), y + _TITLE_HEIGHT
        drawn += row
        y += _TITLE_HEIGHT + max(machine.height for machine in row) + _GAP
    return _render_svg(
        "machine", f"Machines: {', '.join(title for title, _, _ in machines)}", drawn, y
    )


def draw_small_machine(parts: MachineParts, slow: Collection[str] = ()) -> str:
    """Return the drawing of a machine as a small SVG element without texts.

    A drawing of sixteen nodes has about 1 kB, since one SVG path draws all parts with the same
    state. `slow` has the names of parts that are slower than in equal hosts, such as node3, "drives
    of node3", the name of a drive, package0 or package0->package1.
    """
    return _render_svg("small_machine", "", _SmallMachine(parts, slow))


def _render_svg(name: str, title: str, drawing: object, height: float = 0.0) -> str:
    template = template_environment(TEMPLATES / "figures", autoescape=True).get_template(
        f"{name}.svg.j2"
    )
    sizes = {"width": DRAWING_WIDTH_PIXELS, "height": height, "line_height": LINE_HEIGHT}
    return template.render(drawing=drawing, title=title, **sizes)


class _Machine:
    """The drawing of one machine: the positions of all its parts, for the template."""

    def __init__(self, parts: MachineParts, width: float, title: str = "", page: str = "") -> None:
        # Badges are links to findings in the report `page`; "" is the page that contains the
        # drawing.
        self.parts, self.topology, self.width = parts, parts.topology, width
        self.title, self.page, self.x, self.y = title, page, 0.0, 0.0
        self.packages: list[Box] = []
        self.arrows: list[Arrow] = []
        self.table: list[TableRow] = []
        groups = _nodes_by_package(self.topology)
        packages = [package for package in groups if package is not None]
        in_row = self._packages_in_row(len(packages))
        linked = (
            1
            < len(packages)
            <= (_MOST_PACKAGES_WITH_ARROWS if self.width == DRAWING_WIDTH_PIXELS else 2)
        )
        rows = [packages[start : start + in_row] for start in range(0, len(packages), in_row)]
        between = _LINK_WIDTH if linked and in_row > 1 else _GAP
        below = _LINK_HEIGHT if linked and len(rows) > 1 else _GAP
        width = (self.width - between * (in_row - 1)) / in_row
        y = 0.0
        places: list[tuple[int, Box]] = []
        for number, row in enumerate(rows):
            boxes = [
                self._make_package_box(
                    package, groups[package], place * (width + between), y, width
                )
                for place, package in enumerate(row)
            ]
            places += [(number, box) for box in boxes]
            y += max(box.height for box in boxes) + (below if number < len(rows) - 1 else _GAP)
        self.packages += [box for _, box in places]
        if linked:
            for (above, first), (below_it, second) in combinations(places, 2):
                self._add_arrows_of_link(first, second, above == below_it)
        if None in groups:
            self.packages.append(self._make_package_box(None, groups[None], 0.0, y, self.width))
            y += self.packages[-1].height + _GAP
        ends = [arrow.badge_at[1] + 12.0 for arrow in self.arrows]
        y = max(y, *ends, 0.0) + _GAP
        self._add_text_rows([] if linked else packages)
        self.table_y, self.height = y + 8.0, y + LINE_HEIGHT * len(self.table) + 4.0

    def _packages_in_row(self, packages: int) -> int:
        if self.width < DRAWING_WIDTH_PIXELS:
            return 1 if packages < _MOST_PACKAGES_WITH_ARROWS else 2
        return max(1, min(packages, 2 if packages <= _MOST_PACKAGES_WITH_ARROWS else 3))

    def _make_package_box(
        self, package: int | None, nodes: Sequence[Node], x: float, y: float, width: float
    ) -> Box:
        """Return the box of a package with its nodes; the box is at most `width` pixels wide."""
        inside = width - 2.0 * _PADDING
        most = max(1, int((inside + _GAP) // (_LEAST_NODE_WIDTH + _GAP)))
        rows = math.ceil(len(nodes) / most)
        in_row = math.ceil(len(nodes) / rows)
        node_width = min(_WIDEST_NODE, (inside - _GAP * (in_row - 1)) / in_row)
        lines = [tuple(self.parts.lines_of_node(node)) for node in nodes]
        height = _TITLE_HEIGHT + LINE_HEIGHT * max(map(len, lines)) + 6.0
        boxes = []
        for place, (node, own) in enumerate(zip(nodes, lines, strict=True)):
            row, column = divmod(place, in_row)
            left = x + _PADDING + column * (node_width + _GAP)
            top = y + _TITLE_HEIGHT + 4.0 + row * (height + _GAP)
            name, title = node_name(node.os_index), f"node {node.os_index}"
            texts = (name, title, detail := self.parts.detail_of_node(node), f"{title}: {detail}")
            found = self.parts.findings.get(name, ())
            boxes.append(Box(left, top, node_width, height, *texts, found, own))
        name, title, rate = "", "memory of no package", None
        if package is not None:
            name, title = package_name(package), f"package {package}"
            several = len(nodes) > 1  # the box of a package's only node has its value
            rate = self.parts.package_read_rate(package, package) if several else None
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
            inner=tuple(boxes),
        )

    def _add_arrows_of_link(self, first: Box, second: Box, beside: bool) -> None:
        """Add the arrows between two packages; `beside` says whether both are in one row."""
        flows = [*self._flows_between_packages(first, second)]
        if beside:
            ends = (first.x + first.width + 8.0, second.x - 8.0)
            y = first.y + max(0.0, (first.height - _ARROW_HEIGHT * len(flows)) / 2.0) + 24.0
            for lane, flow in enumerate(flows):
                start, end = ends if flow.source is first else ends[::-1]
                at, middle = y + _ARROW_HEIGHT * lane, sum(ends) / 2.0
                self.arrows.append(
                    Arrow(flow, (start, at), (end, at), (middle, at - 8.0), (middle, at + 13.0))
                )
        elif first.x == second.x:
            ends = (first.y + first.height + 5.0, second.y - 5.0)
            x = (first.x + first.width / 2.0) - _ARROW_WIDTH * len(flows) / 2.0 + 32.0
            for lane, flow in enumerate(flows):
                start, end = ends if flow.source is first else ends[::-1]
                at, middle = max(14.0, x) + _ARROW_WIDTH * lane, sum(ends) / 2.0
                text_at = (at + 16.0, middle + 4.0)
                self.arrows.append(
                    Arrow(flow, (at, start), (at, end), text_at, (at, middle), "start")
                )
        else:
            for flow in flows[:2]:  # the centre has space for only two links
                self._add_half_diagonal(flow)

    def _add_half_diagonal(self, flow: Flow) -> None:
        """Add the half of a diagonal that ends at the sink; the other half is the other flow."""
        corners = []
        for box, other in ((flow.source, flow.sink), (flow.sink, flow.source)):
            x = box.x + box.width + 3.0 if box.x < other.x else box.x - 3.0
            y = box.y + box.height + 3.0 if box.y < other.y else box.y - 3.0
            corners.append((x, y))
        (from_x, from_y), (x, y) = corners
        centre = ((from_x + x) / 2.0, (from_y + y) / 2.0)
        badge_at = (centre[0] + 0.7 * (x - centre[0]), centre[1] + 0.7 * (y - centre[1]))
        # The texts are to the left and to the right of the crossing of both diagonals.
        side = -1.0 if x < centre[0] else 1.0
        text_at = (centre[0] + 28.0 * side, centre[1] + (-5.0 if y < centre[1] else 14.0))
        self.arrows.append(
            Arrow(flow, centre, (x, y), text_at, badge_at, "end" if side < 0.0 else "start")
        )

    def _flows_between_packages(self, first: Box, second: Box) -> Iterator[Flow]:
        """Yield the flows between two packages: reads of memory, and slow reads of drives."""
        for source, sink in ((first, second), (second, first)):
            found = self.parts.package_read_rate(_package_number(sink), _package_number(source))
            text, detail = _NOT_MEASURED_TEXT, _NOT_MEASURED_TEXT
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

    def _add_text_rows(self, packages: Sequence[int]) -> None:
        """Add rows of text: values by distance, rates that have no arrow, parts of unknown node."""
        table, is_wide = self.table, self.width == DRAWING_WIDTH_PIXELS
        columns = (12.0, 250.0, 480.0) if is_wide else (12.0, 200.0, 330.0)
        rows = self.parts.rows_by_distance(with_ends=is_wide)
        table += [TableRow(columns, texts, not number) for number, texts in enumerate(rows)]
        self._add_package_table(packages)
        if not self.topology.nodes:
            table.append(TableRow(columns, ("The topology of this host is not known.",)))
        topology = self.topology
        for parts, word in ((topology.drives, "drive"), (topology.compute_gpus, "GPU")):
            if unplaced := sum(part.node is None for part in parts):
                text = f"{format_count(unplaced, word)} of unknown node"
                table.append(TableRow(columns, (text,)))
        for number, finding in self.parts.numbered.items():
            if number not in self._shown_findings():
                table.append(
                    TableRow(
                        (34.0,), (_first_words_of_finding(finding, self.width),), False, (number,)
                    )
                )

    def _add_package_table(self, packages: Sequence[int]) -> None:
        """Add a table of how fast packages read memory if there are no arrows."""
        rates = {
            (reader, owner): self.parts.package_read_rate(reader, owner)
            for reader in packages
            for owner in packages
        }
        if len(packages) < 2 or not any(rates.values()):
            return
        step = min(92.0, (self.width - 140.0) / len(packages))
        columns = (12.0, *(140.0 + step * place for place in range(len(packages))))
        heads = ("reads from package", *map(str, packages))
        self.table.append(TableRow(columns, heads, True))
        for reader in packages:
            own = [rates[reader, owner] for owner in packages]
            texts = [format_quantity(BANDWIDTH, rate[0].median) if rate else "-" for rate in own]
            row = TableRow(columns, (f"by package {reader}", *texts))
            self.table.append(row)

    def _shown_findings(self) -> set[int]:
        """Return the numbers of the findings that have a badge at a box, a line or an arrow."""
        boxes = [box for each in self.packages for box in (each, *each.inner)]
        numbers = [each.findings for each in boxes]
        numbers += [line.findings for box in boxes for line in box.lines]
        numbers += [arrow.flow.findings for arrow in self.arrows]
        return set(chain.from_iterable(numbers))


def _package_number(package: Box) -> int:
    return int(package.name.removeprefix("package"))


def _first_words_of_finding(finding: Anomaly, width: float) -> str:
    """Return as many first words of a finding's text as fit into a line."""
    most = int((width - 40.0) / 6.4)
    text = finding.sentence
    return text if len(text) <= most else f"{text[: most - 4].rsplit(' ', 1)[0]} ..."


def _nodes_by_package(topology: Topology) -> dict[int | None, list[Node]]:
    """Return package -> its nodes; the key None has nodes that belong to no or several packages."""
    found: dict[int | None, list[Node]] = {}
    for node in topology.nodes:
        if node.initiator or node.target:
            found.setdefault(node.package, []).append(node)
    return dict(sorted(found.items(), key=lambda item: (item[0] is None, item[0] or 0)))


class _SmallMachine:
    """The small drawing of a machine: the positions of all its parts, for the template."""

    def __init__(self, parts: MachineParts, slow: Collection[str]) -> None:
        self.parts = parts
        self.red = {*parts.findings, *slow}
        homes = parts.node_of_drive
        self.red |= {f"drives of {node}" for drive, node in homes.items() if drive in self.red}
        self.red |= {f"{f.target}->{f.initiator}" for f in parts.paths_to_drives.values()}
        self.width, self.height = 0, 0
        # `paths` maps a state to the SVG path that draws all parts in this state. `frames` has for
        # each package the x, y, width and height of its frame, and whether the frame is red.
        self.paths: dict[str, str] = {}
        self.frames: list[tuple[int, int, int, int, bool]] = []
        # x1, y1, x2, y2 of red lines between centres of packages; a line is visible only between
        # packages.
        self.links: list[tuple[float, ...]] = []
        middles: dict[str, tuple[float, float]] = {}
        x = y = below = 0
        for place, (package, nodes) in enumerate(_nodes_by_package(parts.topology).items()):
            if place and place % _SMALL_PACKAGES_IN_ROW == 0:
                x, y = 0, below + _GAP_OF_SMALL_PACKAGES_PIXELS // 2
            name = "" if package is None else package_name(package)
            width, height = self._make_package_box(nodes, x, y, name)
            middles[name] = x + width / 2.0, y + height / 2.0
            below, self.width = max(below, y + height), max(self.width, x + width)
            x += width + _GAP_OF_SMALL_PACKAGES_PIXELS
        self.height = below
        for name in sorted(self.red):
            ends = [middles[end] for end in name.split("->") if end in middles]
            if len(ends) == 2 and ends[0] != ends[1]:
                self.links.append((*ends[0], *ends[1]))

    def _make_package_box(
        self, nodes: Sequence[Node], x: int, y: int, name: str
    ) -> tuple[int, int]:
        """Add a package with its nodes; return the width and height of the package in pixels."""
        has_drives = any(self.parts.drives_line(node) for node in self.parts.topology.nodes)
        step = _SMALL_MEMORY + (_SMALL_DRIVES if has_drives else 0) + _SMALL_GAP
        for place, node in enumerate(nodes):
            row, column = divmod(place, _SMALL_NODES_IN_ROW)
            left, top = (
                x + _SMALL_FRAME + column * (_SMALL + _SMALL_GAP),
                y + _SMALL_FRAME + row * step,
            )
            self._add_node(node, left, top)
        rows = -(-len(nodes) // _SMALL_NODES_IN_ROW)
        width = (
            2 * _SMALL_FRAME
            + min(len(nodes), _SMALL_NODES_IN_ROW) * (_SMALL + _SMALL_GAP)
            - _SMALL_GAP
        )
        height = 2 * _SMALL_FRAME + rows * step - _SMALL_GAP
        self.frames.append((x, y, width, height, name in self.red))
        return width, height

    def _add_node(self, node: Node, left: int, top: int) -> None:
        name = node_name(node.os_index)
        drives, paths = self.parts.drives_line(node), self.parts.slow_paths.get(name)
        memory = self.parts.memory_line(node).state if node.target else "none"
        is_red = name in self.red or (paths and not drives)
        self._add_rectangle(FAULTY if is_red else memory, left, top, _SMALL_MEMORY)
        if drives:
            is_red = paths or f"drives of {name}" in self.red
            self._add_rectangle(
                FAULTY if is_red else drives.state, left, top + _SMALL_MEMORY + 1, _SMALL_DRIVES - 1
            )

    def _add_rectangle(self, state: str, left: int, top: int, height: int) -> None:
        path = f"M{left} {top}h{_SMALL}v{height}h-{_SMALL}z"
        self.paths[state] = self.paths.get(state, "") + path
