"""The tidy table as analyses see it, and the history of what was measured before a change."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import records_by_hand
from chaosity.records.record_files import save_record
from chaosity.records.record_format import make_check, make_verdict
from chaosity.store.measurements import Measurements, equals_or_in_list
from chaosity.store.tidy_table_from_records import (
    split_measurements_at_component_changes,
)
from records_by_hand import load, record, write_point
from table_rows import rows, table


def nodes(number):
    return table(rows(lambda i, j: 40e9, range(number), range(number)))


@pytest.fixture(scope="module")
def small():
    return Measurements.from_table(nodes(2))


def test_columns_have_numpy_types_and_missing_texts_are_none(small):
    assert all(isinstance(kind, np.dtype) for kind in small.rows.dtypes)
    missing = small.rows.loc[small.rows["drives"].isna(), "drives"]
    assert missing.empty or missing.map(np.isnan).all()
    without = nodes(1).assign(kernel=pd.NA)
    assert set(Measurements.from_table(without).rows["kernel"]) == {None}


def test_only_positive_values_with_a_good_verdict_are_valid(small):
    rows = small.rows.copy()
    rows["value"] = rows["value"].to_numpy(float)
    rows.loc[rows.index[0], "status"] = "failed"
    rows.loc[rows.index[1], "value"] = 0.0
    rows.loc[rows.index[2], "value"] = np.nan
    found = Measurements(rows)
    assert len(found.valid_rows()) == len(small.valid_rows()) - 3
    assert len(found.valid_rows_with_value()) == len(small.valid_rows_with_value()) - 2


def test_a_wanted_level_may_be_null_or_one_of_a_list():
    values = pd.Series(["a", "b", None], dtype=object)
    assert equals_or_in_list(values, "a").tolist() == [True, False, False]
    assert equals_or_in_list(values, None).tolist() == [False, False, True]
    assert equals_or_in_list(values, ["b", None]).tolist() == [False, True, True]


def test_other_loads_of_a_point_are_described():
    names = {"host": "h", "configuration": "c", "experiment": "e", "metric": "latency_ns"}
    rows = [
        {**names, "point": point, "load": load, "initiator": initiator, "target": "node0"}
        for point, load, initiator in [
            ("p", "chase", "pu0"),
            ("p", "traffic", "node1"),
            ("p", "traffic", "node2"),
            ("q", "chase", "pu0"),
        ]
    ]
    found = Measurements.from_table(pd.DataFrame(rows, index=[5, 6, 7, 7]))
    assert found.corunning_text(["load", "target"]).tolist() == [
        "2 x traffic node0",
        "chase node0, traffic node0",
        "chase node0, traffic node0",
        "",
    ]
    assert found.other_loads(found.rows.iloc[0])["initiator"].tolist() == ["node1", "node2"]
    assert found.rows["load_count"].tolist() == [3, 3, 3, 1]


def test_slices_with_several_initiators_a_node_are_not_a_matrix():
    found = Measurements.from_table(nodes(2))
    [(where, matrix), *_] = found.single_load_rows().node_matrices()
    assert where["metric"] == matrix.metric and matrix.source == where["experiment"]
    assert all(len(matrix.samples[pair]) == len(blocks) for pair, blocks in matrix.blocks.items())
    own = found.single_load_rows().valid_rows().node_to_node_rows().rows
    doubled = pd.concat([own, own.assign(initiator="pu0")])
    assert list(Measurements(doubled).node_matrices()) == []


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
