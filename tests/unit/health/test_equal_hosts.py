"""A host that is slower than equal hosts is reported, even if its map was always bad."""

from __future__ import annotations

import json
import random

import pytest

from chaosity.health.check_series import append_check, read_series, recent_values_of_equal_hosts
from chaosity.health.choose_check_points import choose_check_points
from chaosity.health.judge_check_values import (
    FINE,
    WARNING,
    Expectation,
    MapValue,
    compare_with_equal_hosts,
    exit_status_of_values,
    suspected_parts,
)
from chaosity.store.measurements import less_is_better
from machines import server
from nightly_checks import check_points

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
