"""All that is wrong with a host, from its tidy table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import (
    ASYMMETRY,
    REMOTE_BETTER,
    SLIT_MISMATCH,
    SLOW_COMPONENT,
    SLOW_PATH,
    Anomaly,
    Findings,
)
from chaosity.anomalies.cell_groups import slices
from chaosity.anomalies.drive_sets import set_anomalies
from chaosity.anomalies.matrix_structure import ENOUGH_CELLS, PackageNodes
from chaosity.anomalies.node_matrix import analyse_matrix
from chaosity.anomalies.size_sweeps import CONCURRENT, sweep_anomalies, sweep_rows
from chaosity.anomalies.slow_drives import drive_anomalies
from chaosity.anomalies.slow_initiators import initiator_anomalies
from chaosity.statistics import (
    SLOW_INITIATOR_RATIO,
    is_performance,
    less_is_better,
    load_counts,
    plain,
    valid,
)
from chaosity.store import node_matrices
from chaosity.topology import parse_cpu_list
from chaosity.units import format_count, metric_words

# What says the same of one place by another kernel, metric or experiment is told once, with this
# many sentences on the others.
_MOST_ALSO = 3


@dataclass(frozen=True)
class HostParts:
    """What is known of a host beside its measurements.

    Attributes:
        packages: nodes of each package; None when unknown.
        models: model of each drive, by its component.
        kinds: kind of core of each processing unit by its name, where there are several kinds.
        words: what a component is, by its name, for sentences (model, serial, slot).
    """

    packages: PackageNodes | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


def host_parts(
    topology: Mapping[str, Any] | None, components: Mapping[str, Mapping[str, Any]] | None
) -> HostParts:
    """From the files of discovery.

    Args:
        topology: `Topology.to_json()`.
        components: documents of the components by name.
    """
    models, words = {}, {}
    for name, document in (components or {}).items():
        if document.get("component") == "drive" and document.get("model"):
            models[name] = str(document["model"])
            node = document.get("node")
            words[name] = (
                f"{document['model']}, serial {document.get('serial') or 'unknown'}, "
                f"{'node unknown' if node is None else f'node {node}'}"
            )
    return HostParts(_packages(topology or {}), models, _kinds(topology or {}), words)


def _packages(topology: Mapping[str, Any]) -> PackageNodes | None:
    """Nodes with processing units, by package; None where a node spans packages."""
    found: dict[int, list[int]] = {}
    for node in topology.get("nodes", []):
        if node["initiator"] and node["target"]:
            if node["package"] is None:
                return None
            found.setdefault(int(node["package"]), []).append(int(node["os_index"]))
    sizes = {len(nodes) for nodes in found.values()}
    if len(found) < 2 or len(sizes) != 1:
        return None
    return tuple(tuple(sorted(nodes)) for _, nodes in sorted(found.items()))


def _kinds(topology: Mapping[str, Any]) -> dict[str, str]:
    """Kind of core of each processing unit, where the machine has more than one kind."""
    kinds = topology.get("cpu_kinds", [])
    if len(kinds) < 2:
        return {}
    return {
        f"pu{cpu}": str(number)
        for number, kind in enumerate(kinds)
        for cpu in parse_cpu_list(str(kind["cpus"]))
    }


def analyse_host(tidy: pd.DataFrame, machine: HostParts | None = None) -> Findings:
    """What is wrong with one host in one configuration.

    Args:
        tidy: its tidy table.
        machine: what else is known of it.

    Returns:
        Anomalies, the worst first; those that say the same of one place are one.
    """
    machine = machine or HostParts()
    table = plain(tidy)
    table = table[table["metric"].map(is_performance).astype(bool)]
    rows = valid(table[load_counts(table) == 1]) if len(table) else table
    looked = _Looked()
    structure = "not measured"
    if len(rows):
        memory = _comparable(rows[rows["target_kind"] == "node"])
        structure = _memory(memory, machine, looked)
        _storage(rows[~rows["file_backed"].astype(bool)], machine, looked)
        sweeps = sweep_rows(valid(table)[lambda all_: all_["metric"].map(less_is_better)])
        if len(sweeps):
            looked.at(
                "latency over sizes",
                list(sweep_anomalies(sweeps)),
                [100.0 * (SLOW_INITIATOR_RATIO - 1.0)],
            )
    merged = sorted(_folded(_merged(looked.found)), key=lambda one: -relative_loss(one))
    return Findings(
        metric=None,
        anomalies=tuple(merged),
        classes=(),
        structure=structure,
        packages=machine.packages,
        verdict=_verdict(merged, looked.checked),
        detectable_percent=max(looked.least) if looked.least else None,
        noise_percent=None,
        checked=tuple(looked.checked),
    )


class _Looked:
    """What was looked at, what was found, and from which loss on."""

    def __init__(self) -> None:
        self.found: list[Anomaly] = []
        self.checked: list[str] = []
        self.least: list[float] = []

    def at(self, words: str, found: Iterable[Anomaly], least: Sequence[float]) -> None:
        """Add.

        Args:
            words: what was looked at; empty when there was nothing to compare.
            found: anomalies.
            least: of each table the loss of a single one, in per cent, that would have been found.
        """
        self.found += found
        if words and least:
            typical = float(np.median(least))
            self.least.append(typical)
            words = f"{words}, from {typical:.0f} % on"
        self.checked += [words] if words else []


def _memory(memory: pd.DataFrame, machine: HostParts, looked: _Looked) -> str:
    """Matrices of nodes, and what is no matrix by itself.

    Returns:
        The structure that most cells were taken to have.
    """
    # What is too sparse is compared by the topology instead.
    matrices = [
        (where, one) for where, one in node_matrices(memory) if one.measured_share >= ENOUGH_CELLS
    ]
    seen = {id_of(where) for where, _ in matrices}
    distances = _distances(memory)
    by_latency = [where for where, _ in matrices if less_is_better(str(where["metric"]))]
    found, least, structures = [], [], []
    for where, matrix in matrices:
        # A distance is about time; bandwidth is asked only where no latency was measured.
        table_said = distances if not by_latency or where in by_latency else None
        one = analyse_matrix(matrix, machine.packages, table_said, looks=len(matrices))
        found += [replace(anomaly, where=where) for anomaly in one.anomalies]
        least += [one.detectable_percent] if one.detectable_percent is not None else []
        structures += [one.structure] * len(matrix.samples)
    table_too = " and the distance table" if distances else ""
    said = (
        f"{format_count(len(matrices), 'matrix', 'matrices')} of nodes{table_too}"
        if matrices
        else ""
    )
    looked.at(said, found, least)
    others = [own for where, own in slices(memory) if id_of(where) not in seen]
    if others:
        anomalies, number, least = initiator_anomalies(pd.concat(others), machine.kinds)
        looked.at(_among(number, "initiator"), anomalies, least)
    return max(structures, key=structures.count) if structures else "not measured"


def _storage(rows: pd.DataFrame, machine: HostParts, looked: _Looked) -> None:
    """Drives and sets of drives."""
    single = rows[rows["target_kind"] == "drive"]
    anomalies, number, least = drive_anomalies(single, machine.models)
    looked.at(_among(number, "drive"), [_with_words(one, machine) for one in anomalies], least)
    sets = rows[rows["drives"].notna()]
    number = sets["target"].nunique()
    looked.at(format_count(number, "drive set") if number > 1 else "", set_anomalies(sets), [])


def _among(number: int, noun: str) -> str:
    return f"{format_count(number, noun)} among siblings" if number else ""


def id_of(where: Mapping[str, str | None]) -> tuple[str | None, ...]:
    """A slice as a key."""
    return tuple(where.values())


def _comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows in which one load of an initiator is like another's of its sibling.

    Of a sweep over sizes the largest counts, which is memory. A line that moves from core to core
    has a responder, so its pairs are no initiators and targets. What others published of loads that
    ran together has a row a load, and says so in `mode`.
    """
    if rows.empty:
        return rows
    factors = rows["factors"].map(lambda text: json.loads(text or "{}"))
    size = pd.Series([float(one.get("bytes") or 0.0) for one in factors], rows.index)
    largest = size.groupby([rows["experiment"], rows["metric"]]).transform("max")
    alike = [
        "responder" not in one and one.get("mode") != CONCURRENT and "p99" not in metric
        for one, metric in zip(factors, rows["metric"], strict=True)
    ]
    return rows[(size == largest).to_numpy() & np.array(alike)]


