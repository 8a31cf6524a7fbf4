from __future__ import annotations

import pandas as pd
import pytest
from tidy_rows import tidy_rows

from chaosity.statistics.loaded_latency_curves import (
    QUANTITIES,
    latency_curve_quantities,
    repeat_unloaded_points_on_each_line,
)
from shipped_data import PUBLISHED_TABLES


def rows(*blocks, **columns):
    """Rows of one curve: (bandwidth, latency) of each point, a list a replicate."""
    points = [(*point, number) for block in blocks for number, point in enumerate(block)]
    return tidy_rows(
        [latency for _, latency, _ in points],
        x=[x for x, _, _ in points],
        point=[f"p{number}" for _, _, number in points],
        replicate=[k for k, block in enumerate(blocks, start=1) for _ in block],
        **columns,
    )


def numbers(table, by=()):
    found = latency_curve_quantities(table, by)
    assert list(dict.fromkeys(found["quantity"])) == list(QUANTITIES)
    return found.set_index("quantity")


CURVE = [(0.0, 80.0), (40.0, 100.0), (80.0, 140.0), (100.0, 240.0)]


# 160 is a fifth of the way from 140 to 240; 50 is a quarter of the way from 40 to 80.
WHOLE = {
    "unloaded": 80.0,
    "peak": 100.0,
    "knee": 84.0,
    "latency_at_50": 110.0,
    "latency_at_75": 135.0,
    "latency_at_90": 190.0,
}
SLOWER = [(x * 0.9, y * 1.1) for x, y in CURVE]
BROKEN = [*CURVE[:3], (100.0, None)]


@pytest.mark.parametrize(
    ("blocks", "expected", "texts"),
    [
        ([CURVE], WHOLE, {}),
        # Behind saturation, the lower latency counts.
        ([[*CURVE, (70.0, 300.0), (60.0, 400.0)]], WHOLE, {}),
        # Each block has a curve of its own.
        ([CURVE, SLOWER], {"peak": 95.0, "knee": (84.0 + 75.6) / 2.0}, {}),
        ([CURVE[:3]], {"knee": 80.0}, {"knee": "latency did not double"}),
        # Twice the latency without a byte more is doubled at the peak.
        ([[*CURVE[:3], (79.0, 300.0)]], {"knee": 80.0}, {"knee": None}),
        (
            [[(60.0, 90.0), (100.0, 150.0)]],
            {"unloaded": None, "knee": None, "latency_at_50": None, "latency_at_75": 112.5},
            {
                "unloaded": "no point without load or below 5 % of the peak",
                "latency_at_50": "no point below 50 % of the peak",
            },
        ),
        ([[(0.0, 90.0)]], {"peak": None}, {"peak": "no point with load"}),
        (
            [[(0.0, 90.0), (100.0, 400.0)]],
            {"knee": None},
            {"knee": "the points on both sides are 100 % of the peak apart"},
        ),
        # A block with a failed point does not count, but a point that always failed is noted.
        ([CURVE, BROKEN], {"peak": 100.0}, {"peak": None}),
        (
            [BROKEN, [(0.0, None), *CURVE[1:]]],
            {"peak": None},
            {"peak": "no replicate is complete"},
        ),
        ([BROKEN, BROKEN], {"peak": 80.0}, {"peak": "1 of the curve's points have no value"}),
    ],
)
def test_quantities_of_curves_by_hand(blocks, expected, texts):
    found = numbers(rows(*blocks)).astype(object)
    found = found.where(found.notna(), None)
    medians = {name: found.loc[name, "median"] for name in expected}
    assert medians == pytest.approx(expected)
    said = {name: found.loc[name, "note"] or found.loc[name, "reason"] for name in texts}
    assert said == texts


def test_the_interval_is_of_the_numbers_of_the_blocks():
    found = numbers(rows(CURVE, SLOWER))
    assert (found["n"] == 2).all()
    assert (found["low"] < found["median"]).all()
    assert numbers(rows(CURVE))["low"].isna().all()


def test_points_without_other_loads_belong_to_every_line():
    table = pd.concat(
        [
            rows(CURVE[:1], series=None),
            rows(CURVE[1:], series="read").replace("p0", "q0"),
            rows(CURVE[1:3], series="copy").replace("p0", "r0"),
        ]
    )
    found = latency_curve_quantities(
        repeat_unloaded_points_on_each_line(table, "series"), ["series"]
    )
    peaks = found[found["quantity"] == "peak"].set_index("series")["median"].to_dict()
    assert peaks == {"read": 100.0, "copy": 80.0}
    assert (found.loc[found["quantity"] == "unloaded", "median"] == 80.0).all()


def test_loaded_latency_of_published_servers():
    csv = pd.read_csv(PUBLISHED_TABLES / "mlc_vsc_loaded_latency.csv")
    columns = {"host": csv["source"], "point": csv["inject_delay"], "x": csv["bandwidth_MBps"]}
    table = tidy_rows(csv["latency_ns"].tolist(), **columns, replicate=1)
    found = latency_curve_quantities(table, [])
    assert found["reason"].isna().all()
    broadwell = found[found["host"].str.contains("broadwell")].set_index("quantity")["median"]
    # By hand: 148.24 ns lie between 115424.2 (103.73) and 144868.6 MB/s (164.33).
    assert broadwell["knee"] == pytest.approx(137050.8, abs=1.0)
    assert broadwell["peak"] == 145314.3
    assert broadwell["unloaded"] == 74.12
    notes = found[found["quantity"] == "knee"].set_index("host")["note"]
    assert notes.notna().sum() == 3  # no doubling on three of the seven
