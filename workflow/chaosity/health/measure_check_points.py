"""Measure the points of a check once, and slow ones again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chaosity.health.choose_check_points import CheckPoint, PointKey
from chaosity.health.judge_check_values import CheckedValue, Expectation

# A slow value is measured so often in all.
REPLICATES_OF_SLOW_VALUE = 3


def measure_and_judge(
    points: Sequence[CheckPoint],
    expectation: Expectation,
    measure: Callable[[CheckPoint, int], tuple[float | None, bool]],
    has_time: Callable[[CheckPoint], bool],
) -> list[CheckedValue]:
    """Measure each point once, and slow ones again; return all values with what was expected.

    Args:
        points: the points.
        expectation: what the map and earlier checks say.
        measure: measures a replicate (1, 2, ...) of a point; returns the value, or None if it is
            not valid, and whether other programs disturbed it.
        has_time: whether there is time for another measurement of a point.
    """
    values: dict[PointKey, tuple[CheckPoint, list[float], bool]] = {}

    def judged() -> list[CheckedValue]:
        return [
            expectation.judged(check, own, len(values), disturbed=disturbed)
            for check, own, disturbed in values.values()
        ]

    def add(check: CheckPoint, replicate: int) -> None:
        value, disturbed = measure(check, replicate)
        if value is not None:
            _, own, before = values.get(check.key, (check, [], False))
            values[check.key] = check, [*own, value], before or disturbed

    for check in points:
        if has_time(check):
            add(check, 1)
    for replicate in range(2, REPLICATES_OF_SLOW_VALUE + 1):
        for slow in judged():
            # A value that was slow once is measured to the end, so that the median has three.
            if (slow.is_clear or len(slow.values) == replicate - 1 > 1) and has_time(slow.check):
                add(slow.check, replicate)
    return judged()
