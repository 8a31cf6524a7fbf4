"""Open the map of a host: its results, the fitted model, and values that the model misses.

A fit takes seconds to minutes, so the fitted model is kept in the folder of the results until the
results change.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from chaosity import __version__
from chaosity.advice.machine_map import MachineMap
from chaosity.advice.requests import BANDWIDTH, LATENCY
from chaosity.components import (
    components_changed_since,
    read_component_histories,
)
from chaosity.design.host_plan import PlannedHost
from chaosity.documents.checked_yaml import check_document
from chaosity.documents.machines import MachineFile
from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, UserError
from chaosity.records.record_files import read_regular_file, time_in_file_name, write_atomically
from chaosity.records.record_format import Point, point_key
from chaosity.result_folders import existing_tidy_table
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.topology.topology_model import Topology, configuration_name
from chaosity.twin.fit_results import ResultsToFit, read_described_machine
from chaosity.twin.fitted_description import (
    FittedMachine,
    fitted_machine_of_description,
    named_description,
)
from chaosity.twin.machine_parameters import can_be_fitted, model_with_values
from chaosity.twin.model_values import (
    ALL_KINDS_OF_VALUES,
    cell_medians,
    departs,
    model_values,
)

# Smallest size in bytes of data that no cache can contain; caches have other parameters.
_LEAST_BYTES_BEYOND_CACHES = 64 << 20
# Metric -> kind of the initiators from which the value of a pair of nodes is taken.
_INITIATOR_KIND_OF_METRIC = {BANDWIDTH: "node", LATENCY: "pu"}


# (node of the cores, node of the memory) -> a number of this pair of nodes, see `MachineMap`.
_ValueByNodePair = dict[tuple[int, int], float]


def _find_slow_pairs(
    measured: Measurements, points: Sequence[Point], topology: Topology, fitted: FittedMachine
) -> tuple[_ValueByNodePair, _ValueByNodePair]:
    """Return the slow rates and slow latencies of a map, see `MachineMap`.

    The arguments are those of `map_of_results`. Only measurements with data that no cache can
    contain count.
    """
    alone = [point for point in points if len(point["loads"]) == 1 and can_be_fitted(point)]
    model = model_with_values(fitted.values, topology, fitted.description)
    # Metric, node of the cores, node of the memory -> measured and predicted values.
    found: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    for (number, _, metric), (median, _, _) in cell_medians(measured, alone).items():
        [load] = alone[number]["loads"]
        begin, memory = load["initiator"], load["placement"]["memory_nodes"]
        if (
            not load["target"]["drives"]
            and load["memory_bytes"] >= _LEAST_BYTES_BEYOND_CACHES
            and begin["kind"] == _INITIATOR_KIND_OF_METRIC.get(metric)
            and len(begin["nodes"]) == len(memory) == 1
        ):
            predicted = model_values(model, [load])[load["name"], metric]
            found[metric, begin["nodes"][0], memory[0]].append((median, predicted))
    rates, latencies = _ValueByNodePair(), _ValueByNodePair()
    for (metric, node, target), own in found.items():
        away = fmean(math.log(median / predicted) for median, predicted in own)
        if departs(away, fitted.scale) and (away > 0) == less_is_better(metric):
            if metric == LATENCY:
                latencies[node, target] = math.exp(away)
            else:
                rates[node, target] = max(median for median, _ in own)
    return rates, latencies


MODEL_FILE = "model.json"


def open_map(folder: Path, tell: Callable[[str], None] = lambda _: None) -> MachineMap:
    """Return the map of a host in one configuration.

    The first call fits the model, and writes `model.json` in the folder if the folder is writable.

    Args:
        folder: ``results/<host>/<configuration>`` of a run, also of a run with a budget.
        tell: a function that is called with a sentence before the model is fitted, since fitting
            takes minutes.

    Raises:
        UserError: the folder has no results of a run, or no bandwidth of memory was measured.
    """
    results = ResultsToFit.read(folder)
    fitted = _read_or_fit_model(results, tell)
    return replace(
        map_of_results(results.measured, results.points, results.topology, fitted),
        stale_components=_stale_components(results),
        unusable=results.unusable,
        host=folder.resolve().parent.name,
    )


def map_of_results(
    measured: Measurements, points: Sequence[Point], topology: Topology, fitted: FittedMachine
) -> MachineMap:
    """Return the map of a host from its results and its fitted model.

    Args:
        measured: the tidy table of the host.
        points: the planned points of the host.
        topology: the topology of the host.
        fitted: the fitted machine.
    """
    slow_rates, slow_latencies = _find_slow_pairs(measured, points, topology, fitted)
    return MachineMap(
        topology=topology,
        fitted=fitted,
        drives={
            drive["component"]: drive
            for point in points
            for load in point["loads"]
            for drive in load["target"]["drives"]
        },
        is_simulated=measured.is_simulated,
        slow_rates=slow_rates,
        slow_latencies=slow_latencies,
    )


def open_described_machine(machine: Path, topology_file: Path) -> MachineMap:
    """Return the map of a described machine, such as the output of `chaosity fit`.

    If the description contains no uncertainties, values have no intervals. The machine has the
    drives of its topology.

    Args:
        machine: the description, a YAML file.
        topology_file: the topology of the machine, an XML file of hwloc.

    Raises:
        UserError: a file is not readable or wrong.
    """
    fitted, topology = read_described_machine(machine, topology_file)
    host = PlannedHost(
        machine.stem, configuration_name(topology), topology, {"chaosity_simulated": machine.stem}
    )
    planned = host.drives_to_measure(topology_file.parent)
    drives = {drive["component"]: drive for drive in planned}
    # The description was written by hand, or fitted to a simulated host.
    simulated = fitted.description.get("fitted", {}).get("simulated", True)
    return MachineMap(topology, fitted, drives, is_simulated=simulated)


def _read_or_fit_model(results: ResultsToFit, tell: Callable[[str], None]) -> FittedMachine:
    """Return the model of the results from the file of an earlier call, or fit the model."""
    folder = results.folder
    digest = hashlib.sha256(__version__.encode())
    parts = (folder / "components").glob("*.json")
    for path in (existing_tidy_table(folder), folder / "topology.json", *sorted(parts)):
        digest.update(read_regular_file(path))
    for point in results.points:
        digest.update(point["definition"].encode())
    key, kept = digest.hexdigest(), folder / MODEL_FILE
    # If the file of an earlier call is damaged or outdated, the model is fitted again.
    with suppress(OSError, UserError, *ERRORS_OF_MALFORMED_DOCUMENTS):
        document = json.loads(read_regular_file(kept))
        if document["of_results"] == key:
            check_document(document["machine"], MachineFile, str(kept))
            found = fitted_machine_of_description(document["machine"], results.topology, str(kept))
            if found.parameters and ALL_KINDS_OF_VALUES in found.errors:
                return found
    tell(f"Fitting the model to the results, once, can take minutes. The model is kept in {kept}.")
    fitted, host = results.fit(), folder.resolve()
    machine = named_description(
        *(fitted, "fitted", host.parent.name, host.name), simulated=results.measured.is_simulated
    )
    with suppress(OSError):  # results of another user may be read-only
        write_atomically(kept, json.dumps({"of_results": key, "machine": machine}) + "\n")
    return fitted


def _stale_components(results: ResultsToFit) -> tuple[str, ...]:
    """Return the components that changed after a point with them was measured."""
    histories = read_component_histories(results.folder / "components")
    rows = results.measured.valid_rows().rows.dropna(subset=["measured_at"])
    first = rows.groupby(["experiment", "point"])["measured_at"].min()
    stale = {
        name
        for point in results.points
        if (place := point_key(point)) in first.index
        for name in components_changed_since(
            time_in_file_name(first[place]), point["components"], histories
        )
    }
    return tuple(sorted(stale))
