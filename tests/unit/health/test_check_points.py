"""The points of a check: each shows a part whole, and its values are judged by map and history."""

from __future__ import annotations

import json
import math
import random
from statistics import fmean, median

import pytest

from chaosity.health.check_history import append_check, read_series, recent_values_of_equal_hosts
from chaosity.health.check_host import MOST_REPLICATES, measure_and_judge
from chaosity.health.check_points import (
    FAULTY,
    FINE,
    WARNING,
    Expectation,
    MapValue,
    check_point_of_single_part,
    choose_check_points,
    compare_with_equal_hosts,
    exit_status_of_values,
    split_by_available_time,
    suspected_parts,
)
from chaosity.store.measurements import less_is_better
from machines import server
from nightly_checks import check_points, known


def test_each_node_each_drive_and_each_path_between_packages_is_checked():
    parts = [each.parts for each in check_points()]
    drives = [own for [own, *_] in parts if own.startswith("drive-")]
    assert len(drives) == len(set(drives)) == len(server().topology.drives) == 30
    for node in range(8):  # bandwidth and latency
        assert parts.count((f"node{node}",)) >= 2
    packages = {tuple(int(name[4:]) // 4 for name in own) for own in parts if len(own) == 2}
    assert packages == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_no_point_loads_several_parts_or_a_cache():
    for each in check_points():
        [load] = each.point["loads"]
        assert len(load["initiator"]["nodes"]) == 1
        assert len(load["target"]["drives"] or load["target"]["nodes"]) == 1
        assert "bytes" not in load.get("levels", {})


def test_points_are_shorter_than_those_of_the_map_and_have_a_definition_of_their_own():
    planned = {(p["experiment"], p["point"]): p for p in server().points}
    for each in check_points():
        whole = planned[each.key]
        assert each.point["definition"] != whole["definition"]
        assert each.point["stopping"]["max_seconds"] <= min(0.6, whole["stopping"]["max_seconds"])
        assert each.point["estimated_seconds"] <= whole["estimated_seconds"]


def test_of_points_that_load_the_same_part_the_one_with_the_highest_rate_is_chosen():
    medians = {(p["experiment"], p["point"]): 1.0 for p in server().points}
    wanted = ("memory_bandwidth", "memory=node2+node2+copy")
    chosen = choose_check_points(server().points, medians | {wanted: 2.0}, server().topology)
    assert wanted in [each.key for each in chosen]


def test_of_nearly_equal_values_the_luckiest_is_not_expected():
    """Maps of three replicates that scatter by 1 %; paths have most points to choose from."""
    paths = [
        point
        for point in server().points
        if (check := check_point_of_single_part(point)) and len(check.parts) == 2
    ]
    keys = [(point["experiment"], point["point"]) for point in paths]
    chance, lucky = random.Random(1), []
    for _ in range(60):
        medians = {key: math.exp(median(chance.gauss(0, 0.01) for _ in range(3))) for key in keys}
        chosen = choose_check_points(paths, medians, server().topology)
        lucky += [math.log(medians[check.key]) for check in chosen]
    assert abs(fmean(lucky)) < 0.002  # the highest medians are 1.6 % above the true value


def test_a_point_without_a_value_in_the_map_is_left_out():
    assert choose_check_points(server().points, {}, server().topology) == []


def test_what_does_not_fit_is_measured_by_the_next_checks():
    checked: dict[tuple[str, str], str] = {}
    for night in range(6):
        taken, left = split_by_available_time(check_points(), checked, 10.0)
        assert taken and sum(each.seconds for each in taken) <= 10.0
        assert len(taken) + len(left) == len(check_points())
        checked |= {each.key: str(night) for each in taken}
    assert len(checked) == len(check_points())


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


# Each measurement of a point: its loss, and whether other programs disturbed it.
@pytest.mark.parametrize(
    ("losses", "count", "is_clear", "is_fault", "loss"),
    [
        # Disturbed measurements of a slow point are replaced.
        ([(0.3, 0), (0.5, 1), (0.32, 0), (0.34, 0), (0.0, 0)], 4, True, True, 0.32),
        # A loss that only disturbed measurements show is no loss.
        ([(0.3, 1), (0.0, 0), (0.01, 0), (0.0, 0)], 3, False, False, 0.01),
        # Without time for quiet measurements, a loss stays a warning.
        ([(0.3, 0), (0.4, 1), (0.3, 0)], 3, True, False, 0.3),
    ],
)
def test_disturbed_measurements_of_a_slow_point(losses, count, is_clear, is_fault, loss):
    point = next(each for each in check_points() if not less_is_better(each.metric))
    left = [(100.0 * (1.0 - loss), bool(disturbed)) for loss, disturbed in losses]
    expectation = Expectation(known(), {})
    [value] = measure_and_judge([point], expectation, lambda *_: left.pop(0), lambda _: bool(left))
    assert (bool(value.clear_losses), value.is_fault) == (is_clear, is_fault)
    assert (len(losses) - len(left), value.tonight.loss) == (count, pytest.approx(loss))


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


def values_of_nights(chance, number, deviation):
    """Values of each point in so many nights of a host that is as in its map."""
    return {
        key: [100.0 * math.exp(chance.gauss(0.0, deviation)) for _ in range(number)]
        for key in known()
    }


@pytest.mark.parametrize("loss", [0.0, 0.03])
def test_a_loss_that_hides_in_a_night_is_reported_by_several_nights(loss):
    chance = random.Random(5)
    slow = next(each for each in check_points() if each.parts == ("node5",))
    earlier = values_of_nights(chance, 27, 0.012)
    earlier[slow.key][20:] = [value * (1.0 - loss) for value in earlier[slow.key][20:]]
    values = check_with(lambda c: loss * (c is slow), Expectation(known(), earlier), 0.005)
    assert named(values) == ([("node5",)] if loss else [])
    assert exit_status_of_values(values) == (WARNING if loss else FINE)
    assert not any(each.tonight.is_clear for each in values)


def test_a_healthy_host_gives_about_one_false_alarm_in_a_year():
    """Values scatter as the map says, and sessions as earlier checks show: a year of nights."""
    chance = random.Random(3)
    expectation = Expectation(known(), values_of_nights(chance, 30, 0.012))
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
        earlier = values_of_nights(random.Random(seed), nights, math.hypot(session, single))
        found.append(Expectation(known(), earlier).session_variance)
    assert math.sqrt(fmean(found)) == pytest.approx(session, rel=0.08)


NIGHT = "2026-11-24T02:00:00.000Z"
EARLIER = "2026-11-23T02:00:00.000Z"


def nights(seed, number=3, sick=(), loss=0.0, between=0.007, nightly=0.014):
    """Values of some nights of a host; those of the parts `sick` are worse."""
    chance = random.Random(seed)
    found = {}
    for check in check_points():
        share = 1.0 + chance.gauss(0.0, between)
        if set(sick) & set(check.parts):
            share *= 1.0 + loss if less_is_better(check.metric) else 1.0 - loss
        found[check.key] = [
            100.0 * share * (1.0 + chance.gauss(0.0, nightly)) for _ in range(number)
        ]
    return found


def checked(own, others):
    """Judge the last night of a host whose map agrees with it."""
    known = {key: MapValue(values[-1], 3, 1e-4) for key, values in own.items()}
    expectation = Expectation(known, {})
    values = [
        expectation.judge(check, [own[check.key][-1]], len(known)) for check in check_points()
    ]
    earlier = {key: each[:-1] for key, each in own.items()}
    return compare_with_equal_hosts(values, earlier, others)


@pytest.mark.parametrize("hosts", [4, 15])
def test_a_node_that_was_slow_in_its_own_map_is_a_warning_of_this_node(hosts):
    others = [nights(seed) for seed in range(hosts)]
    values = checked(nights("own", sick=["node5"], loss=0.12), others)
    assert exit_status_of_values(values) == WARNING
    assert {each.parts for each in suspected_parts(values)} == {("node5",)}
    reported = [value for value in values if value.clear_losses]
    assert {value.equals.hosts for value in reported} == {hosts}
    assert all(value.reported_loss == value.equals.loss > 0.08 for value in reported)
    assert not any(value.tonight.is_clear or value.is_fault for value in values)


def test_three_equal_hosts_are_too_few():
    values = checked(nights("own", sick=["node5"], loss=0.5), [nights(seed) for seed in range(3)])
    assert exit_status_of_values(values) == FINE
    assert {value.equals.hosts for value in values} == {0}


def test_healthy_fleets_give_no_alarm():
    """Of 150 checks, one false alarm in a year would be 0.4."""
    fleet = [nights(seed) for seed in range(150)]
    for number in range(0, 150, 5):
        five = fleet[number : number + 5]
        for own in five:
            values = checked(own, [other for other in five if other is not own])
            assert exit_status_of_values(values) == FINE


def test_a_faster_host_and_a_loss_below_five_per_cent_are_no_warning():
    calm = {"between": 0.001, "nightly": 0.001}
    others = [nights(seed, **calm) for seed in range(30)]
    parts = {part for check in check_points() for part in check.parts}
    for loss, status in ((-0.2, FINE), (0.04, FINE), (0.06, WARNING)):
        values = checked(nights("own", sick=parts, loss=loss, **calm), others)
        assert exit_status_of_values(values) == status


def test_points_that_too_few_equal_hosts_check_are_not_compared():
    others = [nights(seed) for seed in range(6)]
    first = check_points()[0].key
    for other in others[:3]:
        del other[first]
    values = {value.check.key: value for value in checked(nights("own"), others)}
    assert values.pop(first).equals.hosts == 0
    assert {value.equals.hosts for value in values.values()} == {6}


def write_host(
    results, name, *, model="EPYC", configuration="nps4", kind="ssh", moment=EARLIER, group=None
):
    folder = results / name / configuration
    (folder / "components").mkdir(parents=True)
    (folder / "components/system.json").write_text(json.dumps({"cpu_model": model}))
    (results / name / "host.json").write_text(
        json.dumps({"transport": {"kind": kind}, "equal_hosts": group})
    )
    values = checked(nights(name, 1), [])
    append_check(folder, moment, values, [])
    return folder


def test_only_recent_checks_of_the_same_model_configuration_and_origin_count(tmp_path):
    own = write_host(tmp_path, "own")
    for number in range(4):
        write_host(tmp_path, f"equal{number}")
    write_host(tmp_path, "other_model", model="Xeon")
    write_host(tmp_path, "other_mode", configuration="nps1")
    write_host(tmp_path, "not_real", kind="simulated")
    write_host(tmp_path, "built_differently", group="half of the memory modules")
    write_host(tmp_path, "old", moment="2026-11-01T02:00:00.000Z")
    (write_host(tmp_path, "broken") / "checks.csv").write_text("nothing\n")
    found = recent_values_of_equal_hosts(own, NIGHT)
    assert len(found) == 4
    assert found[0].keys() == {check.key for check in check_points()}
    assert recent_values_of_equal_hosts(tmp_path / "other_mode/nps1", NIGHT) == []


def test_only_the_newest_rows_of_a_long_series_are_read(tmp_path):
    folder = write_host(tmp_path, "own")
    for night in range(10, 20):
        append_check(folder, f"2026-11-{night}T02:00:00.000Z", checked(nights(night, 1), []), [])
    rows = read_series(folder)
    size = (folder / "checks.csv").stat().st_size
    newest = read_series(folder, size // 3)
    assert 0.2 * len(rows) < len(newest) < 0.4 * len(rows)
    assert newest == rows[-len(newest) :]
    assert read_series(folder, size) == rows


def test_of_nearly_equal_points_equal_hosts_check_the_same():
    medians = {(p["experiment"], p["point"]): 1.0 for p in server().points}
    best, popular, far = sorted(key for key in medians if "=node2+node2+" in key[1])[:3]
    medians |= {best: 2.0, popular: 1.97, far: 1.8}
    hosts = {far: 3, popular: 2}
    chosen = choose_check_points(server().points, medians, server().topology, hosts)
    keys = [each.key for each in chosen]
    assert popular in keys and best not in keys and far not in keys
