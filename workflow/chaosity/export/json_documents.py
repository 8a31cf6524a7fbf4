"""The JSON documents of a host: for schedulers, and with interleave weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.export.main_matrices import (
    MeasuredHost,
    memory_matrix,
    node_bandwidths_and_source,
    text_or_none,
)
from chaosity.place_names import node_name, package_name
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates import Estimate
from chaosity.statistics.ratios import summarise_corun_to_alone_ratios
from chaosity.store.measurements import LOAD, POINT, less_is_better, parse_levels_json
from chaosity.store.read_node_matrix_csv import BANDWIDTH, LATENCY
from chaosity.store.tidy_table_parquet import Row
from chaosity.topology.topology_model import Topology
from chaosity.weights import PlacementAdvice, advise_interleave_weights

_SCHEMA = 1  # the version of the document
_NEAREST_FIRST = ("same_node", "same_package", "other_package", "unknown")


def build_placement_document(host: MeasuredHost) -> Row:
    """Return the document of `chaosity export json`, see ``schemas/placement.schema.yaml``.

    Units are in the keys. Each number has its n and its 95 % interval, null for n = 1.
    """
    cells = list(_interference(host))
    return {
        "schema_version": _SCHEMA,
        **host.origin("json"),
        "memory": _memory(host),
        "drive_sets": list(_drive_sets(host)),
        "interference": {"by_relation": list(_by_relation(cells)), "cells": cells},
    }


def _estimate(cell: pd.Series) -> Row:
    """Return the estimate in a row of `summarise_cells`."""
    return asdict(Estimate.of_cell(dict(cell)))


def _memory(host: MeasuredHost) -> Row:
    """Return each pair of nodes with its measured bandwidth and latency."""
    found = {metric: memory_matrix(host, metric) for metric in (BANDWIDTH, LATENCY)}
    pairs: dict[tuple[int, int], Row] = {}
    left_out: list[Row] = []
    for metric, matrix in found.items():
        for cell in matrix.cells if matrix else ():
            ends = {"initiator_node": cell.node, "target_node": _number(cell.target)}
            values = {"relation": cell.relation, BANDWIDTH: None, LATENCY: None}
            pair = pairs.setdefault((cell.node, _number(cell.target)), {**ends, **values})
            pair[metric] = asdict(cell.estimate)
        for (node, target), reason in matrix.missing.items() if matrix else ():
            ends = {"initiator_node": node, "target_node": _number(target)}
            left_out.append({**ends, "metric": metric, "reason": reason})
    return {
        "measured": {metric: matrix and matrix.source for metric, matrix in found.items()},
        "placements": [pair for _, pair in sorted(pairs.items())],
        "left_out": left_out,
    }


def _number(node: str) -> int:
    """Return the number of a node: 3 of node3."""
    return int(node.removeprefix("node"))


def _drive_sets(host: MeasuredHost) -> Iterator[Row]:
    """Yield each drive set with the initiators that read it, the best initiator first.

    Initiators of one kind are compared with each other. If several experiments measured the set,
    the experiment with the most initiators counts. Ratios to the best initiator are paired by
    block.
    """
    rows = host.measurements.single_load_rows().where(metric=BANDWIDTH).valid_rows()
    rows = rows.select(rows.rows["drives"].notna())
    cell_columns = [*POINT, *LOAD]
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
                    "initiator_nodes": _nodes(cell["initiator_nodes"]),
                    "relation": cell["relation"],
                    BANDWIDTH: _estimate(cell),
                    "ratio_to_best": asdict(ratio) if ratio.n else None,
                }
            )
        yield {
            "target": target,
            "drives": int(first["drives"]),
            "drive_nodes": _nodes(first["target_nodes"]),
            "file_backed": bool(first["file_backed"]),
            "experiment": first["experiment"],
            "benchmark": benchmark,
            "initiator_kind": kind,
            "ranked": ranked,
        }


def _nodes(text: object) -> list[int]:
    return list(parse_cpu_list(text_or_none(text) or ""))


def _interference(host: MeasuredHost) -> Iterator[Row]:
    """Yield the value of each load beside loads with other names, as a ratio to the load alone."""
    columns = ["load", "kernel", "initiator", "target"]
    for _, cell in summarise_corun_to_alone_ratios(host.measurements).iterrows():
        others = host.measurements.other_loads(cell)
        if others.empty or cell["n"] == 0:
            continue
        yield {
            **_texts(cell, ["experiment", "point", *columns, "metric"]),
            "less_is_better": less_is_better(cell["metric"]),
            "beside": [
                {
                    **_texts(other, columns),
                    "relation": _nearest_relation(host.topology, cell, other),
                }
                for _, other in others.iterrows()
            ],
            "factors": parse_levels_json(cell["factors"]),
            "ratio_to_alone": _estimate(cell),
        }


def _texts(row: pd.Series, columns: Sequence[str]) -> Row:
    return {name: text_or_none(row[name]) for name in columns}


def _by_relation(cells: Iterable[Row]) -> Iterator[Row]:
    """Yield the worst slowdown of a load for each co-running load and its nearest relation."""
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
    """Return the nearest relation between any nodes of the initiators of two loads."""
    own, theirs = (parse_cpu_list(load["initiator_nodes"] or "") for load in (cell, other))
    relations: Iterable[str] = (topology.node_relation(a, b) for a in own for b in theirs)
    return min(relations, key=_NEAREST_FIRST.index, default="unknown")


@dataclass(frozen=True)
class InterleaveWeightsExport:
    """Interleave weights of a host."""

    origin: dict[str, str | None]  # see `MeasuredHost.origin`
    measured: str  # source of the bandwidths, see `MainMatrix.source`
    # Name of a set of workers (node0, package1, all) -> its weights.
    sets: dict[str, PlacementAdvice]
    left_out: dict[str, str]  # name of a set of workers -> why it has no weights

    def to_json(self) -> dict[str, object]:
        """Return the document of `chaosity export weights --json`."""
        return {
            "schema_version": _SCHEMA,
            **self.origin,
            "command": f"{self.origin['command']} --json",
            "measured": self.measured,
            "worker_sets": {name: advice.to_json() for name, advice in self.sets.items()},
            "left_out": self.left_out,
        }


def interleave_weights_of_host(host: MeasuredHost, dwp: float = 0.0) -> InterleaveWeightsExport:
    """Return weights for these workers: each node, each package, and all nodes.

    Raises:
        UserError: no pair of nodes was measured, `dwp` (data-to-worker proximity) is not in 0 to 1,
            or the host is simulated.
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
        if workers in seen:  # equal sets occur once
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
