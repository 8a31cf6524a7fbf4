"""Measure the points of a check once, and slow ones again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chaosity.health.choose_check_points import CheckPoint, PointKey
from chaosity.health.judge_check_values import CheckedValue, Expectation

# Number of undisturbed measurements by which a slow value is judged.
REPLICATES_OF_SLOW_VALUE = 3
# Largest number of measurements of one point. If other programs disturb too many of them, a loss is
# only a warning.
MOST_REPLICATES = 6


def measure_and_judge(
    points: Sequence[CheckPoint],
    expectation: Expectation,
    measure: Callable[[CheckPoint, int], tuple[float | None, bool]],
    has_time: Callable[[CheckPoint], bool],
) -> list[CheckedValue]:
    """Measure each point once, and slow ones again; return all values with what was expected.

    Disturbed measurements of a slow point count only while there are too few others.

    Args:
        points: the points.
        expectation: what the map and earlier checks say.
        measure: measures a replicate (1, 2, ...) of a point; returns the value, or None if it is
            not valid, and whether other programs disturbed it.
        has_time: whether there is time for another measurement of a point.
    """
    # The values of each point, each with whether it was disturbed.
    values: dict[PointKey, list[tuple[float, bool]]] = {}

    def judged(check: CheckPoint) -> CheckedValue:
        own = values[check.key]
        quiet = [value for value, disturbed in own if not disturbed]
        if len(quiet) < min(len(own), REPLICATES_OF_SLOW_VALUE):
            every = [value for value, _ in own]
            return expectation.judged(check, every, len(values), disturbed=True)
        return expectation.judged(check, quiet, len(values))

    def add(check: CheckPoint, replicate: int) -> None:
        value, disturbed = measure(check, replicate)
        if value is not None:
            values.setdefault(check.key, []).append((value, disturbed))

    for check in points:
        if has_time(check):
            add(check, 1)
    for replicate in range(2, MOST_REPLICATES + 1):
        for slow in [judged(check) for check in points if check.key in values]:
            # A value that was slow once is measured to the end, so that the median has three.
            begun = len(slow.values) == replicate - 1 > 1 and replicate <= REPLICATES_OF_SLOW_VALUE
            complete = len(slow.values) >= REPLICATES_OF_SLOW_VALUE and not slow.disturbed
            if (begun or (slow.is_clear and not complete)) and has_time(slow.check):
                add(slow.check, replicate)
    return [judged(check) for check in points if check.key in values]
