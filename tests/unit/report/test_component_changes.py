"""Changes of components, and points before and after."""

from __future__ import annotations

import json

import pandas as pd
from lxml import etree
from report_inputs import run_of

from chaosity.components import ComponentState
from chaosity.report.sections import component_changes_section, render_page
from chaosity.store.measurements import Measurements

A, B, C = (f"2026-11-0{day}T08:00:00.000Z" for day in (1, 2, 3))
DRIVE = {"component": "drive", "serial": "OLD", "firmware": "1", "size_bytes": 10**12, "model": "M"}
STATES = {
    "drive0": [
        ComponentState(A, DRIVE),
        ComponentState(B, {**DRIVE, "serial": "NEW", "firmware": "2"}),
    ],
    "system": [
        ComponentState(A, {"tools": {"fio": "3.33"}}),
        ComponentState(C, {"tools": {"fio": "3.36"}}),
    ],
}


def rows(point, era, values, drive=A, system=A, asked="a", initiator="node0"):
    return [
        {
            "host": "h",
            "configuration": "c",
            "experiment": "storage_bandwidth",
            "point": point,
            "load": "storage",
            "initiator": initiator,
            "target": "drive0",
            "replicate": number,
            "metric": "bandwidth_bytes_per_second",
            "status": "valid",
            "reason": None,
            "value": value,
            "era": era,
            "asked": asked,
            "components": json.dumps({"drive0": drive, "system": system}),
        }
        for number, value in enumerate(values, start=1)
    ]


def repaired(points=1):
    """Return points with a drive that had a fifth of its speed before it was replaced."""
    found = []
    for number in range(points):
        found += rows(f"storage=node{number}+drive0", 1, [1.0e9, 1.01e9, 0.99e9])
        after = [(5.0 + 0.1 * number) * 1e9 * noise for noise in (1.0, 1.01, 0.99)]
        found += rows(f"storage=node{number}+drive0", 2, after, drive=B)
    return pd.DataFrame(found)


def changes(history, states):
    history = Measurements.from_table(history)
    found = component_changes_section(run_of(history=history, component_histories=states))
    return found["changes"], found["omitted"]


def shown_values(change):
    """Return the value before, the value after and the change of the first point on the page."""
    data = {"changes": [change], "omitted": 0}
    page = etree.HTML(render_page("component_changes.html.j2", data=data))
    cells = page.xpath("//tbody/tr[td]")[0].xpath("./td[position() > 1]")
    texts = (" ".join(cell.xpath(".//text()")) for cell in cells)
    return [" ".join(text.replace("\N{NO-BREAK SPACE}", " ").split()) for text in texts]


def test_a_replaced_drive_has_its_old_and_new_values():
    [change], older = changes(repaired(), STATES)
    assert older == 0
    [component] = change["components"]
    assert (component["name"], component["verb"]) == ("drive0", "was replaced")
    assert (component["before"], component["after"]) == (
        "2026-11-01 08:00 UTC",
        "2026-11-02 08:00 UTC",
    )
    assert component["facts"] == {
        "serial": "OLD \N{RIGHTWARDS ARROW} NEW",
        "firmware": "1 \N{RIGHTWARDS ARROW} 2",
    }


def test_a_point_has_both_values_with_intervals_and_the_change():
    [change], _ = changes(repaired(), STATES)
    [point] = change["lowest"]
    assert (point["before"].n, point["after"].n) == (3, 3)
    before, after, ratio = shown_values(change)
    assert before.startswith("1.00 GB/s 95 % interval ") and before.endswith("n = 3")
    assert after.startswith("5.00 GB/s 95 % interval ")
    assert ratio.startswith("+400 % 95 % interval +3")
    assert change["sentence"] == (
        "1 value was measured again: 1 increased by more than the scatter of the replicates. "
        "Change: +400 %."
    )


def test_points_with_another_request_are_counted_and_not_compared():
    table = pd.DataFrame(rows("p", 1, [1e9]) + rows("p", 2, [5e9], drive=B, asked="b"))
    [change], _ = changes(table, STATES)
    assert (change["lowest"], change["not_comparable"]) == ([], 1)


def test_loads_of_the_same_name_have_separate_changes():
    found = [
        row
        for core, value in (("pu0", 1e9), ("pu1", 2e9))
        for era, drive in ((1, A), (2, B))
        for row in rows("p", era, [era * value, 1.01 * era * value], drive=drive, initiator=core)
    ]
    [change], _ = changes(pd.DataFrame(found), STATES)
    assert [point["place"] for point in change["lowest"]] == [
        "storage, processing unit 0 to drive 0",
        "storage, processing unit 1 to drive 0",
    ]


def test_changes_are_separate_and_the_newest_is_first():
    later = rows("storage=node0+drive0", 3, [5e9, 5.1e9], drive=B, system=C)
    found, _ = changes(pd.concat([repaired(), pd.DataFrame(later)]), STATES)
    assert [change["components"][0]["name"] for change in found] == ["system", "drive0"]
    assert found[0]["components"][0]["verb"] == "changed"
    assert [*found[0]["components"][0]["facts"]] == ["tools fio"]


def test_a_long_value_is_only_reported_as_changed():
    states = {
        "drive0": [
            ComponentState(A, {"flags": list(range(40))}),
            ComponentState(B, {"flags": list(range(1, 41))}),
        ]
    }
    [change], _ = changes(repaired(), states)
    [text] = change["components"][0]["facts"].values()
    assert text == "changed, see the component's file"
