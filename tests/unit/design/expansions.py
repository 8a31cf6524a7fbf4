"""Expansion of experiments that tests make up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chaosity.design.benchmark_templates import LoadMaker, load_benchmark_of_each_category
from chaosity.design.chosen_loads import PlannedDrive
from chaosity.design.host_plan import PlannedHost
from chaosity.design.host_resources import HostResources
from chaosity.design.point_expansion import PointExpansion


def expansion(
    host: PlannedHost | HostResources,
    config: Any,
    drives: Iterable[PlannedDrive] = (),
    weights: Any = None,
    **benchmarks: LoadMaker,
) -> PointExpansion:
    """Return the expansion on a host; `benchmarks` replace those of their categories."""
    if isinstance(host, PlannedHost):
        host = HostResources(host.topology, tuple(drives))
    known = {**load_benchmark_of_each_category(config), **benchmarks}
    return PointExpansion(host, known, config, weights)


def tried(factors: Any = None, **designs: Any) -> Any:
    """Return an experiment with these designs: name -> name of a load -> load."""
    document = {name: {"loads": loads} for name, loads in designs.items()}
    return {"experiment": "tried", "designs": document, "factors": factors or {}}
