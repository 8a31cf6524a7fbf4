"""Earlier values are found, and belong to what the components were when they were taken."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import records_by_hand
from records_by_hand import load, record, write_point

from chaosity.records.record_files import save_record
from chaosity.records.record_format import make_check, make_verdict
from chaosity.store.measurements_before_component_changes import (
    HISTORY_COLUMNS,
    split_measurements_at_component_changes,
)
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table

NAME = "storage=node0+drive0"
DAYS = [f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 10)]


def point(amount=0.0, serial="A", command=("fio",), name=NAME):
    drive = {"component": "drive0", "serial": serial, "node": 0}
    target = {"name": "drive0", "kind": "drive", "nodes": [0], "relation": "same_node"}
    target["drives"] = [drive]
    own = load("storage", amount, target=target, command=[*command])
    parts = {"components": ["drive0", "system"], "stopping": {}}
    return records_by_hand.point(name, 2, definition=serial, loads=[own], **parts)


class Results:
    """A plan of one point, its attempts, and the history of its components."""

    def __init__(self, folder):
        self.folder = folder
        write_point(folder, point())
        (folder / "components/.history").mkdir(parents=True)

    def component(self, name, *states):
        lines = (json.dumps({"since": at, "content": content}) for at, content in states)
        path = self.folder / f"components/.history/{name}.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))

    def attempt(self, at, amount, replicate=1, passed=True, name=NAME, **asked):
        verdict = make_verdict([make_check("measured", passed, "so")])
        planned = point(amount, **asked, name=name)
        times = {"began_at": at, "finished_at": at}
        found = record(planned, replicate, order=0, verdict=verdict, **times)
        save_record(found, self.folder / f"e/{name}/rep{replicate}.json")

    def history(self):
        return split_measurements_at_component_changes(
            self.folder / "points", self.folder, self.folder / "components"
        )


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path)
    made.component("drive0", (DAYS[0], {"serial": "A"}), (DAYS[3], {"serial": "B"}))
    made.component("system", (DAYS[0], {"kernel": "6.1"}))
    return made


def test_before_and_after_a_replaced_drive(results):
    results.attempt(DAYS[1], 1000.0, replicate=1)
    results.attempt(DAYS[2], 1200.0, replicate=2)
    results.attempt(DAYS[4], 5000.0, replicate=1, serial="B")
    found = results.history()
    assert list(found["era"]) == [1, 1, 2]
    assert list(found["value"]) == [500.0, 600.0, 2500.0]
    assert found["asked"].nunique() == 1  # a serial is not what is asked for
    components = [json.loads(text) for text in found["components"]]
    assert components[0] == {"drive0": DAYS[0], "system": DAYS[0]}
    assert components[2] == {"drive0": DAYS[3], "system": DAYS[0]}


A, B, GONE = {"serial": "A"}, {"serial": "B"}, None
BEFORE = "2025-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("states", "attempts", "found"),
    [
        # The last attempt of a period counts.
        ([(0, A), (3, B)], [(1, 1000), (2, 1400), (5, 5000)], [(1, 700.0), (2, 2500.0)]),
        # A failed attempt has no value.
        ([(0, A), (3, B)], [(1, 1000), (2, None), (5, 5000)], [(1, 500.0), (2, 2500.0)]),
        # Without a later attempt there is no change, nor in the same state.
        ([(0, A), (3, B)], [(1, 1000), (2, 1000)], []),
        ([(0, A)], [(1, 1000), (5, 5000)], []),
        # A drive that is removed and put back stays in one period.
        ([(0, A), (2, GONE), (3, A)], [(1, 1000), (5, 1100)], []),
        # Swapping a drive twice makes three periods.
        (
            [(0, A), (2, B), (4, A)],
            [(1, 1000), (3, 1000), (5, 1000)],
            [(1, 500.0), (2, 500.0), (3, 500.0)],
        ),
        # Attempts from before the history belong to its first state.
        ([(0, A), (3, B)], [(BEFORE, 1000), (5, 5000)], [(1, 500.0), (2, 2500.0)]),
    ],
)
def test_values_of_periods(results, states, attempts, found):
    results.component("drive0", *((DAYS[day], content) for day, content in states))
    for day, amount in attempts:
        at = DAYS[day] if isinstance(day, int) else day
        results.attempt(at, amount or 1.0, passed=amount is not None)
    history = results.history()
    assert list(zip(history["era"], history["value"], strict=True)) == found


def test_different_requests_have_different_fingerprints(results):
    results.attempt(DAYS[1], 1000.0)
    results.attempt(DAYS[5], 5000.0, command=["fio", "--iodepth=64"])
    assert results.history()["asked"].nunique() == 2


def test_a_broken_attempt_is_skipped(results):
    results.attempt(DAYS[1], 1000.0)
    results.attempt(DAYS[5], 5000.0)
    [path] = (results.folder / f"e/{NAME}/attempts").glob("rep1.20260102*")
    path.write_text("{")
    assert list(results.history()["value"]) == [2500.0]


def test_without_any_history_nothing_is_read(tmp_path):
    results = Results(tmp_path)
    results.attempt(DAYS[1], 1000.0)
    assert results.history().empty


def test_a_table_written_as_parquet_is_read_back(results, tmp_path):
    results.attempt(DAYS[1], 1000.0)
    results.attempt(DAYS[5], 5000.0)
    written = results.history()
    write_parquet_table(written, tmp_path / "history.parquet", HISTORY_COLUMNS)
    read = read_parquet_table(tmp_path / "history.parquet", HISTORY_COLUMNS)
    pd.testing.assert_frame_equal(read, written)
