"""Write the results of a host for schedulers, the kernel, fio, Prometheus, ReFrame and others.

Each format has a function. Formats other than JSON, CSV and OpenMetrics also have a template in
``templates/exports``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from prometheus_client import CollectorRegistry, Gauge, Info, write_to_textfile
from prometheus_client.openmetrics.exposition import generate_latest

from chaosity.components import drive_component_name, drive_device_path
from chaosity.errors import UserError, file_system_error, printable_short_line
from chaosity.export.main_matrices import (
    DRIVE_BANDWIDTH,
    MEMORY_BANDWIDTH,
    MEMORY_LATENCY,
    MainMatrix,
    MeasuredHost,
    experiments_with_several_sizes,
    memory_matrix,
    node_bandwidths_and_source,
    read_main_matrices,
    require_matrix,
    text_or_none,
)
from chaosity.place_names import node_name, package_name
from chaosity.statistics.cell_summary import summarise_cells, summarise_corun_to_alone_ratios
from chaosity.statistics.estimates import Estimate, intervals_with_confidence
from chaosity.store.csv_tables import BANDWIDTH, LATENCY
from chaosity.store.measurements import (
    LOAD_COLUMNS,
    POINT_COLUMNS,
    less_is_better,
    parse_levels_json,
    parse_nodes,
)
from chaosity.store.tidy_table_parquet import Row
from chaosity.text_templates import TEMPLATES, template_environment
from chaosity.topology.topology_model import RELATIONS_NEAREST_FIRST, SAME_NODE, Topology
from chaosity.weights import PlacementAdvice, advise_interleave_weights

_JSON_SCHEMA_VERSION = 1  # the version of the document


def build_placement_document(host: MeasuredHost) -> Row:
    """Return the document of `chaosity export json`, see ``schemas/placement.schema.yaml``.

    The key of a value ends in its unit. Each number has n and a 95 % interval, which is null for n
    = 1.
    """
    cells = list(_slowdowns_beside_other_loads(host))
    return {
        "schema_version": _JSON_SCHEMA_VERSION,
        **host.origin("json"),
        "memory": _memory_of_node_pairs(host),
        "drive_sets": list(_drive_sets(host)),
        "interference": {"by_relation": list(_worst_slowdown_by_relation(cells)), "cells": cells},
    }


def _estimate_of_row(cell: pd.Series) -> Row:
    """Return the estimate in a row of `summarise_cells`."""
    return asdict(Estimate.of_cell(dict(cell)))


def _memory_of_node_pairs(host: MeasuredHost) -> Row:
    """Return the bandwidth and latency of pairs of nodes, and the pairs without a value."""
    found = {metric: memory_matrix(host, metric) for metric in (BANDWIDTH, LATENCY)}
    pairs: dict[tuple[int, int], Row] = {}
    left_out: list[Row] = []
    for metric, matrix in found.items():
        for cell in matrix.cells if matrix else ():
            ends = {"initiator_node": cell.node, "target_node": _node_number(cell.target)}
            values = {"relation": cell.relation, BANDWIDTH: None, LATENCY: None}
            pair = pairs.setdefault((cell.node, _node_number(cell.target)), {**ends, **values})
            pair[metric] = asdict(cell.estimate)
        for (node, target), reason in matrix.missing.items() if matrix else ():
            ends = {"initiator_node": node, "target_node": _node_number(target)}
            left_out.append({**ends, "metric": metric, "reason": reason})
    return {
        "measured": {metric: matrix and matrix.source for metric, matrix in found.items()},
        "placements": [pair for _, pair in sorted(pairs.items())],
        "left_out": left_out,
    }


def _node_number(node: str) -> int:
    """Return the number of a node from its name: 3 for "node3"."""
    return int(node.removeprefix("node"))


def _drive_sets(host: MeasuredHost) -> Iterator[Row]:
    """Yield each drive set with the initiators that read it, the best initiator first.

    Only initiators of one kind (such as nodes) are compared with each other. If several experiments
    measured a drive set, the experiment with the most initiators counts. The ratio to the best
    initiator is computed in each replicate block.
    """
    rows = host.measurements.single_load_rows().where(metric=BANDWIDTH).valid_rows()
    rows = rows.select(rows.rows["drives"].notna())
    cell_columns = [*POINT_COLUMNS, *LOAD_COLUMNS]
    blocks = {
        key: part.rows.set_index("replicate")["value"]
        for key, part in rows.groups_by_columns(cell_columns)
    }
    keys = ["target", "initiator_kind", "benchmark"]
    for (target, kind, benchmark), cells in summarise_cells(rows).groupby(keys, sort=False):
        initiators = cells.groupby("experiment", sort=False)["initiator"].nunique()
        own = cells[cells["experiment"] == initiators.idxmax()]
        first = own.iloc[0]
        own = own.sort_values("median", ascending=False)
        values = [blocks[key] for key in own[cell_columns].itertuples(index=False, name=None)]
        ranked: list[Row] = []
        for (_, cell), of_cell in zip(own.iterrows(), values, strict=True):
            ratio = Estimate.of_values((of_cell / values[0]).dropna())
            ranked.append(
                {
                    "initiator": cell["initiator"],
                    "initiator_nodes": list(parse_nodes(cell["initiator_nodes"])),
                    "relation": cell["relation"],
                    BANDWIDTH: _estimate_of_row(cell),
                    "ratio_to_best": asdict(ratio) if ratio.n else None,
                }
            )
        yield {
            "target": target,
            "drives": int(first["drives"]),
            "drive_nodes": list(parse_nodes(first["target_nodes"])),
            "file_backed": bool(first["file_backed"]),
            "experiment": first["experiment"],
            "benchmark": benchmark,
            "initiator_kind": kind,
            "ranked": ranked,
        }


def _slowdowns_beside_other_loads(host: MeasuredHost) -> Iterator[Row]:
    """Yield the ratio to its value alone of each load that co-runs with loads of other names."""
    columns = ["load", "kernel", "initiator", "target"]
    for _, cell in summarise_corun_to_alone_ratios(host.measurements).iterrows():
        others = host.measurements.other_loads(cell)
        if others.empty or cell["n"] == 0:
            continue
        yield {
            **_texts_of_columns(cell, ["experiment", "point", *columns, "metric"]),
            "less_is_better": less_is_better(cell["metric"]),
            "beside": [
                {
                    **_texts_of_columns(other, columns),
                    "relation": _nearest_relation(host.topology, cell, other),
                }
                for _, other in others.iterrows()
            ],
            "factors": parse_levels_json(cell["factors"]),
            "ratio_to_alone": _estimate_of_row(cell),
        }


def _texts_of_columns(row: pd.Series, columns: Sequence[str]) -> Row:
    return {name: text_or_none(row[name]) for name in columns}


def _worst_slowdown_by_relation(cells: Iterable[Row]) -> Iterator[Row]:
    """Yield the worst slowdown of each load by each co-running load, for each nearest relation."""
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for cell in cells:
        for load, relation in dict.fromkeys((o["load"], o["relation"]) for o in cell["beside"]):
            key = cell["load"], cell["kernel"], cell["metric"], load, relation
            groups.setdefault(key, []).append(cell)
    for (load, kernel, metric, other_load, relation), own in groups.items():
        worst_of = max if own[0]["less_is_better"] else min
        worst = worst_of(own, key=lambda cell: cell["ratio_to_alone"]["median"])
        yield {
            "load": load,
            "kernel": kernel,
            "metric": metric,
            "less_is_better": own[0]["less_is_better"],
            "beside": other_load,
            "relation": relation,
            "cells": len(own),
            "worst": {"point": worst["point"], "ratio_to_alone": worst["ratio_to_alone"]},
        }


def _nearest_relation(topology: Topology, cell: pd.Series, other: pd.Series) -> str:
    """Return the nearest relation between the initiators of two loads.

    An initiator can have several nodes, and each pair of nodes has a relation.
    """
    own, theirs = (parse_nodes(load["initiator_nodes"]) for load in (cell, other))
    relations: Iterable[str] = (topology.node_relation(a, b) for a in own for b in theirs)
    return min(relations, key=RELATIONS_NEAREST_FIRST.index, default="unknown")


@dataclass(frozen=True)
class InterleaveWeightsExport:
    """The interleave weights of a host, for several sets of worker nodes."""

    origin: dict[str, str | None]  # see `MeasuredHost.origin`
    measured: str  # source of the bandwidths, see `MainMatrix.source`
    # Name of a set of worker nodes (node0, package1, all) -> its weights.
    sets: dict[str, PlacementAdvice]
    left_out: dict[str, str]  # name of a set of worker nodes -> why it has no weights

    def to_json(self) -> dict[str, object]:
        """Return the document of `chaosity export weights --json`."""
        return {
            "schema_version": _JSON_SCHEMA_VERSION,
            **self.origin,
            "command": f"{self.origin['command']} --json",
            "measured": self.measured,
            "worker_sets": {name: advice.to_json() for name, advice in self.sets.items()},
            "left_out": self.left_out,
        }


def interleave_weights_of_host(host: MeasuredHost, dwp: float = 0.0) -> InterleaveWeightsExport:
    """Return weights for each node, each package and all nodes as the worker nodes.

    Raises:
        UserError: no pair of nodes was measured, `dwp` (data-to-worker proximity) is not between 0
            and 1, or the host is simulated.
    """
    host.refuse_simulated_values("the kernel")
    matrix, source = node_bandwidths_and_source(host)
    nodes = [node.os_index for node in host.topology.initiator_nodes]
    named: dict[str, tuple[int, ...]] = {node_name(node): (node,) for node in nodes}
    for package in host.topology.packages:
        own = tuple(node for node in package.nodes if node in nodes)
        named[package_name(package.os_index)] = own
    named["all"] = tuple(nodes)
    sets, left_out = dict[str, PlacementAdvice](), dict[str, str]()
    seen: set[tuple[int, ...]] = {()}
    for name, workers in named.items():
        if workers in seen:  # of equal sets of worker nodes, only the first counts
            continue
        seen.add(workers)
        try:
            sets[name] = advise_interleave_weights(matrix, workers, dwp)
        except UserError as error:
            left_out[name] = error.what
    if not sets:
        raise UserError(next(iter(left_out.values()), "no node has cores"), str(host.folder))
    options = ["--dwp", f"{dwp:g}"] if dwp else []
    return InterleaveWeightsExport(host.origin("weights", *options), source, sets, left_out)


# Largest share of healthy hosts that may fail a check against the exported references. The findings
# of the report have the same limit.
_FALSE_ALARM_RATE = 0.01
# Lowest and highest limit of a reference, as shares of its value. A reference with a wider limit is
# left out, since a check against wide limits would find few faults.
_LOWEST, _HIGHEST = -0.5, 1.0
# Kinds of initiators on which programs run.
_ROOFLINE_INITIATOR_KINDS = ["pu", "l3", "node", "package", "machine"]
_ROOFLINE_KEY_COLUMNS = ["initiator_kind", "initiator", "target"]
_ROOFLINE_COLUMN_NAMES = {
    "median": BANDWIDTH,
    **{end: f"{end}_bytes_per_second" for end in ("low", "high")},
}
_ROOFLINE_COLUMNS = [
    *(
        *_ROOFLINE_KEY_COLUMNS,
        "relation",
        "kernel",
        "experiment",
        "benchmark",
        *_ROOFLINE_COLUMN_NAMES.values(),
    ),
    *("n", "host", "configuration", "origin", "command"),
]


def export_fio_job_file(host: MeasuredHost) -> str:
    """Return fio's job file, in which the fastest node reads each drive.

    Raises:
        UserError: no NVMe drive was read from a node, or the host is simulated.
    """
    host.refuse_simulated_values("fio")
    matrix = require_matrix(read_main_matrices(host), DRIVE_BANDWIDTH, host)
    measured = {cell.target for cell in matrix.cells}
    drives = []
    for drive in host.topology.drives:
        target = drive_component_name(drive)
        if drive.name and target in measured:
            # In fio's option `filename`, a colon separates two files.
            path = drive_device_path(drive).replace(":", r"\:")
            drives.append((drive, path, matrix.nearest_of_fastest_cells(target)))
    if not drives:
        raise UserError("no NVMe drive of the topology was read from a node", str(host.folder))
    with_memory = {node.os_index for node in host.topology.memory_nodes}
    values = {"matrix": matrix, "drives": drives, "with_memory": with_memory}
    return render_with_origin("fio", host.origin("fio"), **values)


def export_slurm_features(host: MeasuredHost) -> str:
    """Return the line of slurm.conf and the command of scontrol that set the features of the host.

    Raises:
        UserError: no bandwidth from node to node was measured, or the host is simulated.
    """
    host.refuse_simulated_values("Slurm")
    matrices = read_main_matrices(host)
    require_matrix(matrices, MEMORY_BANDWIDTH, host)
    cells = {name: matrix.cells for name, matrix in matrices.items()}

    def medians(quantity: str, *, local: bool = False) -> list[float]:
        # The bandwidth of a file that replaces a drive says nothing about drives.
        own = (cell for cell in cells.get(quantity, ()) if not cell.is_of_file)
        return [cell.estimate.median for cell in own if cell.relation == SAME_NODE or not local]

    slowest, longest = dict[str, float](), dict[str, float]()
    for name, local in (("local_memory", True), ("any_memory", False)):
        if found := medians(MEMORY_BANDWIDTH, local=local):
            slowest[name] = min(found)
        if found := medians(MEMORY_LATENCY, local=local):
            longest[name] = max(found)
    if found := medians(DRIVE_BANDWIDTH):
        slowest["drive"] = min(found)
    return render_with_origin("slurm", host.origin("slurm"), slowest=slowest, longest=longest)


def export_roofline_csv(host: MeasuredHost) -> str:
    """Return a row for each initiator and memory target, with its fastest kernel.

    Raises:
        UserError: no bandwidth of a memory node was measured.
    """
    rows = host.memory_rows().valid_rows()
    rows = rows.where(
        metric=BANDWIDTH, initiator_kind=_ROOFLINE_INITIATOR_KINDS, target_kind=["node", "nodes"]
    )
    rows = rows.select(~rows.rows["experiment"].isin(experiments_with_several_sizes(rows)))
    if not len(rows):
        raise UserError("no bandwidth of memory was measured", str(host.folder), "run `make run`")
    cells = summarise_cells(rows).sort_values("median", ascending=False, kind="stable")
    peaks = cells.drop_duplicates(_ROOFLINE_KEY_COLUMNS).rename(columns=_ROOFLINE_COLUMN_NAMES)
    order = peaks["initiator_kind"].map(_ROOFLINE_INITIATOR_KINDS.index)
    peaks = peaks.assign(order=order, **host.origin("roofline"))
    peaks = peaks.sort_values(["order", "initiator", "target"])
    text: str = peaks.to_csv(index=False, columns=_ROOFLINE_COLUMNS)
    return text


def export_reframe_references(host: MeasuredHost) -> str:
    """Return ReFrame references for cells of the main matrices, if their limits are narrow.

    A reference is a value with a lower and an upper limit, given as shares of the value. A comment
    in the returned text lists the cells whose limits are too wide.

    Raises:
        UserError: no cell has an interval, or the host is simulated.
    """
    host.refuse_simulated_values("ReFrame")
    number = len(_limits_of_references(read_main_matrices(host)))
    if not number:
        what = "no value has an interval, so limits are unknown"
        raise UserError(what, str(host.folder), "measure more replicates")
    with intervals_with_confidence(1.0 - _FALSE_ALARM_RATE / number):
        found = _limits_of_references(read_main_matrices(host))
    references = {
        name: reference
        for name, reference in found.items()
        if reference[2] > _LOWEST and reference[3] < _HIGHEST
    }
    left_out = [name for name in found if name not in references]
    values = {"references": references, "left_out": left_out}
    alarms = 100.0 * _FALSE_ALARM_RATE
    return render_with_origin("reframe", host.origin("reframe"), false_alarms=alarms, **values)


def _limits_of_references(
    matrices: Mapping[str, MainMatrix],
) -> dict[str, tuple[MainMatrix, Estimate, float, float]]:
    """Return name of a reference -> matrix, estimate, lower limit (below 0), upper limit."""
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
    """Return the limits between which one further measurement lies, as shares of the median.

    For example, -0.02 and 0.02 mean 2 % below and above the median. In logarithms, half the width
    of the interval of a median of n values is t s / sqrt(n), where s is the standard deviation.
    Half the width of the interval of one further value is t s sqrt(1 + 1/n), which is sqrt(n + 1)
    times as large.
    """
    assert estimate.low is not None and estimate.high is not None
    widening = math.sqrt(estimate.n + 1.0)
    low, high = (
        math.expm1(widening * math.log(end / estimate.median))
        for end in (estimate.low, estimate.high)
    )
    return low, high


def render_with_origin(template: str, origin: Mapping[str, str | None], **values: object) -> str:
    """Return the text of ``templates/exports/TEMPLATE.j2``.

    Every template prints `origin`: where the values are from, and the command that exported them.
    Line breaks are removed from names, so that no name can add a line to the text.

    Raises:
        jinja2.UndefinedError: the template needs a value that `values` lacks.
    """
    environment = template_environment(
        TEMPLATES / "exports", ("jinja2.ext.do",), _printable_value, keep_trailing_newline=True
    )
    return environment.get_template(f"{template}.j2").render(origin=origin, **values)


def _printable_value(value: object) -> object:
    """Return a text as one printable line; return any other value unchanged."""
    return printable_short_line(value) if type(value) is str else value


# End of a metric's name -> unit of OpenMetrics, and how many of the metric's units it has.
_OPENMETRICS_UNIT_OF_SUFFIX = {
    "_bytes_per_second": ("bytes_per_second", 1.0),
    "_ns": ("seconds", 1e9),
}
# Field of an estimate, text that is added to the gauge's name, and help text of the gauge.
_GAUGES_OF_ESTIMATE = (
    ("median", "", "median"),
    ("low", "_low", "lower end of the 95 % interval"),
    ("high", "_high", "upper end of the 95 % interval"),
)
# Name, help text, labels and value of a gauge; None means no value.
GaugeValue = tuple[str, str, Mapping[str, str], float | None]


def export_openmetrics(host: MeasuredHost) -> str:
    """Return gauges of the medians of each matrix, and gauges of both ends of their intervals.

    The label `origin` is "measured" or "simulated". The info `chaosity_map` has the command that
    exported the values.

    Raises:
        UserError: no value was measured.
    """
    matrices = read_main_matrices(host)
    if not matrices:
        raise UserError("no value of the main matrices was measured", str(host.folder))
    registry, origin = CollectorRegistry(), host.origin("openmetrics")
    info = Info("chaosity_map", "Origin of the values of this host's map.", registry=registry)
    info.info({key: str(value) for key, value in origin.items()})
    whole = {key: str(origin[key]) for key in ("host", "configuration", "origin")}
    for matrix in matrices.values():
        unit, size = next(
            unit
            for suffix, unit in _OPENMETRICS_UNIT_OF_SUFFIX.items()
            if matrix.metric.endswith(suffix)
        )
        _add_gauges(registry, "chaosity_map", _gauges_of_matrix(matrix, whole, unit, size), unit)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call] # has no types
    return text.decode()


def _gauges_of_matrix(
    matrix: MainMatrix, whole: Mapping[str, str], unit: str, size: float
) -> Iterator[GaugeValue]:
    for field, part, meaning in _GAUGES_OF_ESTIMATE:
        name = f"{matrix.quantity.replace(' ', '_')}{part}_{unit}"
        what = f"{matrix.quantity.capitalize()} of {matrix.source}: {meaning}."
        for cell in matrix.cells:
            value = getattr(cell.estimate, field)
            place = {**whole, "initiator": cell.initiator, "target": cell.target}
            yield name, what, place, None if value is None else value / size


def _add_gauges(
    registry: CollectorRegistry, prefix: str, values: Iterable[GaugeValue], unit: str = ""
) -> None:
    """Add a gauge for each name to the registry, and set its values; a gauge may have no value."""
    gauges: dict[str, Gauge] = {}
    for name, text, labels, value in values:
        if name not in gauges:
            gauges[name] = Gauge(f"{prefix}_{name}", text, [*labels], registry=registry, unit=unit)
        if value is not None:
            gauges[name].labels(**labels).set(value)


def write_gauges(prefix: str, values: Iterable[GaugeValue], path: Path) -> None:
    """Write a file of gauges for node_exporter's textfile collector, all at once.

    The name of the file must end in .prom.

    Raises:
        UserError: the file cannot be written.
    """
    registry = CollectorRegistry()
    _add_gauges(registry, prefix, values)
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise (file_system_error(error, path) or error) from None
