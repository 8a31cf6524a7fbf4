"""Compares the project with its bare counterparts: ``make bench``.

Each figure is a ratio or difference of pairs that were run in turn, since a shared machine drifts;
printed are the median, its 95 % interval from the order of the pairs, and their number. Parts on
simulated machines have this many seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import click
from scipy import stats

Figure: TypeAlias = tuple[str, Sequence[float], str, str]
Part: TypeAlias = Callable[[int], Iterable[Figure | str]]

BENCH = Path(__file__).resolve().parent
# The parts use each other, helpers of the tests, and the maker of topologies.
sys.path[:0] = map(
    str, (BENCH, BENCH.parent / "tests", BENCH.parent / "templates/machines/topologies")
)

# Each module says which parts it has; a part that takes an hour runs only if it is named.
PARTS: dict[str, Part] = {}
ONLY_IF_NAMED: dict[str, Part] = {}
for path in sorted(BENCH.glob("*.py")):
    if path != Path(__file__).resolve():
        module = import_module(path.stem)
        PARTS |= getattr(module, "PARTS", {})
        ONLY_IF_NAMED |= getattr(module, "ONLY_IF_NAMED", {})


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
    help=__doc__, epilog=f"Parts: {', '.join(PARTS)}. Only if named: {', '.join(ONLY_IF_NAMED)}."
)
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, *ONLY_IF_NAMED]), metavar="[PART]...")
@click.option("--pairs", default=9, show_default=True, help="Pairs of a figure, or seeds.")
def main(parts: tuple[str, ...], pairs: int) -> None:
    """Run the parts that were asked for; all of them by default."""
    for part in parts or PARTS:
        print(f"{part}:", flush=True)
        for figure in {**PARTS, **ONLY_IF_NAMED}[part](pairs):
            # What is no ratio of pairs brings its own line.
            text = figure if isinstance(figure, str) else line(*figure)
            print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
