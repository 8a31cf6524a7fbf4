"""Losses are reported from chance, and the component that explains them is named."""

from __future__ import annotations

import math
import random
from functools import cache
from statistics import fmean

import pytest

from chaosity.health.check_host import MOST_REPLICATES, measure_and_judge
from chaosity.health.judge_check_values import (
    FAULTY,
    FINE,
    WARNING,
    CheckedValue,
    Expectation,
    MapValue,
    exit_status_of_values,
    suspected_parts,
)
from chaosity.store.measurements import less_is_better
from nightly_checks import check_points


@cache
def known():
    """The value of each point in the map."""
    return {each.key: MapValue(100.0, 3, 1e-4) for each in check_points()}


def check_with(losses, expectation=None, noise=0.0, seed=1, disturbed=False):
    """Judge a check; `losses` gives the loss of a point, or None for no valid value."""
    chance = random.Random(seed)

    def measure(check, _replicate):
        loss = losses(check)
        if loss is None:
            return None, False
        worse = 1.0 + loss if less_is_better(check.metric) else 1.0 - loss
        return 100.0 * worse * math.exp(chance.gauss(0.0, noise)), disturbed

    expectation = expectation or Expectation(known(), {})
    return measure_and_judge(check_points(), expectation, measure, lambda _: True)


def named(values):
    return [suspect.parts for suspect in suspected_parts(values)]


def test_a_host_as_in_its_map_is_fine():
    values = check_with(lambda _: 0.0)
    assert exit_status_of_values(values) == FINE
    assert named(values) == []
    assert {len(value.values) for value in values} == {1}


@pytest.mark.parametrize("is_drive", [True, False])
def test_slow_memory_of_a_virtual_machine_is_only_a_warning(is_drive):
    drives = {each.parts[0]: each.load["target"]["drives"] for each in check_points()}
    part = next(name for name, read in drives.items() if bool(read) == is_drive)
    virtual = Expectation(known(), {}, in_virtual_machine=True)
    values = check_with(lambda check: 0.5 if part in check.parts else 0.0, virtual)
    assert exit_status_of_values(values) == (FAULTY if is_drive else WARNING)
    assert named(values) == [(part,)]


@pytest.mark.parametrize("part", ["node5", "drive-0000-01-00-0"])
def test_a_slow_part_is_a_fault_of_this_part_after_three_measurements(part):
    values = check_with(lambda check: 0.2 if part in check.parts else 0.0)
    assert exit_status_of_values(values) == FAULTY
    assert named(values) == [(part,)]
    assert all(len(each.values) == (3 if part in each.check.parts else 1) for each in values)
    assert {round(each.tonight.loss, 6) for each in values} == {0.0, 0.2}


def test_bandwidth_alone_can_be_slow_in_a_node():
    values = check_with(
        lambda check: 0.2 if "node5" in check.parts and "latency" not in check.metric else 0.0
    )
    assert named(values) == [("node5",)]


def test_a_slow_path_is_named_by_its_ends():
    path = next(each for each in check_points() if len(each.parts) == 2)
    values = check_with(lambda check: 0.3 if check is path else 0.0)
    assert named(values) == [path.parts]


def test_two_faults_are_two_suspects_with_the_larger_loss_first():
    losses = {"node1": 0.15, check_points()[3].parts[0]: 0.4}
    values = check_with(lambda check: max(losses.get(part, 0.0) for part in check.parts))
    assert named(values) == [(check_points()[3].parts[0],), ("node1",)]


def test_if_all_is_slow_no_single_part_is_accused():
    values = check_with(lambda _: 0.2)
    assert named(values) == [()]
    assert exit_status_of_values(values) == FAULTY


def test_a_small_loss_is_a_warning():
    assert (
        exit_status_of_values(check_with(lambda c: 0.08 if "node5" in c.parts else 0.0)) == WARNING
    )


def test_a_loss_while_other_programs_ran_is_only_a_warning():
    values = check_with(lambda c: 0.3 if "node5" in c.parts else 0.0, disturbed=True)
    assert exit_status_of_values(values) == WARNING
    assert {len(value.values) for value in values if value.tonight.is_clear} == {MOST_REPLICATES}


def check_one_point(*measured: tuple[float, bool]) -> tuple[CheckedValue, int]:
    """Judge a point with these losses, each with whether it was disturbed; count the measured."""
    point = next(each for each in check_points() if not less_is_better(each.metric))
    left = list(measured)

    def measure(_point, _replicate):
        loss, disturbed = left.pop(0)
        return 100.0 * (1.0 - loss), disturbed

    [value] = measure_and_judge([point], Expectation(known(), {}), measure, lambda _: bool(left))
    return value, len(measured) - len(left)


