"""The tidy table in numpy types: selections, groups of comparable rows, matrices of nodes."""

import numpy as np
import pandas as pd
import pytest

from chaosity.store.measurements import Measurements, equals_or_in_list
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
