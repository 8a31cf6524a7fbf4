"""Limits and unit of a colour bar or value axis that several figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chaosity.figures.figure_marks_and_axes import FigureData
from chaosity.units import Scale, choose_scale

# A colour scale spans at least this share of its top value, so that noise of a few per cent does
# not look like structure.
LEAST_SPAN = 0.25


@dataclass(frozen=True)
class ValueLimits:
    """Limits of one or several figures.

    Attributes:
        low: smallest value of a colour bar, in the metric's unit.
        high: largest value, in the metric's unit; above low.
        scale: unit of the shown numbers.
        least: start of a logarithmic axis; NaN when no value is positive.
    """

    low: float
    high: float
    scale: Scale
    least: float = math.nan


def round_value_limits(
    metric: str, figures: Sequence[FigureData], *, with_intervals: bool = False
) -> ValueLimits:
    """Return round limits that hold every value and bound of the figures.

    Args:
        metric: that all of them show.
        figures: with the same scale.
        with_intervals: whether the intervals must fit too.
    """
    columns = ["median", "low", "high"] if with_intervals else ["median"]
    shown = [data.marks[columns].to_numpy(float).ravel() for data in figures]
    shown += [np.array(list(bound.values.values())) for data in figures for bound in data.bounds]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if not len(values):
        return ValueLimits(0.0, 1.0, choose_scale(metric, [1.0]))
    top = float(values.max())
    scale = choose_scale(metric, [top])
    if top <= 0.0:
        return ValueLimits(float(values.min()) - 1.0, 1.0, scale)
    bottom = min(float(values.min()), (1.0 - LEAST_SPAN) * top)
    step = _round_step((top - bottom) / 10.0)
    low = math.floor(bottom / step + 1e-9) * step
    least = float(min(values[values > 0.0]))
    return ValueLimits(low, math.ceil(top / step - 1e-9) * step, scale, least)


def _round_step(width: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least the width."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= width * 0.999)
