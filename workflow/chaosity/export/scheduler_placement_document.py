"""Make JSON for schedulers: best nodes for memory and drives, slowdown of co-running loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from chaosity.cpusets import parse_cpu_list
from chaosity.export.host_measurements_for_export import (
    MeasuredHost,
    select_most_complete_node_measurements,
    text_or_none,
)
from chaosity.export.main_matrices import origin_of_export
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.corun_interference import summarise_corun_to_alone_ratios
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import LOAD, POINT, less_is_better, parse_levels_json
from chaosity.store.read_node_matrix_csv import BANDWIDTH, LATENCY
from chaosity.store.tidy_table_parquet import Row
from chaosity.topology.topology_model import Topology

SCHEMA_VERSION = 1
_CELL = (*POINT, *LOAD)
_NEAREST_FIRST = ("same_node", "same_package", "other_package", "unknown")


def build_placement_document(host: MeasuredHost) -> Row:
    """Return the document of `chaosity export json`, see ``schemas/placement.schema.yaml``.

    Units are in the keys. Each number has its n and its 95 % interval, null for n = 1.
    """
    cells = list(_interference(host))
    return {
        "schema_version": SCHEMA_VERSION,
        **origin_of_export(host, "json"),
        "memory": _memory(host),
        "drive_sets": list(_drive_sets(host)),
        "interference": {"by_relation": list(_by_relation(cells)), "cells": cells},
    }


def _estimate(cell: pd.Series) -> Row:
    """Return the estimate in a row of `summarise_cells`."""
    return asdict(Estimate.of_cell(dict(cell)))


def _memory(host: MeasuredHost) -> Row:
    """Return each pair of nodes with its measured bandwidth and latency."""
    found = {
        metric: select_most_complete_node_measurements(host, metric)
        for metric in (BANDWIDTH, LATENCY)
    }
    pairs: dict[tuple[int, int], dict[str, Row | None]] = {}
    left_out: list[Row] = []
    for metric, cells in found.items():
        if cells is None:
            continue
        for initiator, target, cell in cells.valid_cells:
            pair = pairs.setdefault((initiator, target), {BANDWIDTH: None, LATENCY: None})
            pair[metric] = _estimate(cell)
        left_out += [
            {"initiator_node": row, "target_node": column, "metric": metric, "reason": reason}
            for row, column, reason in cells.missing_cells
        ]
    return {
        "measured": {metric: cells and cells.source_text for metric, cells in found.items()},
        "placements": [
            {
                "initiator_node": initiator,
                "target_node": target,
                "relation": host.topology.node_relation(initiator, target),
                **values,
            }
            for (initiator, target), values in sorted(pairs.items())
        ],
        "left_out": left_out,
    }


def _drive_sets(host: MeasuredHost) -> Iterator[Row]:
    """Yield each drive set with the initiators that read it, the best initiator first.

    Initiators of one kind are compared with each other. If several experiments measured the set,
    the experiment with the most initiators counts.
    """
    rows = host.measurements.single_load_rows().where(metric=BANDWIDTH).valid_rows()
    rows = rows.select(rows.rows["drives"].notna())
    blocks = {
        key: part.rows.set_index("replicate")["value"]
        for key, part in rows.groups_by_columns(list(_CELL))
    }
    keys = ["target", "initiator_kind", "benchmark"]
    for (target, kind, benchmark), cells in summarise_cells(rows).groupby(keys, sort=False):
        initiators = cells.groupby("experiment", sort=False)["initiator"].nunique()
        own = cells[cells["experiment"] == initiators.idxmax()]
        first = own.iloc[0]
        yield {
            "target": target,
            "drives": int(first["drives"]),
            "drive_nodes": list(parse_cpu_list(text_or_none(first["target_nodes"]) or "")),
            "file_backed": bool(first["file_backed"]),
            "experiment": first["experiment"],
            "benchmark": benchmark,
            "initiator_kind": kind,
            "ranked": list(_ranked(own.sort_values("median", ascending=False), blocks)),
        }


def _ranked(cells: pd.DataFrame, blocks: Mapping[tuple[Any, ...], pd.Series]) -> Iterator[Row]:
    """Yield initiators in the order of the cells, with the ratio to the first, paired by block."""
    values = [blocks[tuple(cell)] for cell in cells[list(_CELL)].itertuples(index=False)]
    for (_, cell), own in zip(cells.iterrows(), values, strict=True):
        ratio = Estimate.of_values((own / values[0]).dropna())
        yield {
            "initiator": cell["initiator"],
            "initiator_nodes": list(parse_cpu_list(text_or_none(cell["initiator_nodes"]) or "")),
            "relation": cell["relation"],
            BANDWIDTH: _estimate(cell),
            "ratio_to_best": asdict(ratio) if ratio.n else None,
        }


def _interference(host: MeasuredHost) -> Iterator[Row]:
    """Yield the slowdown of each load by loads of another role, as a ratio to the load alone."""
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
