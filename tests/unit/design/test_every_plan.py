"""Every shipped config plans every experiment on every topology, or says why it cannot."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.check_config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS, ROOT
from chaosity.errors import UserError
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.topology_discovery import discover_topology

CONFIGS = sorted(path.stem for path in (ROOT / "workflow/config").glob("*.yaml"))
TOPOLOGIES = [
    *sorted((ROOT / "tests/data/topologies").glob("*.xml")),
    *sorted((ROOT / "machines/topologies").glob("*.xml")),
]
# A Mac, two kinds of cores, HBM without cores, and forbidden processing units.
UNLIKE = [
    path
    for path in TOPOLOGIES
    if path.stem in ("m1-pro-by-hand", "desktop", "xeon-max-2s-hbm-flat", "disallowed")
]
NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
# A config for one operating system does not plan hosts with another.
OTHER_SYSTEM = "choose another benchmark for"
# Each is read once: reading took a fifth of the time of these tests.
topology_of = cache(discover_topology)


@cache
def config_in(file: str) -> dict[str, Any]:
    """A shipped config, which a test must not change."""
    return dict(read_config(ROOT / "workflow/config" / file))


def planned(config: dict, path: Path, experiments: list[str] | None = None) -> int:
    """Number of planned points; 0 if the config is for another operating system."""
    topology = topology_of(str(path))
    host = PlannedHost("host", configuration_name(topology), topology)
    try:
        return len(plan_host(host, config, experiments).points)
    except UserError as error:
        assert OTHER_SYSTEM in str(error), error
        return 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("path", UNLIKE, ids=lambda path: path.stem)
def test_every_config_plans_its_experiments_or_is_for_another_system(path, name):
    planned(config_in(f"{name}.yaml"), path)


@pytest.mark.thorough
@pytest.mark.parametrize("tool", ["likwid_bench", "stream"])
@pytest.mark.parametrize("path", UNLIKE, ids=lambda path: path.stem)
def test_another_tool_for_memory_leaves_out_what_it_cannot_serve(path, tool):
    config = config_in("config.yaml")
    benchmarks = {**config["benchmarks"], "memory_bandwidth": tool}
    planned({**config, "benchmarks": benchmarks}, path)


@pytest.mark.thorough
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_the_default_config_has_points_and_every_experiment_plans_or_has_none(path):
    file = "darwin.yaml" if "m1-pro" in path.stem else "config.yaml"
    assert planned(config_in(file), path) > 0
    planned({**config_in(file), "experiments": NAMES}, path, NAMES)
