from __future__ import annotations

import pytest

from chaosity.figures.figure_data import (
    AxisGroup,
    axis_title,
    make_axis_value,
    sort_and_group_axis_values,
)
from chaosity.place_names import natural_sort_key


@pytest.mark.parametrize(
    ("name", "kind", "short", "long"),
    [
        ("pu12", "pu", "12", "processing unit 12"),
        ("core3", "core", "3", "core 3"),
        ("l3_5", "l3", "5", "L3 domain 5"),
        ("node3", "node", "3", "node 3"),
        ("package1", "package", "1", "package 1"),
        ("machine", "machine", "machine", "the machine"),
        ("nodes0-3", "nodes", "0-3", "nodes 0, 1, 2 and 3"),
        ("drive-0000-41-00-0", "drive", "41:00.0", "drive 0000:41:00.0"),
        ("drive-10000-41-00-0", "drive", "10000:41:00.0", "drive 10000:41:00.0"),
        ("drive-S5GXNX0T", "drive", "S5GXNX0T", "drive S5GXNX0T"),
        ("node3drives2", "first_drives", "2", "the first 2 drives of node 3"),
        ("node3drives", "node_drives", "3", "the drives of node 3"),
        ("nodes0,4drives", "node_drives", "0,4", "the drives of nodes 0 and 4"),
        ("alldrives", "all_drives", "all", "all drives"),
        ("unknowndrives", "unknown_drives", "all", "the drives of an unknown node"),
        ("file0", "file", "0", "file 0"),
        ("same_node", "relation", "same node", "same node"),
        ("triad_nt", "text", "triad nt", "triad nt"),
    ],
)
def test_names_read_as_what_they_are(name, kind, short, long):
    place = make_axis_value(name)
    assert (place.kind, place.short_label, place.long_label) == (kind, short, long)


def order(*names, packages=None):
    return [
        place.name
        for place in sort_and_group_axis_values(map(make_axis_value, names), packages or {})[0]
    ]


def test_node2_comes_before_node10_and_small_before_large():
    assert order("node10", "node2", "machine", "pu3", "core1", "package0") == [
        *("pu3", "core1", "node2", "node10", "package0", "machine")
    ]


def test_nodes_of_a_package_stand_together_even_when_numbered_crosswise():
    places, groups = sort_and_group_axis_values(
        [make_axis_value(f"node{n}") for n in (3, 1, 2, 0)], packages={0: 0, 1: 1, 2: 0, 3: 1}
    )
    assert [place.name for place in places] == ["node0", "node2", "node1", "node3"]
    assert groups == [AxisGroup("package 0", 0, 2), AxisGroup("package 1", 2, 4)]


def test_a_node_without_a_package_stands_behind_the_others():
    _, groups = sort_and_group_axis_values(
        map(make_axis_value, ["node0", "node1", "node2"]), packages={0: 0, 1: 0}
    )
    assert [group.label for group in groups] == ["package 0", "no package"]


def test_drives_of_a_node_stand_together():
    places = [
        make_axis_value(f"drive-0000-{bus}-00-0", (node,))
        for bus, node in (("41", 1), ("01", 1), ("c1", 0), ("81", 0))
    ]
    ordered, groups = sort_and_group_axis_values(places, {})
    assert [place.short_label for place in ordered] == ["81:00.0", "c1:00.0", "01:00.0", "41:00.0"]
    assert [group.label for group in groups] == ["node 0", "node 1"]


def test_sets_of_nodes_are_grouped_by_size_with_all_drives_as_the_largest():
    names = ["nodes0,2drives", "node1drives", "nodes0-1drives", "node0drives"]
    places = [*map(make_axis_value, names), make_axis_value("alldrives", (0, 1, 2))]
    ordered, groups = sort_and_group_axis_values(places, {})
    assert [place.name for place in ordered] == [
        *("node0drives", "node1drives", "nodes0-1drives", "nodes0,2drives", "alldrives")
    ]
    assert [group.label for group in groups] == ["1 node", "2 nodes", "3 nodes"]
    assert axis_title("target", ordered) == "Drives of nodes"


def test_levels_and_relations_have_their_own_order():
    assert order("machine", "node", "pu") == ["pu", "node", "machine"]
    assert order("other_package", "alone", "same_node") == ["alone", "same_node", "other_package"]
    assert [
        p.short_label for p in sort_and_group_axis_values(map(make_axis_value, [10, 2.0, 0]), {})[0]
    ] == ["0", "2", "10"]


def test_names_with_odd_digits_have_an_order():
    names = ["a\N{SUPERSCRIPT TWO}", "pu10", "pu" + "9" * 5000, "pu9", "pu09"]
    assert sorted(names, key=natural_sort_key)[1:4] == ["pu9", "pu09", "pu10"]
