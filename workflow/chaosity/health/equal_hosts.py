"""Compare a check with the recent checks of equal hosts: a map that was bad from the start is told.

Equal hosts have the same processor model, are in the same configuration, and have results below the
same folder. Their values differ by some scatter, in which the host itself does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
from scipy import stats

from chaosity.compare.host_deviations import scatter_of_other_hosts
from chaosity.components.component_files import processor_model_and_group
from chaosity.errors import UserError
from chaosity.health.check_series import earlier_values, is_simulated_host, read_series
from chaosity.health.choose_check_points import PointKey
from chaosity.health.judge_check_values import RECENT, CheckedValue, probability_of_false_alarm
from chaosity.records.atomic_writes_and_record_files import format_utc
from chaosity.statistics.significance_tests import MATTERS
from chaosity.store.measurements import less_is_better

# Fewer hosts do not show how much equal hosts differ.
FEWEST_OTHERS = 4
# Older checks do not count: a host can have been repaired since.
_DAYS = 14
# More than the lines of 14 nights: a check measures about 60 points, each with a line of 150 bytes.
_NEWEST_BYTES = 2**18

RecentValues = Mapping[PointKey, Sequence[float]]


def recent_values_of_equal_hosts(folder: Path, moment: str) -> list[RecentValues]:
    """Return, for each host equal to that of ``results/HOST/CONFIGURATION``, its recent values.

    Args:
        folder: the folder of the host that is checked.
        moment: time of its check, in UTC.
    """
    folder = folder.resolve()
    built_like, is_simulated = processor_model_and_group(folder), is_simulated_host(folder)
    found = []
    for path in sorted(folder.parent.parent.glob(f"*/{folder.name}/checks.csv")):
        other = path.parent
        is_equal = built_like[0] is not None and processor_model_and_group(other) == built_like
        if other != folder and is_equal:
            # The page of all hosts tells that a series cannot be read; it must not stop this check.
            with suppress(UserError):
                if is_simulated_host(other) == is_simulated:
                    found.append(recent_values(read_series(other, _NEWEST_BYTES), moment, {}))
    return [values for values in found if values]


def recent_values(
    rows: Sequence[Mapping[str, str]], moment: str, mapped_at: Mapping[PointKey, str]
) -> RecentValues:
    """Return the values of the two weeks before a moment, see `earlier_values`."""
    first = format_utc(datetime.fromisoformat(moment) - timedelta(days=_DAYS))
    return earlier_values([row for row in rows if row["time"] >= first], mapped_at)


def compare_with_equal_hosts(
    values: Sequence[CheckedValue], own: RecentValues, others: Sequence[RecentValues]
) -> list[CheckedValue]:
    """Return the values of a check with their losses against equal hosts.

    A host counts with the median of as many recent checks as the checked host has, at most
    `RECENT`. A loss of 5 % or more is told if the scatter of the other hosts does not explain it.

    Args:
        values: tonight's values.
        own: recent earlier values of the checked host.
        others: recent values of each equal host.
    """
    compared = [
        value
        for value in values
        if sum(value.check.key in other for other in others) >= FEWEST_OTHERS
    ]
    if not compared:
        return list(values)
    keys = [value.check.key for value in compared]
    tonight = [[*own.get(value.check.key, []), value.value][-RECENT:] for value in compared]
    medians = [
        [
            median(mine),
            *(median(each[key][-len(mine) :]) if key in each else math.nan for each in others),
        ]
        for key, mine in zip(keys, tonight, strict=True)
    ]
    logs = np.log(medians)
    signs = np.array([1.0 if less_is_better(v.check.metric) else -1.0 for v in compared])
    groups = np.array([f"{v.check.metric} {len(v.check.parts)}" for v in compared])
    # The scatter of the maps' replicates is small beside that of nights, so it adds nothing.
    freedom, spread, expected = (
        each[:, 0] for each in scatter_of_other_hosts(logs, groups, np.zeros(len(logs)), hosts=[0])
    )
    away = signs * (logs[:, 0] - expected)
    limits = stats.t.isf(probability_of_false_alarm(len(values)), freedom) * spread
    limits = np.maximum(limits, math.log1p(MATTERS))
    found = {}
    for number, value in enumerate(compared):
        loss, limit = (
            math.expm1(x) if signs[number] > 0 else -math.expm1(-x)
            for x in (away[number], limits[number])
        )
        found[keys[number]] = replace(
            value,
            loss_to_equals=loss,
            limit_to_equals=limit if math.isfinite(limits[number]) else math.inf,
            equal_hosts=int(np.count_nonzero(~np.isnan(logs[number, 1:]))),
        )
    return [found.get(value.check.key, value) for value in values]


def popularity(own: Sequence[PointKey], others: Sequence[RecentValues]) -> dict[PointKey, int]:
    """Return experiment and point -> in the checks of how many hosts it is, this one included."""
    counts: dict[PointKey, int] = dict.fromkeys(own, 1)
    for other in others:
        for key in other:
            counts[key] = counts.get(key, 0) + 1
    return counts
