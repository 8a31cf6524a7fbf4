"""Make a file of references for ReFrame's performance tests.

A reference of ReFrame is a value with a lower and an upper limit, as shares of the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.export.main_matrices import MainMatrix, read_main_matrices, render_export
from chaosity.statistics.estimates_and_ratios import Estimate, intervals_with_confidence

# Of healthy hosts, at most this share fails any of its references, like that of the findings.
FALSE_ALARM_RATE = 0.01
# A reference that accepts half or twice its value finds no fault worth a test.
_LOWEST, _HIGHEST = -0.5, 1.0


def export_reframe_references(host: MeasuredHost) -> str:
    """Return references of all cells of the main matrices that are precise enough.

    Raises:
        UserError: no cell has an interval, or the host is simulated.
    """
    host.refuse_simulated_values("ReFrame")
    number = len(_limits(read_main_matrices(host)))
    if not number:
        what = "no value has an interval, so limits are unknown"
        raise UserError(what, str(host.folder), "measure more replicates")
    with intervals_with_confidence(1.0 - FALSE_ALARM_RATE / number):
        found = _limits(read_main_matrices(host))
    references = {
        name: reference
        for name, reference in found.items()
        if reference[2] > _LOWEST and reference[3] < _HIGHEST
    }
    return render_export(
        "reframe",
        host,
        references=references,
        left_out=[name for name in found if name not in references],
        false_alarms=100.0 * FALSE_ALARM_RATE,
    )


def _limits(
    matrices: Mapping[str, MainMatrix],
) -> dict[str, tuple[MainMatrix, Estimate, float, float]]:
    """Return name of the reference -> matrix, estimate, lower limit (below 0) and upper limit."""
    return {
        "_".join(re.split("[- ]", f"{matrix.quantity} {cell.initiator} {cell.target}")): (
            matrix,
            cell.estimate,
            *prediction_limits(cell.estimate),
        )
        for matrix in matrices.values()
        for cell in matrix.cells
        if cell.estimate.low_and_high
    }


def prediction_limits(estimate: Estimate) -> tuple[float, float]:
    """Return the limits of one further measurement, as shares of the median: -0.02, 0.02.

    The interval of a median of n values has a half width of t s / sqrt(n) in logarithms. A further
    value has one of t s sqrt(1 + 1/n), which is sqrt(n + 1) times as much.
    """
    assert estimate.low is not None and estimate.high is not None
    widening = math.sqrt(estimate.n + 1.0)
    low, high = (
        math.expm1(widening * math.log(end / estimate.median))
        for end in (estimate.low, estimate.high)
    )
    return low, high