def _distances(rows: pd.DataFrame) -> dict[tuple[int, int], float]:
    """The firmware's distance of each pair of nodes, as the rows have it."""
    known = rows[rows["distance"].notna()]
    found = {}
    for column in ("initiator_nodes", "target_nodes"):
        known = known[known[column].astype(str).str.fullmatch(r"\d+")]
    for source, sink, distance in zip(
        known["initiator_nodes"], known["target_nodes"], known["distance"], strict=True
    ):
        found[int(source), int(sink)] = float(distance)
    return found


def _with_words(one: Anomaly, machine: HostParts) -> Anomaly:
    words = [
        f"{name} is a {machine.words[name]}." for name in one.components if name in machine.words
    ]
    return replace(one, also=(*one.also, *words[:1])) if words else one


def _merged(found: Iterable[Anomaly]) -> list[Anomaly]:
    """Anomalies of one kind at one place as one: what explains most cells, then the surest.

    A slow component shows in several ways, a node's memory to all nodes by one kernel and to its
    own by another.
    """
    by: dict[object, list[Anomaly]] = {}
    for one in found:
        suspected = one.kind in (SLOW_COMPONENT, SLOW_PATH)
        place = () if suspected else (one.initiator, one.target)
        by.setdefault((one.kind, one.components, place), []).append(one)
    result = []
    for alike in by.values():
        first, *others = sorted(
            alike,
            key=lambda one: (-len(one.cells), _by_units(one), -one.confidence, -relative_loss(one)),
        )
        worse = [(one, anomaly_text.worse(one.metric or "", one.loss_percent)) for one in others]
        said = dict.fromkeys(f"Also by {_of(one)}: {words}." for one, words in worse)
        result.append(replace(first, also=(*first.also, *list(said)[:_MOST_ALSO])))
    return result


