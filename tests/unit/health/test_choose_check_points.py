"""A check measures each part where its fault shows whole, and all parts within some nights."""

from __future__ import annotations

import math
import random
from statistics import fmean, median

from chaosity.health.choose_check_points import (
    check_point_of_single_part,
    choose_check_points,
    split_by_available_time,
)
from machines import server
from nightly_checks import check_points


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
