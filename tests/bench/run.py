"""Compares the project with its bare counterparts: ``make bench``.

Each figure is a ratio or difference of pairs that were run in turn, since a shared machine drifts;
printed are the median, its 95 % interval from the order of the pairs, and their number. Parts on
simulated machines have so many seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import budgets
import budgets_here
import checks
import click
import false_alarms_and_recall
import faults
import fio_by_hand
import fitted_machines
import fleet
import fleet_page
import half_width_links
import history
import interval_coverage
import kernels
import latency
import mode_crossovers
import peers
import planning
import points
import predicted_drive_sets
import predicted_loads
import repeat
import scale
import shipped_machines
import simulated_coverage
import streaming
import traffic
import working_sets
from scipy import stats

Figure = tuple[str, Sequence[float], str, str]
PARTS: dict[str, Callable[[int], Iterable[Figure | str]]] = {
    "kernels": kernels.compare,
    "latency": latency.compare,
    "peers": peers.compare,
    "working_sets": working_sets.compare,
    "traffic": traffic.compare,
    "streaming": streaming.compare,
    "repeat": repeat.compare,
    "points": points.compare,
    "fio": fio_by_hand.compare,
    "planning": planning.compare,
    "coverage": interval_coverage.compare,
    "simulated_coverage": simulated_coverage.compare,
    "mode_crossovers": mode_crossovers.compare,
    "checks": checks.compare,
    "checks_of_fleets": checks.compare_together,
    "history": history.compare,
    "faults": faults.compare,
    "planted_faults": shipped_machines.compare_faults,
    "healthy_machines": shipped_machines.compare_healthy,
    "false_alarms_and_recall": false_alarms_and_recall.compare,
    "half_width_links": half_width_links.compare,
    "budgets": budgets.compare,
    "predicted_drive_sets": predicted_drive_sets.compare,
    "fitted_machines": fitted_machines.compare,
    "predicted_loads": predicted_loads.compare,
    "scale": scale.compare,
    "fleet": fleet.compare,
    "fleet_page": fleet_page.compare,
}
# Parts that run only if they are named, since they take an hour each.
NAMED: dict[str, Callable[[int], Iterable[Figure | str]]] = {
    "budgets_here": budgets_here.compare,
    "planning_large": planning.compare_large,
    "fleet_large": fleet.compare_large,
    "scale_large": scale.compare_large,
}


def line(name: str, values: Sequence[float], form: str, goal: str) -> str:
    """One figure as a line: median, interval and number of pairs."""
    ordered = sorted(values)
    median = (
        ordered[len(ordered) // 2]
        if len(ordered) % 2
        else sum(ordered[len(ordered) // 2 - 1 : len(ordered) // 2 + 1]) / 2
    )
    text = f"{name:58} {median:{form}}"
    if len(values) >= 6:  # below six pairs no interval from their order reaches 95 %
        interval = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
        text += f"  95 % interval {interval.low:{form}} to {interval.high:{form}}"
    return f"{text}  n = {len(values)}  ({goal})"


@click.command(
    help=__doc__, epilog=f"Parts: {', '.join(PARTS)}. Only if named: {', '.join(NAMED)}."
)
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, *NAMED]), metavar="[PART]...")
@click.option("--pairs", default=9, show_default=True, help="Pairs of a figure, or seeds.")
def main(parts: tuple[str, ...], pairs: int) -> None:
    """Run the parts that were asked for; all of them by default."""
    for part in parts or PARTS:
        print(f"{part}:", flush=True)
        for figure in {**PARTS, **NAMED}[part](pairs):
            # What is no ratio of pairs brings its own line.
            text = figure if isinstance(figure, str) else line(*figure)
            print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
