"""Draw a machine so small that a page of many hosts has a drawing in each row.

A node is a rectangle: the upper part is its memory, the lower part its drives. Red is what a
finding or a comparison with equal hosts names, grey is what was not measured. A drawing of sixteen
nodes has about 1 kB, since each state of parts is a single path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import nodes_by_package
from chaosity.figures.machine_parts import FAULTY, MachineParts
from chaosity.place_names import node_name, package_name
from chaosity.text_templates import TEMPLATES, make_environment
from chaosity.topology.topology_model import Node

# Pixels of a node, of its memory, of the gaps, and of the frame of a package.
_WIDTH, _MEMORY, _DRIVES, _GAP, _FRAME = 15, 8, 5, 3, 4
_NODES_IN_ROW, _PACKAGES_IN_ROW = 4, 2
_BETWEEN = 12  # two packages, where a red link is seen


def draw_small_machine(
    host: MeasuredHost, findings: Sequence[Anomaly], slow: Collection[str] = ()
) -> str:
    """Return the machine of a host as a small SVG element without texts.

    Args:
        host: its measurements and its topology.
        findings: what is wrong in this host.
        slow: names of parts that are slower than in equal hosts: node3, `drives of node3`, a drive,
            package0, package0->package1.
    """
    drawing = _SmallDrawing(MachineParts(host, findings), slow)
    template = make_environment(TEMPLATES / "figures", autoescape=True).get_template(
        "small_machine.svg.j2"
    )
    return template.render(drawing=drawing)


class _SmallDrawing:
    """The places of the parts, for the template."""

    def __init__(self, parts: MachineParts, slow: Collection[str]) -> None:
        self.parts = parts
        self.red = {*parts.findings, *slow}
        homes = parts.node_of_drive
        self.red |= {f"drives of {node}" for drive, node in homes.items() if drive in self.red}
        self.red |= {f"{f.target}->{f.initiator}" for f in parts.paths_to_drives.values()}
        self.width, self.height = 0, 0
        # State -> path of its parts; frames of packages: x, y, width, height, whether it is red.
        self.paths: dict[str, str] = {}
        self.frames: list[tuple[int, int, int, int, bool]] = []
        # x1, y1, x2, y2 of red links between the centres of packages, seen in the gaps only.
        self.links: list[tuple[float, ...]] = []
        middles: dict[str, tuple[float, float]] = {}
        x = y = below = 0
        for place, (package, nodes) in enumerate(nodes_by_package(parts.topology).items()):
            if place and place % _PACKAGES_IN_ROW == 0:
                x, y = 0, below + _BETWEEN // 2
            name = "" if package is None else package_name(package)
            width, height = self._package(nodes, x, y, name)
            middles[name] = x + width / 2.0, y + height / 2.0
            below, self.width = max(below, y + height), max(self.width, x + width)
            x += width + _BETWEEN
        self.height = below
        for name in sorted(self.red):
            ends = [middles[end] for end in name.split("->") if end in middles]
            if len(ends) == 2 and ends[0] != ends[1]:
                self.links.append((*ends[0], *ends[1]))

    def _package(self, nodes: Sequence[Node], x: int, y: int, name: str) -> tuple[int, int]:
        """Add a package with its nodes, and return its width and height."""
        has_drives = any(self.parts.drives_line(node) for node in self.parts.topology.nodes)
        step = _MEMORY + (_DRIVES if has_drives else 0) + _GAP
        for place, node in enumerate(nodes):
            row, column = divmod(place, _NODES_IN_ROW)
            left, top = x + _FRAME + column * (_WIDTH + _GAP), y + _FRAME + row * step
            self._node(node, left, top)
        rows = -(-len(nodes) // _NODES_IN_ROW)
        width = 2 * _FRAME + min(len(nodes), _NODES_IN_ROW) * (_WIDTH + _GAP) - _GAP
        height = 2 * _FRAME + rows * step - _GAP
        self.frames.append((x, y, width, height, name in self.red))
        return width, height

    def _node(self, node: Node, left: int, top: int) -> None:
        name = node_name(node.os_index)
        drives, ways = self.parts.drives_line(node), self.parts.slow_ways.get(name)
        memory = self.parts.memory_line(node).state if node.target else "none"
        is_red = name in self.red or (ways and not drives)
        self._add(FAULTY if is_red else memory, left, top, _MEMORY)
        if drives:
            is_red = ways or f"drives of {name}" in self.red
            self._add(FAULTY if is_red else drives.state, left, top + _MEMORY + 1, _DRIVES - 1)

    def _add(self, state: str, left: int, top: int, height: int) -> None:
        path = f"M{left} {top}h{_WIDTH}v{height}h-{_WIDTH}z"
        self.paths[state] = self.paths.get(state, "") + path
