from __future__ import annotations

import itertools

import pytest

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.axis_order_and_labels import (
    Axis,
    axis_title,
    make_axis_value,
    sort_and_group_axis_values,
)
from chaosity.figures.heatmap_layout import MOST_ROWS, HeatmapLayout, row_count_of_block


def axis(column, names, packages=None):
    ordered, groups = sort_and_group_axis_values(map(make_axis_value, names), packages or {})
    return Axis(column, axis_title(column, ordered), tuple(ordered), tuple(groups))


def nodes(column, number, per_package):
    packages = {node: node // per_package for node in range(number)}
    return axis(column, [f"node{node}" for node in range(number)], packages)


def node_sets(number):
    sizes = range(1, number + 1)
    sets = itertools.chain.from_iterable(itertools.combinations(range(number), k) for k in sizes)
    return axis("target", [f"nodes{','.join(map(str, one))}drives" for one in sets])


SHAPES = {
    "one cell": (nodes("initiator", 1, 1), nodes("target", 1, 1)),
    "figure 4": (nodes("initiator", 8, 4), nodes("target", 8, 4)),
    "figure 6": (nodes("initiator", 8, 4), node_sets(8)),
    "24 nodes": (nodes("initiator", 24, 2), nodes("target", 24, 2)),
    "384 PUs": (axis("initiator", [f"pu{n}" for n in range(384)]), nodes("target", 24, 2)),
    "not square": (nodes("initiator", 4, 2), nodes("target", 12, 6)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_map_fits_a_page_and_its_labels_fit_their_room(shape):
    layout = HeatmapLayout(*SHAPES[shape], top=0.6)
    assert layout.last_block_right <= style.WIDTH
    assert layout.top + layout.tallest_block_height + layout.column_label_height <= 10.5
    assert layout.row_labels.points >= 5.0
    assert layout.cell_height * style.POINTS_PER_INCH >= layout.row_labels.points
    if not layout.column_labels.upright:
        assert layout.column_labels.widest_inches <= layout.cell_width


def test_255_drive_sets_run_down_the_page_in_blocks_between_sizes():
    layout = HeatmapLayout(*SHAPES["figure 6"], top=0.6)
    assert layout.turned
    assert list(map(row_count_of_block, layout.blocks)) == [36, 56, 70, 56, 37]
    assert layout.row_labels.texts[0] == "0·······"
    assert layout.row_labels.texts[-1] == "01234567"
    assert layout.row_labels.fixed


def test_a_group_longer_than_a_page_is_cut():
    layout = HeatmapLayout(*SHAPES["384 PUs"], top=0.6)
    assert max(map(row_count_of_block, layout.blocks)) <= MOST_ROWS
    assert sum(map(row_count_of_block, layout.blocks)) == 384


def test_columns_of_packages_do_not_touch():
    layout = HeatmapLayout(*SHAPES["figure 4"], top=0.6)
    inside = layout.column_left_within_block(1) - layout.column_left_within_block(0)
    assert layout.column_left_within_block(4) - layout.column_left_within_block(3) > inside
    assert layout.named
    assert layout.bracket > 0.0
