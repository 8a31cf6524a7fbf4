"""A simulated server with its plan, and the points of a check of it, made once."""

from __future__ import annotations

from functools import cache

from chaosity.health.choose_check_points import CheckPoint, choose_check_points
from simulated_tables import SimulatedHost, shipped_machine, shipped_topology


@cache
def server() -> SimulatedHost:
    """A server with eight nodes in two packages and 30 drives, without faults."""
    topology = shipped_topology("epyc_7413_nps4")
    return SimulatedHost.planned(shipped_machine("epyc_7413", topology), topology, [])


@cache
def check_points() -> tuple[CheckPoint, ...]:
    """The points of a check of the server, by its values without noise."""
    rows = server().true_table.performance_rows().rows
    # The first value of a point is the last that is entered.
    columns = (rows[name][::-1] for name in ("experiment", "point", "value"))
    medians = {
        (experiment, point): value for experiment, point, value in zip(*columns, strict=True)
    }
    return tuple(choose_check_points(server().points, medians, server().topology))
