"""``chaosity predict --with``: what loads get while they run at the same time, predicted."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from chaosity.cli.fit import fit_results, read_folder_to_fit
from chaosity.cli.terminal_output import (
    print_json,
    print_line,
    print_table,
    print_that_nothing_was_measured,
)
from chaosity.errors import UserError
from chaosity.units import format_quantity

if TYPE_CHECKING:
    from chaosity.records.point_types import Load, Point
    from chaosity.topology.topology_model import Topology
    from chaosity.twin.fitted_description import FittedMachine
    from chaosity.twin.predict_loads import PredictedValue, ValueKey

# Number of points that an error names.
_NEAR_NAMES = 3


def predict_loads_of_points(folder: Path, names: tuple[str, ...], *, as_json: bool) -> None:
    """Print what loads of planned points get while all of them run."""
    from chaosity.twin.predict_loads import joined_loads, measured_medians

    measured, points, topology = read_folder_to_fit(folder)
    chosen = [_point_of_name(name, points, str(folder / "points"), folder) for name in names]
    loads = joined_loads(chosen, topology)
    alone = [measured_medians(measured, [*chosen, *points], [load]) for load in loads]
    medians = {key: value for own in alone for key, value in own.items()}
    seen = measured_medians(measured, points, loads) if len(loads) > 1 else {}
    fitted = fit_results(folder, measured, points, topology)
    _print_together(
        *(fitted, topology, loads, medians, seen),
        is_simulated=measured.is_simulated,
        as_json=as_json,
    )


def predict_on_described_machine(
    machine: Path, topology_file: Path, names: tuple[str, ...], config_file: Path, *, as_json: bool
) -> None:
    """Print what loads of planned points get on a described machine while all of them run."""
    from chaosity.design.host_plan import PlannedHost, plan_host
    from chaosity.documents.check_config import read_config
    from chaosity.simulation.machine_description import read_machine_description
    from chaosity.topology.configuration_names import configuration_name
    from chaosity.topology.topology_discovery import discover_topology
    from chaosity.twin.fitted_description import read_fitted
    from chaosity.twin.predict_loads import joined_loads

    topology = discover_topology(str(topology_file))
    fitted = read_fitted(read_machine_description(machine, topology), str(machine))
    experiments = [*dict.fromkeys(name.partition("/")[0] for name in names)]
    host = PlannedHost(machine.stem, configuration_name(topology), topology)
    points = plan_host(host, read_config(config_file), experiments).points
    chosen = [_point_of_name(name, points, f"the plan of {topology_file}") for name in names]
    loads = joined_loads(chosen, topology)
    _print_together(fitted, topology, loads, {}, {}, is_simulated=True, as_json=as_json)


def _print_together(
    fitted: FittedMachine,
    topology: Topology,
    loads: Sequence[Load],
    medians: dict[ValueKey, float],
    seen: dict[ValueKey, float],
    *,
    is_simulated: bool,
    as_json: bool,
) -> None:
    """Print the predicted values of loads at the same time.

    Args:
        fitted: the machine.
        topology: its topology.
        loads: the loads.
        medians: measured medians of each load alone.
        seen: measured medians of the loads together.
        is_simulated: whether the values are those of a machine that does not exist.
        as_json: whether to print JSON.
    """
    from chaosity.twin.model_values import ALL
    from chaosity.twin.predict_loads import predict_loads, undetermined_parameters

    missing = undetermined_parameters(fitted, topology, loads)
    values = predict_loads(fitted, topology, loads, medians)
    if as_json:
        document = {
            "simulated": is_simulated,
            "not_determined": [each.name for each in missing],
        }
        rows = [
            {**asdict(each), "measured_together": seen.get((each.load, each.metric))}
            for each in values
        ]
        print_json({**document, "predicted": rows})
        return
    if is_simulated:
        print_that_nothing_was_measured()
    print_line("What each load gets while all run: predicted by the model, not measured.")
    has_intervals = bool(fitted.parameters)
    heads = ["alone", "together"] + ["95 % interval"] * has_intervals
    heads += ["measured together"] * bool(seen)
    print_table([_cells_of_load(each, seen) for each in values], ["load"], heads)
    if not has_intervals:
        print_line("No intervals: the description does not say how sure its numbers are.")
    for each in values:
        if each.departs:
            print_line(
                f"The model does not explain {each.load} alone, perhaps because of a fault. "
                "So its prediction is not above the measured value."
            )
    if has_intervals and len(loads) > 1 and any(each.misfit_of == ALL for each in values):
        print_line(
            "Few such values are measured, so the intervals assume that the model is as right for "
            "them as for all values; interference and loaded_latency would tell."
        )
    for parameter in missing:
        print_line(
            f"No measurement determines {parameter.name}, so the intervals are wide. Most machines "
            f"need the {parameter.measured_by} for it; these loads together would do, too."
        )


def _cells_of_load(each: PredictedValue, seen: dict[ValueKey, float]) -> list[str]:
    """Return the row of a load: alone, together, perhaps an interval and the measured value."""
    alone = each.alone if each.measured_alone is None else each.measured_alone
    cells = [
        each.load,
        "predicted " * (each.measured_alone is None) + format_quantity(each.metric, alone),
        format_quantity(each.metric, each.value),
    ]
    if each.low is not None:
        ends = (format_quantity(each.metric, end) for end in (each.low, each.high))
        cells.append(" to ".join(ends))
    if median := seen.get((each.load, each.metric)):
        cells.append(format_quantity(each.metric, median))
    return cells


def _point_of_name(
    name: str, points: Sequence[Point], where: str, folder: Path | None = None
) -> Point:
    """Return the point ``EXPERIMENT/POINT``.

    Args:
        name: of the point.
        points: all points.
        where: where these points are, for the error.
        folder: of a run, which lists the points that a budget left out.

    Raises:
        UserError: there is no such point.
    """
    from chaosity.result_folders import UNMEASURED_FILE
    from chaosity.store.measurements import Measurements

    by_name = {f"{point['experiment']}/{point['point']}": point for point in points}
    if name in by_name:
        return by_name[name]
    if folder and (folder / UNMEASURED_FILE).exists():
        rows = Measurements.read(folder / UNMEASURED_FILE).rows
        if name in set(rows["experiment"] + "/" + rows["point"]):
            remedy = "name measured points with the same loads, or run once without a budget"
            what = "the budget left this point out, so that its loads are not known"
            raise UserError(what, f"--with {name}", remedy)
    near = difflib.get_close_matches(name, by_name, _NEAR_NAMES, 0.3) or [*by_name][:_NEAR_NAMES]
    what = f"{where} has no such point"
    raise UserError(what, f"--with {name}", f"use {' or '.join(near)}")