def test_disturbed_measurements_of_a_slow_point_are_replaced():
    value, count = check_one_point(
        (0.3, False), (0.5, True), (0.32, False), (0.34, False), (0.0, False)
    )
    assert (value.is_fault, count) == (True, 4)
    assert value.tonight.loss == pytest.approx(0.32)


def test_a_loss_that_only_disturbed_measurements_show_is_no_fault():
    value, count = check_one_point((0.3, True), (0.0, False), (0.01, False), (0.0, False))
    assert (bool(value.clear_losses), value.disturbed, count) == (False, True, 3)


def test_without_time_for_quiet_measurements_a_loss_stays_a_warning():
    value, count = check_one_point((0.3, False), (0.4, True), (0.3, False))
    assert (value.tonight.is_clear, value.is_fault, count) == (True, False, 3)


def test_a_single_disturbance_is_outvoted():
    slow = iter([0.5])
    values = check_with(lambda c: next(slow, 0.0) if c is check_points()[0] else 0.0)
    assert exit_status_of_values(values) == FINE
    assert len(values[0].values) == 3


def test_a_point_without_a_value_is_left_out():
    values = check_with(lambda check: None if check is check_points()[0] else 0.0)
    assert len(values) == len(check_points()) - 1


def test_a_latency_of_twice_the_expected_is_a_loss_of_all():
    latency = next(each for each in check_points() if "latency" in each.metric)
    value = Expectation(known(), {}).judge(latency, [200.0], 1)
    assert value.tonight.loss == pytest.approx(1.0)


def test_earlier_checks_correct_what_a_short_measurement_gives():
    earlier = {each.key: [90.0, 90.5, 91.0, 90.2] for each in check_points()}
    values = check_with(lambda c: 0.1 if less_is_better(c.metric) else 0.095)
    assert exit_status_of_values(values) != FINE
    values = check_with(
        lambda c: -0.095 if less_is_better(c.metric) else 0.095, Expectation(known(), earlier)
    )
    assert exit_status_of_values(values) == FINE


def test_quiet_earlier_checks_tell_smaller_losses():
    earlier = {key: [100.0, 100.3, 99.8, 100.1, 99.9] for key in known()}
    [first] = check_points()[:1]
    without, with_checks = (
        Expectation(known(), each).judge(first, [97.0], 50).limit for each in ({}, earlier)
    )
    assert with_checks < 0.7 * without


@pytest.mark.parametrize("loss", [0.0, 0.03])
def test_a_loss_that_hides_in_a_night_is_reported_by_several_nights(loss):
    chance = random.Random(5)
    slow = next(each for each in check_points() if each.parts == ("node5",))
    earlier = {
        key: [
            100.0
            * math.exp(chance.gauss(0.0, 0.012))
            * (1.0 - loss * (key == slow.key and n >= 20))
            for n in range(27)
        ]
        for key in known()
    }
    values = check_with(lambda c: loss * (c is slow), Expectation(known(), earlier), 0.005)
    assert named(values) == ([("node5",)] if loss else [])
    assert exit_status_of_values(values) == (WARNING if loss else FINE)
    assert not any(each.tonight.is_clear for each in values)


def test_a_healthy_host_gives_about_one_false_alarm_in_a_year():
    """Values scatter as the map says, and sessions as earlier checks show: a year of nights."""
    chance = random.Random(3)
    earlier = {
        key: [100.0 * math.exp(chance.gauss(0.0, 0.012)) for _ in range(30)] for key in known()
    }
    expectation = Expectation(known(), earlier)
    alarms = sum(
        any(each.tonight.is_clear for each in check_with(lambda _: 0.0, expectation, 0.012, night))
        for night in range(365)
    )
    assert alarms <= 4  # of a Poisson distribution with mean 1, a larger number is one in 270


def test_the_smallest_number_in_the_series_is_no_error():
    key = check_points()[0].key
    assert Expectation({key: MapValue(4e10, 3, 1e-4)}, {key: [5e-324]}).logs[key][0] < -700


@pytest.mark.parametrize("nights", [3, 4, 5, 14])
def test_the_scatter_of_few_nights_is_not_underestimated(nights):
    """Distances from the median of three nights are half as large as those from the true value."""
    session, single = 0.03, math.sqrt(1e-4)
    found = []
    for seed in range(20):
        chance = random.Random(seed)
        earlier = {
            key: [
                100.0 * math.exp(chance.gauss(0.0, math.hypot(session, single)))
                for _ in range(nights)
            ]
            for key in known()
        }
        found.append(Expectation(known(), earlier).session_variance)
    assert math.sqrt(fmean(found)) == pytest.approx(session, rel=0.08)
