"""Open the map of a host: its results, with the model that fits them.

A fit takes seconds to minutes, so it is kept in the folder of the results until they change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from chaosity import __version__
from chaosity.advice.machine_map import MachineMap
from chaosity.advice.unexplained_values import measured_pairs_over_model, with_slow_links
from chaosity.components.component_history import read_component_histories
from chaosity.design.host_plan import PlannedHost
from chaosity.errors import MALFORMED
from chaosity.records.point_types import Point
from chaosity.records.record_files import read_regular_file, write_atomically
from chaosity.result_folders import measured_table
from chaosity.simulation.machine_description import read_machine_description
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, configuration_name
from chaosity.twin.fit_results import fit_results, read_folder_to_fit
from chaosity.twin.fitted_description import FittedMachine, named_description, read_fitted

MODEL_FILE = "model.json"


def open_map(folder: Path) -> MachineMap:
    """Return the map of a host in one configuration.

    The first call fits the model, and keeps it in `model.json` of the folder if it may write there.

    Args:
        folder: ``results/<host>/<configuration>`` of a run, also of a run with a budget.

    Raises:
        UserError: the folder is not that of a run, or no bandwidth of memory was measured.
    """
    measured, points, topology = read_folder_to_fit(folder)
    fitted = _kept_or_new_fit(folder, measured, points, topology)
    drives = {
        drive["component"]: drive
        for point in points
        for load in point["loads"]
        for drive in load["target"]["drives"]
    }
    return MachineMap(
        *(topology, with_slow_links(fitted, measured, points, topology), drives),
        measured.is_simulated,
        measured_pairs_over_model(measured, points, topology, fitted),
        _stale_components(folder, measured, points),
    )


def open_described_machine(machine: Path, topology_file: Path) -> MachineMap:
    """Return the map of a described machine, such as the output of `chaosity fit`.

    Values have no intervals if the description does not say how sure its numbers are. The machine
    has the drives of its topology.

    Args:
        machine: the description, a YAML file.
        topology_file: its topology, an XML file of hwloc.

    Raises:
        UserError: a file is not readable or wrong.
    """
    topology = discover_topology(str(topology_file))
    fitted = read_fitted(read_machine_description(machine, topology), str(machine))
    host = PlannedHost(
        machine.stem, configuration_name(topology), topology, {"chaosity_simulated": machine.stem}
    )
    planned = host.drives_to_measure(topology_file.parent)
    drives = {drive.component: drive.point_entry for drive in planned}
    return MachineMap(topology, fitted, drives, is_simulated=True)


def _kept_or_new_fit(
    folder: Path, measured: Measurements, points: Sequence[Point], topology: Topology
) -> FittedMachine:
    """Return the model that fits the results; it is read if it is kept and they are the same."""
    digest = hashlib.sha256(__version__.encode())
    for path in (measured_table(folder), folder / "topology.json"):
        digest.update(read_regular_file(path))
    key, kept = digest.hexdigest(), folder / MODEL_FILE
    with suppress(OSError, *MALFORMED):
        document = json.loads(read_regular_file(kept))
        if document["of_results"] == key:
            return read_fitted(document["machine"], str(kept))
    fitted = fit_results(folder, measured, points, topology)
    host = folder.resolve()
    machine = named_description(
        *(fitted, "fitted", host.parent.name, host.name), simulated=measured.is_simulated
    )
    with suppress(OSError):  # the results of others may be read only
        write_atomically(kept, json.dumps({"of_results": key, "machine": machine}) + "\n")
    return fitted


def _stale_components(
    folder: Path, measured: Measurements, points: Sequence[Point]
) -> tuple[str, ...]:
    """Return the components that changed after a point with them was measured."""
    since = {
        name: datetime.fromisoformat(states[-1].since)
        for name, states in read_component_histories(folder / "components").items()
        if len(states) > 1
    }
    if not since:
        return ()
    rows = measured.valid_rows().rows.dropna(subset=["measured_at"])
    last = rows.groupby(["experiment", "point"])["measured_at"].min()
    stale = {
        name
        for point in points
        if (place := (point["experiment"], point["point"])) in last.index
        for name in point["components"]
        if name in since and datetime.fromisoformat(last[place]) < since[name]
    }
    return tuple(sorted(stale))
