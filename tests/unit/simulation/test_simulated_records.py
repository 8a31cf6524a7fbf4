"""Every experiment on every shipped machine gives valid records, and their values are true."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS, ROOT
from chaosity.runner.metric_values import metric_values_or_reasons
from chaosity.simulation.machine_description import read_machine_description
from chaosity.simulation.machine_model import MachineModel, true_values
from chaosity.simulation.simulated_records import simulate_replicate
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import configuration_name
from machines import TODAY, planned
from published_schemas import schema_errors

MACHINES = {
    path.stem: {
        "epyc_7413": "epyc_7413_nps1",
        "epyc_9575f": "epyc_9575f_nps0",
        "fleet_with_a_slow_host": "xeon_8358",
    }.get(path.stem, path.stem)
    for path in sorted((ROOT / "templates/machines").glob("*.yaml"))
}
# Points of each experiment. Other machines take a minute, so they are in the thorough layer.
QUICK = {"desktop": 12, "xeon_8358": 4}
OTHERS = 4
NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


@functools.cache
def machine(name: str) -> MachineModel:
    """A machine without noise."""
    topology = discover_topology(
        str(ROOT / "templates/machines" / "topologies" / f"{MACHINES[name]}.xml")
    )
    description = read_machine_description(ROOT / "templates/machines" / f"{name}.yaml", topology)
    description = {**description, "noise": {}}
    return MachineModel(description, topology, "host", TODAY)


@functools.cache
def points_of(name: str) -> list:
    topology = machine(name).topology
    config = {
        **read_config(),
        "experiments": NAMES,
        "replicates": 2,
        "sample": dict.fromkeys(NAMES, QUICK.get(name, OTHERS)),
    }
    variables = {"chaosity_simulated": name}
    host = PlannedHost("host", configuration_name(topology), topology, variables)
    return list(plan_host(host, config).points)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.thorough) for name in MACHINES],
)
def test_every_experiment_gives_valid_records_of_the_true_values(name):
    model = machine(name)
    for point in points_of(name):
        record, truths = simulate_replicate(point, 1, model), true_values(point, model)
        assert record["verdict"]["status"] == "valid", (point["point"], record["verdict"]["reason"])
        assert record["origin"] == "simulated"
        assert record["verdict"]["checks"][0]["name"] == "simulated"
        for load, readings in metric_values_or_reasons(record).items():
            for metric, (value, _) in readings.items():
                if metric in truths[load] and value is not None:
                    assert value == pytest.approx(truths[load][metric], rel=2e-3), point["point"]


def test_a_record_has_the_format_of_a_measured_record():
    for point in points_of("xeon_8358")[::5]:
        record = simulate_replicate(point, 1, machine("xeon_8358"))
        assert schema_errors(record, "record") == []


def test_the_same_point_and_replicate_give_the_same_record_but_for_the_time():
    host = planned("desktop", experiments=["memory_bandwidth"])
    point, model = host.points[0], MachineModel(host.machine, host.topology, host.name, TODAY)
    first, again, other = (simulate_replicate(point, number, model) for number in (1, 1, 2))
    assert first["loads"] == again["loads"]
    assert first["loads"] != other["loads"]


def test_results_stay_where_they_are(tmp_path: Path):
    """A simulated host reads and writes nothing but its own results."""
    before = sorted(ROOT.iterdir())
    simulate_replicate(points_of("desktop")[0], 1, machine("desktop"))
    assert sorted(ROOT.iterdir()) == before
