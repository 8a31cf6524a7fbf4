"""Find all anomalies of a host from its tidy table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chaosity.anomalies.anomaly_results import (
    Anomaly,
    Findings,
    adjust_confidence_and_add_doubt,
    no_problems_text,
    reason_for_unusable_results,
    without_disturbed_replicates,
)
from chaosity.anomalies.component_anomalies import (
    AnomalyTestResult,
    find_slow_drives_and_drive_paths,
    find_slow_initiators_and_memory,
    find_slow_l3_domain_links,
    find_slow_links,
    package_read_and_write_bandwidths,
    share_of_weakest_node_by_package,
)
from chaosity.anomalies.drive_set_anomalies import find_slow_drive_sets
from chaosity.anomalies.latency_sweep_anomalies import (
    TEXT_OF_CONCURRENT_MODE,
    find_contention_and_inversions,
    select_latency_size_sweeps,
)
from chaosity.anomalies.matrix_anomalies import analyse_one_of_matrices, undecided_notes
from chaosity.anomalies.matrix_structure import LEAST_SHARE_OF_MEASURED_CELLS, PackageNodes
from chaosity.anomalies.merged_anomalies import (
    HostPlaces,
    merge_findings_of_one_place,
    packages_of_places,
    without_explained_anomalies,
)
from chaosity.place_names import (
    is_spread_target,
    l3_domain_name,
    place_in_words,
    pu_name,
)
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.text_templates import text_of_macro
from chaosity.topology.topology_model import Topology
from chaosity.units import format_count

# Kinds of places that tests cover, in words for the report.
_KINDS_OF_TESTED_PLACES = _MEMORY, _LINKS, _DRIVES, _SETS, _SWEEPS = (
    "memory of the nodes",
    "links between packages",
    "drives",
    "sets of drives",
    "latency over sizes",
)


@dataclass(frozen=True)
class HostComponentFacts:
    """Facts about a host that are not measurements."""

    packages: PackageNodes | None = None  # nodes of each package; None if unknown
    # Node (with or without processing units) -> number of its package in `packages`.
    package_of_node: Mapping[int, int] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)  # component of each drive -> its model
    # Name of a processing unit -> core kind of the unit; empty if there is only one kind.
    core_kinds: Mapping[str, str] = field(default_factory=dict)
    # Node -> name of its first processing unit, which runs loads with a single thread.
    first_units: Mapping[int, str] = field(default_factory=dict)
    # Name of an L3 domain -> its node; only for domains that lie within one node.
    node_of_l3_domain: Mapping[str, int] = field(default_factory=dict)
    # Component -> text with its model, serial number and node.
    descriptions: Mapping[str, str] = field(default_factory=dict)
    # Node -> names of the components of its drives.
    drives: Mapping[int, Sequence[str]] = field(default_factory=dict)


def host_component_facts(
    topology: Topology | None, components: Mapping[str, Mapping[str, Any]] | None
) -> HostComponentFacts:
    """Return the facts in the topology and in the documents of the components, by name."""
    topology = topology or Topology()
    models, descriptions = {}, {}
    drives: dict[int, list[str]] = {}
    for name, document in (components or {}).items():
        if document.get("component") == "drive" and document.get("model"):
            models[name] = str(document["model"])
            node = document.get("node")
            if node is not None:
                drives.setdefault(int(node), []).append(name)
            descriptions[name] = (
                f"{document['model']}, serial {document.get('serial') or 'unknown'}, "
                f"{'node unknown' if node is None else f'node {node}'}"
            )
    kinds = {pu_name(pu): str(kind) for pu, kind in topology.core_kind_of_pu.items()}
    packages = topology.nodes_of_comparable_packages
    numbers = {
        topology.package_of_node[nodes[0]]: number for number, nodes in enumerate(packages or ())
    }
    of_node = {
        node: numbers[package]
        for node, package in topology.package_of_node.items()
        if package in numbers
    }
    first_units: dict[int, str] = {}
    for pu, node in sorted(topology.node_of_pu.items()):
        first_units.setdefault(node, pu_name(pu))
    node_of_l3 = {
        l3_domain_name(domain.index): domain.nodes[0]
        for domain in topology.l3_domains
        if len(domain.nodes) == 1
    }
    return HostComponentFacts(
        packages,
        of_node,
        models,
        kinds,
        first_units,
        node_of_l3,
        descriptions,
        drives,
    )


def why_results_are_unusable(measurements: Measurements) -> str:
    """Return why the results of a host are useless and what to do; "" if they are usable.

    The report and all commands that show results begin with this text. `measurements` is the tidy
    table of the host.
    """
    return reason_for_unusable_results(_valid_rates_and_times(measurements))


def _valid_rates_and_times(measurements: Measurements) -> Measurements:
    return measurements.performance_rows().without_percentiles().valid_rows()


def analyse_host(measurements: Measurements, parts: HostComponentFacts | None = None) -> Findings:
    """Return the findings of a host in one configuration; anomalies of one place are merged.

    Args:
        measurements: the tidy table of the host.
        parts: further facts about the host.
    """
    parts = parts or HostComponentFacts()
    valid = _valid_rates_and_times(measurements)
    unusable = reason_for_unusable_results(valid)
    valid = without_disturbed_replicates(valid)
    rows = valid.single_load_rows()
    has_links = len(parts.packages or ()) > 1
    kinds: dict[str, list[AnomalyTestResult]] = {
        kind: [] for kind in _KINDS_OF_TESTED_PLACES if kind != _LINKS or has_links
    }
    structure, undecided, limits = "not measured", tuple[str, ...](), tuple[str, ...]()
    if len(rows):
        memory = _comparable_rows(rows.where(target_kind=["node", "nodes"]))
        between = package_read_and_write_bandwidths(memory, parts.packages)
        weakest = share_of_weakest_node_by_package(memory, parts.packages)
        rest = memory.select(~memory.rows.index.isin(between.rows.index))
        nodes = rest.where(target_kind="node")
        structure, kinds[_MEMORY], undecided = _check_memory(nodes, parts)
        spread = rows.select(rows.rows["target"].map(is_spread_target).astype(bool))
        kinds[_MEMORY].append(find_slow_l3_domain_links(spread, parts.node_of_l3_domain))
        if _LINKS in kinds:
            kinds[_LINKS].append(find_slow_links(between, weakest))
        # Rows with buffers that are not local to the cores are left out, since the relation of
        # cores and drives does not say how far the data have to go.
        own_buffers = rows.factor_level_of_each_row("buffers").isin([None, "own"])
        drives = rows.select(own_buffers & ~rows.rows["file_backed"].astype(bool))
        kinds[_DRIVES], kinds[_SETS] = _check_drives(drives, parts)
        times = valid.rows["metric"].map(less_is_better).astype(bool)
        sweeps = select_latency_size_sweeps(valid.select(times))
        if len(sweeps):
            found, reasons = find_contention_and_inversions(sweeps)
            limits = tuple(dict.fromkeys(reasons.values()))
            kinds[_SWEEPS].append(found)
    checks = [check for own in kinds.values() for check in own]
    tests_count = sum(check.tests_count for check in checks)
    doubted = [
        adjust_confidence_and_add_doubt(anomaly, tests_count, valid, unusable=bool(unusable))
        for check in checks
        for anomaly in check.anomalies
    ]
    packages = packages_of_places(rows, parts.package_of_node)
    places = HostPlaces(packages, parts.first_units, parts.node_of_l3_domain)
    merged = without_explained_anomalies(merge_findings_of_one_place(doubted), places)
    merged.sort(key=lambda each: -each.loss_as_share_of_better_value * each.confidence)
    certain = [anomaly for anomaly in merged if not anomaly.doubt]
    tested = {
        check.tested: check.typical_detectable_loss_percent(tests_count)
        for check in checks
        if check.tested
    }
    checked = tuple(
        text_of_macro("anomalies", "test", name=name, loss=tested[name]) for name in tested
    )
    untested = tuple(name for name, own in kinds.items() if not any(check.tested for check in own))
    detectable = max((loss for loss in tested.values() if loss is not None), default=None)
    return Findings(
        metric=None,
        verdict=("SIMULATED. " if measurements.is_simulated else "")
        + _make_host_findings_verdict(certain, checked, untested, detectable, unusable),
        structure=structure,
        packages=parts.packages,
        groups=(),
        anomalies=tuple(certain),
        detectable_loss_percent=detectable,
        noise_percent=None,
        notes=(*undecided, *limits),
        checked=checked,
        untested=untested,
        suspicions=tuple(anomaly for anomaly in merged if anomaly.doubt),
        unusable=unusable,
    )


def _check_memory(
    memory: Measurements, parts: HostComponentFacts
) -> tuple[str, list[AnomalyTestResult], tuple[str, ...]]:
    """Return the results of the tests of node matrices and of parts of nodes.

    Returns:
        The structure of most matrices; the results of the tests; the notes on cells that may be
        slow or structural.
    """
    # A matrix with many unmeasured cells is not analysed as a matrix. Instead, its cells are
    # grouped by the topology.
    matrices = [
        (where, matrix)
        for where, matrix in memory.node_matrices()
        if matrix.share_of_measured_cells >= LEAST_SHARE_OF_MEASURED_CELLS
    ]
    distances = _slit_entry_by_node_pair(memory)
    has_latency = any(less_is_better(matrix.metric) for _, matrix in matrices)
    check = AnomalyTestResult()
    structures: list[str] = []
    undecided: list[str] = []
    for where, matrix in matrices:
        # The entries of a SLIT stand for times. So a bandwidth is compared with the SLIT only if no
        # latency was measured.
        slit = distances if less_is_better(matrix.metric) or not has_latency else None
        units = parts.first_units if where.get("initiator_kind") == "pu" else {}
        found, analysis, _ = analyse_one_of_matrices(
            matrix, parts.packages, slit, len(matrices), units
        )
        check.anomalies += [replace(anomaly, where=where) for anomaly in found]
        if analysis.has_comparable_cells:
            check.detectable_losses.append(analysis.smallest_detectable_loss_percent)
        structures += [analysis.structure.description] * len(matrix.samples)
        undecided += [note.rstrip(".") for note in undecided_notes(analysis)]
        check.tests_count += bool(slit)
    if matrices:
        # There are two tests over all matrices: for slow components, and for remote memory that is
        # better than local memory.
        check.tests_count += 2
        number = format_count(len(matrices), "node matrix", "node matrices")
        check.tested = f"{number}{' and the SLIT' if distances else ''}"
    in_matrices = [where for where, _ in matrices]
    others = [part for where, part in memory.comparable_slices() if where not in in_matrices]
    rest = [Measurements.concatenated(others)] if others else []
    facts = parts.core_kinds, parts.first_units
    checks = [check, *(find_slow_initiators_and_memory(rows, *facts) for rows in rest)]
    usual = max(structures, key=structures.count, default="not measured")
    return usual, checks, tuple(dict.fromkeys(undecided))


def _check_drives(
    rows: Measurements, parts: HostComponentFacts
) -> tuple[list[AnomalyTestResult], list[AnomalyTestResult]]:
    """Return the results of the tests of single drives, and of those of drive sets."""
    check = find_slow_drives_and_drive_paths(rows.where(target_kind="drive"), parts.models)
    check.anomalies = [_with_component_description(anomaly, parts) for anomaly in check.anomalies]
    sets = rows.select(rows.rows["drives"].notna())
    slow = check.anomalies
    found = find_slow_drive_sets(sets, parts.packages, parts.models, slow, parts.drives)
    return [check], [found]


def _comparable_rows(rows: Measurements) -> Measurements:
    """Return the rows of loads whose values are comparable between initiators.

    Of a sweep over sizes, only the largest size is kept, since it measures memory. Core-to-core
    transfers are left out, since they are between initiator and responder. In published data, loads
    that ran at the same time (factor `mode`) are left out too.
    """
    if not len(rows):
        return rows
    size = rows.factor_level_of_each_row("bytes").map(lambda value: float(value or 0.0))
    largest = size.groupby([rows.rows["experiment"], rows.rows["metric"]]).transform("max")
    alike = [
        "responder" not in factors and factors.get("mode") not in TEXT_OF_CONCURRENT_MODE
        for factors in rows.factors_of_each_row
    ]
    return rows.select((size == largest).to_numpy() & np.array(alike))


def _slit_entry_by_node_pair(rows: Measurements) -> dict[tuple[int, int], float]:
    """Return (initiator, target) -> entry of the SLIT, for pairs of nodes whose rows have one."""
    known = rows.node_to_node_rows().rows.dropna(subset="distance")
    entries = known[["initiator_node", "target_node", "distance"]]
    return {(int(i), int(j)): float(value) for i, j, value in entries.itertuples(index=False)}


def _with_component_description(anomaly: Anomaly, parts: HostComponentFacts) -> Anomaly:
    """Return the anomaly with a sentence on the first of its components with a description."""
    for name in anomaly.components:
        if name in parts.descriptions:
            words = place_in_words(name)
            sentence = f"{words[:1].upper()}{words[1:]} is a {parts.descriptions[name]}."
            return replace(anomaly, also=(*anomaly.also, sentence))
    return anomaly


def _make_host_findings_verdict(
    found: Sequence[Anomaly],
    checked: Sequence[str],
    untested: Sequence[str],
    detectable: float | None,
    unusable: str,
) -> str:
    if unusable:
        return unusable
    if found:
        return f"{format_count(len(found), 'anomaly', 'anomalies')}; the worst: {found[0].sentence}"
    return no_problems_text(checked, untested, detectable)