def _by_units(one: Anomaly) -> bool:
    """Whether it was seen by some of a node's units; the node itself is told first."""
    return isinstance(one.initiator, str)


def _of(one: Anomaly) -> str:
    kernel = one.where.get("kernel")
    words = metric_words(one.metric or "").lower()
    return f"{words}{f' ({kernel})' if kernel else ''} of {one.where.get('experiment')}"


def _folded(found: Sequence[Anomaly]) -> list[Anomaly]:
    """What another anomaly explains is told there: the reverse direction, a faster neighbour."""
    main = [one for one in found if one.kind not in (ASYMMETRY, REMOTE_BETTER, SLIT_MISMATCH)]
    result = list(main)
    for one in found:
        if one.kind not in (ASYMMETRY, REMOTE_BETTER, SLIT_MISMATCH):
            continue
        causes = [
            cause
            for cause in main
            if (one.kind == ASYMMETRY and set(one.cells) <= set(cause.cells))
            or (one.kind == REMOTE_BETTER and set(one.components) & set(cause.components))
        ]
        if not causes:
            result.append(one)
            continue
        cause = max(causes, key=lambda each: each.confidence)
        at = result.index(cause)
        main[main.index(cause)] = result[at] = replace(cause, also=(*cause.also, one.sentence))
    return result


def relative_loss(one: Anomaly) -> float:
    """A loss as a share of what could be had, so that times and rates can be set in one order."""
    share = one.loss_percent / 100.0
    return share / (1.0 + share) if one.metric and less_is_better(one.metric) else share


def _verdict(found: Sequence[Anomaly], checked: Sequence[str]) -> str:
    if found:
        return f"{format_count(len(found), 'anomaly', 'anomalies')}; the worst: {found[0].sentence}"
    if not checked:
        return "Nothing was measured that could be compared with something that ought to be equal."
    return (
        f"No anomaly was detected in {'; '.join(checked)} (the loss of a single one that would "
        "have been found in 19 of 20 cases)."
    )
