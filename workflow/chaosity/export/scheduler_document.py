"""What a scheduler needs: where memory and drives are best reached from, and what company costs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from chaosity.export.measured_host import MeasuredHost, interval, select_node_measurements, text
from chaosity.statistics import (
    LOAD,
    POINT,
    corun_slowdown,
    estimate,
    less_is_better,
    summarise,
    valid,
)
from chaosity.store.node_matrix import BANDWIDTH, LATENCY
from chaosity.topology import Topology, parse_cpu_list

SCHEMA_VERSION = 1
_CELL = (*POINT, *LOAD)
_NEAREST_FIRST = ("same_node", "same_package", "other_package", "unknown")


def placement_document(host: MeasuredHost) -> dict[str, Any]:
    """The document of `chaosity export json`, see ``workflow/schemas/placement.schema.yaml``.

    Units stand in the keys. Each number has its n and its 95 % interval, null for n = 1.
    """
    cells = list(_interference(host))
    return {
        "schema_version": SCHEMA_VERSION,
        **host.origin,
        "memory": _memory(host),
        "drive_sets": list(_drive_sets(host)),
        "interference": {"by_relation": list(_by_relation(cells)), "cells": cells},
    }


def _memory(host: MeasuredHost) -> dict[str, Any]:
    """Each pair of nodes with what was measured between them."""
    found = {metric: select_node_measurements(host, metric) for metric in (BANDWIDTH, LATENCY)}
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    left_out = []
    for metric, cells in found.items():
        if cells is None:
            continue
        for initiator, target, cell in cells.valid:
            pair = pairs.setdefault((initiator, target), {BANDWIDTH: None, LATENCY: None})
            pair[metric] = interval(cell)
        left_out += [
            {"initiator_node": row, "target_node": column, "metric": metric, "reason": reason}
            for row, column, reason in cells.missing
        ]
    return {
        "measured": {metric: cells and cells.words for metric, cells in found.items()},
        "placements": [
            {
                "initiator_node": initiator,
                "target_node": target,
                "relation": host.topology.relation(initiator, target),
                **values,
            }
            for (initiator, target), values in sorted(pairs.items())
        ],
        "left_out": left_out,
    }


def _drive_sets(host: MeasuredHost) -> Iterator[dict[str, Any]]:
    """Each set of drives, with the initiators that read it, the best first.

    Initiators of one kind are compared with each other. What several experiments measured counts
    in the one that read it from most places.
    """
    rows = host.alone
    rows = valid(rows[(rows["metric"] == BANDWIDTH) & rows["drives"].notna()])
    blocks = {
        key: own.set_index("replicate")["value"]
        for key, own in rows.groupby(list(_CELL), sort=False)
    }
    keys = ["target", "initiator_kind", "benchmark"]
    for (target, kind, benchmark), cells in summarise(rows).groupby(keys, sort=False):
        places = cells.groupby("experiment", sort=False)["initiator"].nunique()
        own = cells[cells["experiment"] == places.idxmax()]
        first = own.iloc[0]
        yield {
            "target": target,
            "drives": int(first["drives"]),
            "drive_nodes": list(parse_cpu_list(text(first["target_nodes"]) or "")),
            "file_backed": bool(first["file_backed"]),
            "experiment": first["experiment"],
            "benchmark": benchmark,
            "initiator_kind": kind,
            "ranked": list(_ranked(own.sort_values("median", ascending=False), blocks)),
        }


def _ranked(
    cells: pd.DataFrame, blocks: Mapping[tuple[str, ...], pd.Series]
) -> Iterator[dict[str, Any]]:
    """Initiators in the cells' order, each also as a ratio to the first within replicate blocks."""
    values = [blocks[tuple(cell)] for cell in cells[list(_CELL)].itertuples(index=False)]
    for (_, cell), own in zip(cells.iterrows(), values, strict=True):
        ratio = estimate((own / values[0]).dropna())
        yield {
            "initiator": cell["initiator"],
            "initiator_nodes": list(parse_cpu_list(text(cell["initiator_nodes"]) or "")),
            "relation": cell["relation"],
            BANDWIDTH: interval(cell),
            "ratio_to_best": asdict(ratio) if ratio.n else None,
        }


def _interference(host: MeasuredHost) -> Iterator[dict[str, Any]]:
    """What each load has left beside loads of another role, as a ratio to the same load alone."""
    loads = host.tidy.drop_duplicates(list(_CELL))
    beside = dict(list(loads.groupby(list(POINT), sort=False)))
    for _, cell in corun_slowdown(host.tidy).iterrows():
        others = beside[tuple(cell[list(POINT)])]
        others = others[others["load"] != cell["load"]]
        if others.empty or cell["n"] == 0:
            continue
        yield {
            "experiment": cell["experiment"],
            "point": cell["point"],
            "load": cell["load"],
            "kernel": text(cell["kernel"]),
            "initiator": cell["initiator"],
            "target": cell["target"],
            "metric": cell["metric"],
            "less_is_better": less_is_better(cell["metric"]),
            "beside": [
                {
                    "load": other["load"],
                    "kernel": text(other["kernel"]),
                    "initiator": other["initiator"],
                    "target": other["target"],
                    "relation": _nearest(host.topology, cell["initiator_nodes"], other),
                }
                for _, other in others.iterrows()
            ],
            "factors": json.loads(cell["factors"] or "{}"),
            "ratio_to_alone": interval(cell),
        }


def _by_relation(cells: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The worst that company does to a load, by who the company is and how near it is."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        load = (cell["load"], cell["kernel"], cell["metric"], cell["less_is_better"])
        for near in {(one["load"], one["relation"]) for one in cell["beside"]}:
            groups.setdefault((*load, *near), []).append(cell)
    for (load, kernel, metric, less, beside, relation), own in groups.items():
        pick = max if less else min
        worst = pick(own, key=lambda cell: cell["ratio_to_alone"]["median"])
        yield {
            "load": load,
            "kernel": kernel,
            "metric": metric,
            "less_is_better": less,
            "beside": beside,
            "relation": relation,
            "cells": len(own),
            "worst": {"point": worst["point"], "ratio_to_alone": worst["ratio_to_alone"]},
        }


def _nearest(topology: Topology, nodes: str | None, other: pd.Series) -> str:
    """How a load lies to another: the nearest of any of their initiators' nodes."""
    own = parse_cpu_list(nodes or "")
    theirs = parse_cpu_list(other["initiator_nodes"] or "")
    found: Iterable[str] = (topology.relation(a, b) for a in own for b in theirs)
    return min(found, key=_NEAREST_FIRST.index, default="unknown")
