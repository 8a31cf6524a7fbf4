"""Changes of components, and points before and after."""

from __future__ import annotations

import json
import re

import pytest
from report_inputs import measured_results, texts, write_report

from chaosity.store.tidy_table_from_records import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import rows_to_table, write_parquet_table
from machines import simulated

A, B, C = (f"2026-11-0{day}T08:00:00.000Z" for day in (1, 2, 3))
DRIVE = {"component": "drive", "serial": "OLD", "firmware": "1", "size_bytes": 10**12, "model": "M"}
STATES = {
    "drive0": {A: DRIVE, B: {**DRIVE, "serial": "NEW", "firmware": "2"}},
    "system": {A: {"tools": {"fio": "3.33"}}, C: {"tools": {"fio": "3.36"}}},
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
            "value": value,
            "era": era,
            "asked": asked,
            "components": json.dumps({"drive0": drive, "system": system}),
        }
        for number, value in enumerate(values, start=1)
    ]


REPAIRED = [*rows("p", 1, [1.0e9, 1.01e9, 0.99e9]), *rows("p", 2, [5e9, 5.05e9, 4.95e9], drive=B)]


@pytest.fixture
def changes(tmp_path):
    """A function that makes a report with a history, and returns its texts on each change."""

    def found(history, states=STATES):
        place = measured_results(simulated("one_node", ["memory_bandwidth"]), tmp_path)
        table = rows_to_table(history, HISTORY_COLUMNS)
        write_parquet_table(table, place / "history.parquet", HISTORY_COLUMNS)
        for name, contents in states.items():
            lines = [json.dumps({"since": at, "content": own}) for at, own in contents.items()]
            (place / f"components/.history/{name}.jsonl").write_text("\n".join([*lines, ""]))
        page = write_report(place, "--history", place / "history.parquet")
        return texts(page, "//div[@class='change']")

    return found


def test_a_replaced_drive_has_its_old_and_new_values_and_a_point_both_with_intervals(changes):
    [change] = changes(REPAIRED)
    assert change.startswith(
        "drive0 was replaced Before: state since 2026-11-01 08:00 UTC. After: state since "
        "2026-11-02 08:00 UTC. serial OLD → NEW firmware 1 → 2 1 value was measured again: "
        "1 increased by more than the scatter of the replicates. Change: +400 %."
    )
    assert re.search(
        r"storage, node 0 to drive 0 1\.00 GB/s 95 % interval 0\.9\S+ to 1\.0\S+ GB/s, n = 3 "
        r"5\.00 GB/s 95 % interval 4\.\S+ to 5\.\S+ GB/s, n = 3 \+400 % 95 % interval \+3",
        change,
    )


def test_points_with_another_request_are_counted_and_not_compared(changes):
    [change] = changes([*rows("p", 1, [1e9]), *rows("p", 2, [5e9], drive=B, asked="b")])
    assert change.endswith(
        "1 more values cannot be compared, since their points request something else now."
    )


def test_loads_of_the_same_name_have_separate_changes(changes):
    both = [
        row
        for core, value in (("pu0", 1e9), ("pu1", 2e9))
        for era, drive in ((1, A), (2, B))
        for row in rows("p", era, [era * value, 1.01 * era * value], drive=drive, initiator=core)
    ]
    [change] = changes(both)
    assert change.count("storage, processing unit 0 to drive 0") == 1
    assert change.count("storage, processing unit 1 to drive 0") == 1


def test_changes_are_separate_and_the_newest_is_first(changes):
    newest, older = changes([*REPAIRED, *rows("p", 3, [5e9, 5.1e9], drive=B, system=C)])
    assert newest.startswith("system changed ") and "tools fio 3.33 → 3.36" in newest
    assert older.startswith("drive0 was replaced ")


def test_a_long_value_is_only_reported_as_changed(changes):
    flags = {A: {"flags": [*range(40)]}, B: {"flags": [*range(1, 41)]}}
    [change] = changes(REPAIRED, {"drive0": flags})
    assert "flags changed, see the component's file" in change
