"""Rounds of measurements within a budget, on a simulated host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chaosity.records.record_format import Point, PointKey, point_key
from chaosity.rounds.budget import Budget
from chaosity.rounds.machine_so_far import MachineSoFar
from chaosity.rounds.next_round import next_round
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_records import simulate_replicate
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import (
    status_and_values_of_record,
    tidy_rows_of_derived_metrics,
    tidy_rows_of_outcome,
)
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, Row, rows_to_table
from machines import TODAY, SimulatedHost


def simulate_rounds(host: SimulatedHost, budget: Budget, seed: int = 0) -> Iterator[MachineSoFar]:
    """Yield what is known after each round, with the planned time of each measurement.

    The true values are in the host's machine, and `seed` gives noise and order.
    """
    model = MachineModel({**host.machine, "seed": seed}, host.topology, host.name, TODAY)
    points = {point_key(point): point for point in host.points}
    so_far = MachineSoFar(host.points, host.topology, host.component_facts)
    outcomes = {}
    while chosen := next_round(so_far, budget, seed):
        rounds = [*so_far.rounds, chosen]
        orders: dict[PointKey, list[int]] = {}
        for position, key in enumerate(key for each in rounds for key in each.measurements):
            orders.setdefault(key, []).append(position)
        rows: list[Row] = []
        for key, own in orders.items():
            point: Point = {**points[key], "orders": own}
            for replicate in range(1, 1 + len(own)):
                if (key, replicate) not in outcomes:
                    record = simulate_replicate(point, replicate, model)
                    outcomes[key, replicate] = status_and_values_of_record(record)
        of_points = {
            key: [outcomes[key, number] for number in range(1, 1 + len(own))]
            for key, own in orders.items()
        }
        for key, found in of_points.items():
            for replicate, outcome in enumerate(found, start=1):
                rows += tidy_rows_of_outcome(points[key], replicate, outcome)
                rows += tidy_rows_of_derived_metrics(points[key], replicate, of_points)
        seconds = {
            key: [points[key]["estimated_seconds"]] * len(own) for key, own in orders.items()
        }
        measured = Measurements.from_table(rows_to_table(rows, COLUMN_TYPES))
        so_far = replace(so_far, rounds=rounds, measured=measured, record_seconds=seconds)
        yield so_far
