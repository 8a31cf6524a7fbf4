"""Every shipped config plans every experiment on every topology, or says why it cannot."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, ROOT
from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import configuration_name
from shipped_data import REAL_MACHINES

CONFIGS = sorted(path.stem for path in (ROOT / "config").glob("*.yaml"))
TOPOLOGIES = [
    *sorted((ROOT / "tests/data/topologies").glob("*.xml")),
    *sorted((ROOT / "templates/machines/topologies").glob("*.xml")),
    *sorted(REAL_MACHINES.glob("xml/*.xml")),
]
# A Mac, two kinds of cores, HBM without cores, and forbidden processing units.
UNLIKE = [
    path
    for path in TOPOLOGIES
    if path.stem in ("m1-pro-by-hand", "desktop", "xeon-max-2s-hbm-flat", "disallowed")
]
# The machines on which all experiments are planned: these differ in most ways. Of machines that can
# be simulated, the tests of simulated records plan all.
WHOLE = {"m1-pro-by-hand", "xeon-max-2s-hbm-flat", "disallowed", "devices", "memorysidecaches"}
SHORT = ("memory_bandwidth", "latency_matrix", "interference", "unlike_cores", "gpu_and_cpu")
NAMES = sorted(path.stem for path in EXPERIMENTS_FOLDER.glob("*.yaml"))
# A config for one operating system does not plan hosts with another.
OTHER_SYSTEM = "choose another benchmark for"
# Each is read once: reading took a fifth of the time of these tests.
topology_of = cache(discover_topology)


@cache
def config_in(file: str) -> dict[str, Any]:
    """A shipped config, which a test must not change."""
    return dict(read_config(ROOT / "config" / file))


def planned(config: dict, path: Path) -> Counter[str]:
    """Experiment -> number of its planned points; empty for a config of another system."""
    topology = topology_of(str(path))
    host = PlannedHost("host", configuration_name(topology), topology)
    try:
        points = plan_host(host, config).points
    except UserError as error:
        assert OTHER_SYSTEM in str(error), error
        return Counter()
    nodes = {node.os_index for node in topology.memory_nodes}
    for load in (load for point in points for load in point["loads"]):
        assert set(parse_cpu_list(load["initiator"]["cpus"])) <= set(topology.pus)
        assert set(load["placement"]["memory_nodes"]) <= nodes
    return Counter(point["experiment"] for point in points)


@pytest.mark.thorough
@pytest.mark.parametrize("path", UNLIKE, ids=lambda path: path.stem)
def test_every_config_and_tool_plans_its_experiments_or_is_for_another_system(path):
    for name in CONFIGS:
        planned(config_in(f"{name}.yaml"), path)
    for tool in ("likwid_bench", "stream"):
        config = config_in("config.yaml")
        benchmarks = {**config["benchmarks"], "memory_bandwidth": tool}
        planned({**config, "benchmarks": benchmarks}, path)


@pytest.mark.thorough
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_the_default_config_has_points_and_every_experiment_plans_or_has_none(path):
    config = config_in("darwin.yaml" if "m1-pro" in path.stem else "config.yaml")
    own = [name for name in config["experiments"] if name in SHORT]
    assert any(planned({**config, "experiments": own}, path).values())
    if path.stem in WHOLE:
        few = {"latency_by_size": {"bytes": 2, "pages": 1}}
        planned({**config, "experiments": NAMES, "levels": few}, path)
