"""Plans and points of experiments: of those that ship, and of those that tests make up."""

from __future__ import annotations

from typing import Any

from chaosity.design.benchmark_templates import LoadMaker, load_benchmark_of_each_category
from chaosity.design.host_plan import HostPlan, PlannedHost, plan_host
from chaosity.design.host_resources import HostResources
from chaosity.design.point_expansion import PointExpansion
from chaosity.records.record_format import ExpandedPoint
from chaosity.topology.topology_model import Topology


def plan_of(topology: Topology, config: Any, *experiments: str, **variables: Any) -> HostPlan:
    """Return the plan of experiments for a host with this topology and these variables."""
    return plan_host(PlannedHost("h", "c", topology, variables), config, experiments)


def expand(
    host: PlannedHost | HostResources,
    config: Any,
    experiment: Any,
    weights: Any = None,
    **benchmarks: LoadMaker,
) -> tuple[list[ExpandedPoint], list[str]]:
    """Return the points of an experiment on a host, and the notes of the plan.

    `benchmarks` is category -> benchmark, in place of those of the config. A `PlannedHost` has no
    drives.
    """
    if isinstance(host, PlannedHost):
        host = HostResources(host.topology, ())
    known = {**load_benchmark_of_each_category(config), **benchmarks}
    expansion = PointExpansion(host, known, config, weights)
    return expansion.expand_experiment(experiment), expansion.plan_notes.note_texts


def tried(factors: Any = None, **designs: Any) -> Any:
    """Return an experiment with these designs: name -> name of a load -> load."""
    document = {name: {"loads": loads} for name, loads in designs.items()}
    return {"experiment": "tried", "designs": document, "factors": factors or {}}


def memory_load(**changed: Any) -> dict[str, Any]:
    """Return a load on each pair of nodes; a key replaces a key of the usual load."""
    each_node = {"initiator": {"each": "node"}, "target": {"each": "node"}}
    return {"category": "memory_bandwidth", "kernel": ["triad"], **each_node, **changed}
