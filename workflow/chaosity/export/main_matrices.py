"""The three matrices that most readers of a map want, with intervals, and texts made from them.

The matrices are memory bandwidth and latency from node to node, and bandwidth from node to drive.
The export formats and ``chaosity show`` take their values from here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from chaosity.errors import UserError, printable_line
from chaosity.export.host_measurements_for_export import (
    MEMORY,
    MeasuredHost,
    reason_without_value,
    select_most_complete_node_measurements,
)
from chaosity.place_names import node_name, parse_place_name
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import less_is_better
from chaosity.store.read_node_matrix_csv import BANDWIDTH, LATENCY
from chaosity.text_templates import TEMPLATES, make_environment
from chaosity.topology.topology_model import OTHER_PACKAGE, SAME_NODE, SAME_PACKAGE

MEMORY_BANDWIDTH, MEMORY_LATENCY = "memory bandwidth", "memory latency"
DRIVE_BANDWIDTH = "drive bandwidth"
_NEAREST_FIRST = (SAME_NODE, SAME_PACKAGE, OTHER_PACKAGE)


@dataclass(frozen=True)
class MatrixCell:
    """A value of a matrix."""

    node: int  # OS index of the initiator's node
    target: str  # name of the target: node3, drive-0000-41-00-0 or file0
    relation: str  # where the target lies: same_node, same_package, other_package or unknown
    estimate: Estimate  # median with interval and n in the metric's unit

    @property
    def initiator(self) -> str:
        """Return the name of the initiator's node: node0."""
        return node_name(self.node)

    @property
    def is_of_file(self) -> bool:
        """Return whether the target is a file that stands in for a drive."""
        target = parse_place_name(self.target)
        return target is not None and target.kind == "file"


@dataclass(frozen=True)
class MainMatrix:
    """Values from each node to each target."""

    quantity: str  # memory bandwidth, memory latency or drive bandwidth
    metric: str  # name of the metric, which ends with its unit
    source: str  # experiment and benchmark of the values
    cells: tuple[MatrixCell, ...]  # measured cells, in the order of initiators and targets
    missing: dict[tuple[int, str], str]  # (node, target) -> why a planned cell has no value

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Return the names of the targets, also of those without a value."""
        known = [cell.target for cell in self.cells] + [target for _, target in self.missing]
        return tuple(dict.fromkeys(known))

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Return the nodes of the initiators, also of those without a value."""
        return tuple(
            sorted({cell.node for cell in self.cells} | {node for node, _ in self.missing})
        )

    @cached_property
    def cell_of(self) -> dict[tuple[int, str], MatrixCell]:
        """Return (node, target) -> cell."""
        return {(cell.node, cell.target): cell for cell in self.cells}

    def share_of_best(self, cell: MatrixCell) -> float:
        """Return how good a cell is, as a share of the best cell: 0.5 is half the bandwidth."""
        if less_is_better(self.metric):
            return self._best_median / cell.estimate.median
        return cell.estimate.median / self._best_median

    @cached_property
    def _best_median(self) -> float:
        medians = [cell.estimate.median for cell in self.cells]
        return min(medians) if less_is_better(self.metric) else max(medians)

    def best_cell(self, target: str) -> MatrixCell:
        """Return the cell of the nearest node of which no other is clearly faster to the target.

        A node is clearly faster than another if their intervals do not overlap; without intervals,
        if its median is higher. The matrix must be of bandwidths.
        """
        own = [cell for cell in self.cells if cell.target == target]
        best = max(own, key=lambda cell: cell.estimate.median)
        limit = best.estimate.median if best.estimate.low is None else best.estimate.low
        equal = [cell for cell in own if (cell.estimate.high or cell.estimate.median) >= limit]
        return min(equal, key=_distance_rank)


def _distance_rank(cell: MatrixCell) -> tuple[int, float]:
    known = cell.relation in _NEAREST_FIRST
    rank = _NEAREST_FIRST.index(cell.relation) if known else len(_NEAREST_FIRST)
    return rank, -cell.estimate.median


def read_main_matrices(host: MeasuredHost) -> dict[str, MainMatrix]:
    """Return quantity -> its matrix, without quantities that were not measured."""
    found = [
        _memory_matrix(host, MEMORY_BANDWIDTH, BANDWIDTH),
        _memory_matrix(host, MEMORY_LATENCY, LATENCY),
        _drive_matrix(host),
    ]
    return {matrix.quantity: matrix for matrix in found if matrix}


