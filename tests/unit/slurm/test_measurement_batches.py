"""Measurements of a host become jobs of a sensible length, in their random order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chaosity.campaign.slurm_jobs import (
    ReplicateToMeasure,
    cut_measurements_into_batches,
    planned_seconds,
    time_limit_minutes,
)


def measurements(seconds):
    return [ReplicateToMeasure((str(i),), i, s) for i, s in enumerate(seconds)]


@given(st.lists(st.floats(0.1, 500), max_size=60), st.floats(0.5, 30))
def test_each_goes_once_in_order(seconds, minutes):
    wanted = measurements(seconds)
    found = cut_measurements_into_batches(reversed(wanted), minutes)
    assert [one for batch in found for one in batch] == wanted
    # All but the last are long enough; without its last measurement, none but the last would have
    # been.
    for batch in found[:-1]:
        assert planned_seconds(batch) >= 60 * minutes
        assert planned_seconds(batch) - batch[-1].seconds < 60 * minutes


def test_crumbs_join_the_job_before():
    found = cut_measurements_into_batches(measurements([60.0, 60.0, 1.0]), minutes=1)
    assert [len(batch) for batch in found] == [1, 2]


def test_the_time_limit_grows_with_each_try():
    seconds = planned_seconds(measurements([30.0] * 20))
    assert time_limit_minutes(seconds, factor=2, slack=5) == 25
    assert time_limit_minutes(seconds, factor=2, slack=5, attempt=2) == 50
