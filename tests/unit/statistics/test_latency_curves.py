from __future__ import annotations

import math

import pandas as pd
import pytest

from chaosity.statistics.loaded_latency_curves import (
    QUANTITIES,
    latency_curve_quantities,
    repeat_unloaded_points_on_each_line,
)
from shipped_data import PUBLISHED_TABLES


def rows(*blocks, **columns):
    """Rows of one curve: (bandwidth, latency) of each point, a list a replicate."""
    return pd.DataFrame(
        [
            {
                "host": "h",
                "configuration": "c",
                "experiment": "e",
                "point": f"p{number}",
                "load": "chase",
                "initiator": "pu0",
                "target": "node0",
                "replicate": replicate,
                "status": "failed" if latency is None else "valid",
                "x": x,
                "value": latency,
                **columns,
            }
            for replicate, points in enumerate(blocks, start=1)
            for number, (x, latency) in enumerate(points)
        ]
    )


def numbers(table, by=()):
    found = latency_curve_quantities(table, by)
    assert list(dict.fromkeys(found["quantity"])) == list(QUANTITIES)
    return found.set_index("quantity")


CURVE = [(0.0, 80.0), (40.0, 100.0), (80.0, 140.0), (100.0, 240.0)]


def test_the_quantities_of_a_curve_by_hand():
    found = numbers(rows(CURVE))
    # 160 is a fifth of the way from 140 to 240; 50 is a quarter of the way from 40 to 80.
    wanted = {
        "unloaded": 80.0,
        "peak": 100.0,
        "knee": 84.0,
        "latency_at_50": 110.0,
        "latency_at_75": 135.0,
        "latency_at_90": 190.0,
    }
    assert found["median"].to_dict() == pytest.approx(wanted)
    assert found["reason"].isna().all()
    assert found["note"].isna().all()
    assert found["low"].isna().all()


def test_each_block_has_a_curve_of_its_own_and_the_interval_is_of_their_numbers():
    slower = [(x * 0.9, y * 1.1) for x, y in CURVE]
    found = numbers(rows(CURVE, slower))
    assert found.loc["peak", "median"] == pytest.approx(95.0)
    assert found.loc["knee", "median"] == pytest.approx((84.0 + 75.6) / 2.0)
    assert (found["n"] == 2).all()
    assert (found["low"] < found["median"]).all()


def test_behind_saturation_the_lower_latency_counts():
    waves = [*CURVE, (70.0, 300.0), (60.0, 400.0)]
    found = numbers(rows(waves))["median"].to_dict()
    assert found == pytest.approx(numbers(rows(CURVE))["median"].to_dict())


def test_a_latency_that_does_not_double_has_a_note():
    found = numbers(rows(CURVE[:3]))
    assert (found.loc["knee", "median"], found.loc["knee", "note"]) == (
        80.0,
        "latency did not double",
    )
    # Twice the latency without a byte more is doubled at the peak.
    found = numbers(rows([*CURVE[:3], (79.0, 300.0)]))
    assert found.loc["knee", "median"] == 80.0
    assert found.loc["knee", "note"] is None or math.isnan(found.loc["knee", "note"])


def test_an_unknown_quantity_has_a_reason():
    found = numbers(rows([(60.0, 90.0), (100.0, 150.0)]))
    assert found["median"].isna().to_dict() == {
        "unloaded": True,
        "peak": False,
        "knee": True,
        "latency_at_50": True,
        "latency_at_75": False,
        "latency_at_90": False,
    }
    assert found.loc["unloaded", "reason"] == "no point without load or below 5 % of the peak"
    assert found.loc["latency_at_50", "reason"] == "no point below 50 % of the peak"
    assert numbers(rows([(0.0, 90.0)])).loc["peak", "reason"] == "no point with load"
    found = numbers(rows([(0.0, 90.0), (100.0, 400.0)]))
    assert found.loc["knee", "reason"] == "the points on both sides are 100 % of the peak apart"


def test_a_block_with_a_failed_point_does_not_count():
    broken = [*CURVE[:3], (100.0, None)]
    found = numbers(rows(CURVE, broken))
    assert (found.loc["peak", "median"], found.loc["peak", "n"]) == (100.0, 1)
    found = numbers(rows(broken, [(0.0, None), *CURVE[1:]]))
    assert found.loc["peak", "reason"] == "no replicate is complete"


def test_a_point_that_always_failed_is_noted_at_the_peak():
    broken = [*CURVE[:3], (100.0, None)]
    found = numbers(rows(broken, broken))
    assert found.loc["peak", "median"] == 80.0
    assert found.loc["peak", "note"] == "1 of the curve's points have no value"


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


def of_csv(name, **columns):
    table = pd.read_csv(PUBLISHED_TABLES / name)
    given = {key: table[column] for key, column in columns.items()}
    return pd.DataFrame(
        {
            "configuration": "c",
            "experiment": "e",
            "load": "l",
            "initiator": "i",
            "target": "t",
            "replicate": 1,
            "status": "valid",
            "host": "h",
            **given,
        }
    )


def test_loaded_latency_of_published_servers():
    table = of_csv(
        "mlc_vsc_loaded_latency.csv",
        host="source",
        point="inject_delay",
        x="bandwidth_MBps",
        value="latency_ns",
    )
    found = latency_curve_quantities(table, [])
    assert found["reason"].isna().all()
    broadwell = found[found["host"].str.contains("broadwell")].set_index("quantity")["median"]
    # By hand: 148.24 ns lie between 115424.2 (103.73) and 144868.6 MB/s (164.33).
    assert broadwell["knee"] == pytest.approx(137050.8, abs=1.0)
    assert broadwell["peak"] == 145314.3
    assert broadwell["unloaded"] == 74.12
    notes = found[found["quantity"] == "knee"].set_index("host")["note"]
    assert notes.notna().sum() == 3  # no doubling on three of the seven