def require_matrix(
    matrices: Mapping[str, MainMatrix], quantity: str, host: MeasuredHost
) -> MainMatrix:
    """Return the matrix of a quantity from those of a host.

    Raises:
        UserError: it was not measured.
    """
    if found := matrices.get(quantity):
        return found
    what = f"no {quantity} from a node was measured"
    raise UserError(what, str(host.folder), "run `make run`")


def _memory_matrix(host: MeasuredHost, quantity: str, metric: str) -> MainMatrix | None:
    found = select_most_complete_node_measurements(host, metric)
    if found is None:
        return None
    pairs = found.cells[["initiator_node", "target_node"]].itertuples(index=False)
    cells = found.cells.assign(
        node=found.cells["initiator_node"],
        target=found.cells["target_node"].map(node_name),
        relation=[host.topology.node_relation(*pair) for pair in pairs],
    )
    return _matrix(quantity, metric, found.source_text, cells)


def _drive_matrix(host: MeasuredHost) -> MainMatrix | None:
    """Return the bandwidth of single drives in the experiment and benchmark with most cells."""
    rows = host.measurements.single_load_rows().where(
        metric=BANDWIDTH, initiator_kind="node", target_kind="drive"
    )
    rows = rows.select(rows.rows["initiator_nodes"].astype(str).str.fullmatch(r"\d+"))
    if not len(rows.valid_rows()):
        return None
    (experiment, benchmark), part = max(
        rows.groups_by_columns(["experiment", "benchmark"]),
        key=lambda item: item[1].valid_rows().initiator_target_pair_count,
    )
    cells = summarise_cells(part)
    cells = cells.assign(node=cells["initiator_nodes"].astype(int)).sort_values(["node", "target"])
    return _matrix(DRIVE_BANDWIDTH, BANDWIDTH, f"{experiment}, {benchmark}", cells)


def _matrix(quantity: str, metric: str, source: str, table: pd.DataFrame) -> MainMatrix:
    """Return the matrix of a table of `summarise_cells` with a column `node`, in its order."""
    cells = tuple(
        MatrixCell(int(cell["node"]), cell["target"], cell["relation"], Estimate.of_cell(cell))
        for cell in table[table["n"] > 0].to_dict("records")
    )
    missing = {
        (int(cell["node"]), cell["target"]): reason_without_value(cell["reason"])
        for cell in table[table["n"] == 0].to_dict("records")
    }
    return MainMatrix(quantity, metric, source, cells, missing)


def package_bandwidths(host: MeasuredHost) -> dict[tuple[str, str], dict[str, Estimate]]:
    """Return (package or machine, its memory of several nodes) -> kernel -> measured bandwidth."""
    rows = host.measurements.single_load_rows().valid_rows()
    kinds = ["package", "machine"]
    rows = rows.where(metric=BANDWIDTH, initiator_kind=kinds, target_kind="nodes")
    rows = rows.select(rows.rows["category"].str.startswith(MEMORY, na=False))
    found: dict[tuple[str, str], dict[str, Estimate]] = {}
    for cell in summarise_cells(rows).to_dict("records") if len(rows) else []:
        place = found.setdefault((cell["initiator"], cell["target"]), {})
        place[str(cell["kernel"])] = Estimate.of_cell(cell)
    return found


def render_export(template: str, host: MeasuredHost, **values: object) -> str:
    """Return the text of ``templates/exports/TEMPLATE.j2`` for a host; see `render_with_origin`."""
    return render_with_origin(template, origin_of_export(host, template), **values)


def render_with_origin(template: str, origin: Mapping[str, str | None], **values: object) -> str:
    """Return the text of ``templates/exports/TEMPLATE.j2``.

    Every template prints `origin`: where the values are from, and the command that wrote them.
    Names of others that a template prints cannot begin a line of their own.

    Raises:
        jinja2.UndefinedError: the template needs a value that `values` lacks.
    """
    environment = make_environment(
        TEMPLATES / "exports", ("jinja2.ext.do",), _printable, keep_trailing_newline=True
    )
    return environment.get_template(f"{template}.j2").render(origin=origin, **values)


def _printable(value: object) -> object:
    """Return a text as one printable line, and any other value as it is."""
    return printable_line(value) if type(value) is str else value


def origin_of_export(host: MeasuredHost, name: str, *options: str) -> dict[str, str | None]:
    """Return where the values of an export are from: measured or simulated, and its command."""
    command = shlex.join(["chaosity", "export", name, str(host.folder), *options])
    return {"origin": "measured", **host.origin_of_values, "command": command}
