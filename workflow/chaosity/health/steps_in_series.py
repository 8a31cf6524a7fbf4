"""Find since when a host is slower: a step in the series of its nightly checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.store.measurements import less_is_better

# A step needs so many checks before and after it, else a single odd night would be one.
_FEWEST_BEFORE, _FEWEST_AFTER = 4, 3
# Probability of a step by chance in the whole series of a host: 0.02 hosts of a fleet of 200.
_LEVEL = 1e-4
# A smaller loss is within what a reboot changes.
_MATTERS = 0.02


@dataclass(frozen=True)
class SeriesStep:
    """A loss that began between two checks and lasts.

    Attributes:
        point: the point whose values became worse.
        since: time of the first check after the step, in UTC.
        loss: how much worse, as a share: 0.1 is 10 % less bandwidth, or 10 % more latency.
    """

    point: str
    since: str
    loss: float


def steps_in_series(rows: Sequence[Mapping[str, str]]) -> list[SeriesStep]:
    """Return the losses in a series of checks, the largest first.

    Each point is divided at the check that leaves the least scatter on both sides. Such a step is
    told if chance would cause it in less than one of 10,000 series, by Student's t with
    Bonferroni's correction for all points and places of a step. A drift is a step in its middle.

    Args:
        rows: the rows of `checks.csv`, oldest first.
    """
    series: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for row in rows:
        series.setdefault((row["experiment"], row["point"], row["metric"]), []).append(row)
    found = []
    for (_, point, metric), own in series.items():
        sign = 1.0 if less_is_better(metric) else -1.0
        place, away = _clearest_step(
            sign * np.log([float(row["value"]) for row in own]), _LEVEL / len(series)
        )
        loss = float(sign * np.expm1(sign * away))
        if place is not None and loss > _MATTERS:
            found.append(SeriesStep(point, own[place]["time"], loss))
    return sorted(found, key=lambda step: -step.loss)


def _clearest_step(worse: NDArray[np.float64], level: float) -> tuple[int | None, float]:
    """Return the number of the first value after the clearest step, and the height of the step.

    Args:
        worse: logarithms of the values, larger is worse.
        level: probability of a step by chance.
    """
    number = len(worse)
    places = np.arange(_FEWEST_BEFORE, number - _FEWEST_AFTER + 1)
    if not len(places):
        return None, 0.0
    sums, squares = np.cumsum(worse), float((worse**2).sum())
    before, after = sums[places - 1], sums[-1] - sums[places - 1]
    means = before / places, after / (number - places)
    rest = squares - before * means[0] - after * means[1]
    # A resolution of 0.01 % keeps equal values from being a step of any height.
    deviation = np.sqrt(np.maximum(rest / (number - 2), 1e-4**2))
    t = (means[1] - means[0]) / (deviation * np.sqrt(1.0 / places + 1.0 / (number - places)))
    best = int(t.argmax())
    if stats.t.sf(t[best], number - 2) * len(places) > level:
        return None, 0.0
    # The medians, so that a single odd night gives no height.
    place = int(places[best])
    return place, float(np.median(worse[place:]) - np.median(worse[:place]))
