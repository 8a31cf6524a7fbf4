"""The document for schedulers: a closed schema, with n and interval for each number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chaosity.export.formats import build_placement_document
from chaosity.export.main_matrices import memory_matrix, read_measured_host
from chaosity.store.tidy_table_parquet import COLUMNS
from machines import SMALL_MACHINES, MeasuredHost, measured_host
from published_schemas import schema_errors, schema_validator
from table_rows import BANDWIDTH, LATENCY, folder_of

XML = SMALL_MACHINES / "two_packages.xml"
NAMES = ("memory_bandwidth", "storage_bandwidth", "interference")
LATENCIES = ("latency_matrix", "loaded_latency")
FAILED = {"memory=node0+node1+triad": "placement: memory: 3 % of the pages are on node 0"}


def server(*experiments: str, **keys: Any) -> MeasuredHost:
    names = experiments or (*NAMES, *LATENCIES)
    return measured_host("two_packages", *names, **keys)


def document(tidy: pd.DataFrame, folder: Path) -> dict:
    return build_placement_document(
        read_measured_host(folder_of(XML, tidy.astype(COLUMNS), folder))
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server with two packages; a point failed and one is missing."""
    tidy = server(failed=FAILED, missing=["memory=node3+node3+triad"]).tidy()
    return document(tidy, tmp_path_factory.mktemp("whole") / "r")


def test_the_document_matches_its_schema(whole):
    assert schema_errors(json.loads(json.dumps(whole, allow_nan=False)), "placement") == []


def test_the_schema_is_closed_everywhere():
    def objects(part):
        if isinstance(part, dict):
            if part.get("type") == "object":
                yield part
            for value in part.values():
                yield from objects(value)
        elif isinstance(part, list):
            for value in part:
                yield from objects(value)

    found = list(objects(schema_validator("placement").schema))
    free = [one for one in found if one.get("additionalProperties") is not False]
    assert len(found) > 10
    assert [one.get("description") for one in free] == [
        "factors of the point and levels of the load"
    ]


def test_placements_that_failed_are_named_with_the_reason(whole):
    left_out = {(o["initiator_node"], o["target_node"]): o for o in whole["memory"]["left_out"]}
    assert "pages are on node 0" in left_out[0, 1]["reason"]
    assert left_out[3, 3]["reason"] == "not measured yet"
    failed = next(
        p
        for p in whole["memory"]["placements"]
        if (p["initiator_node"], p["target_node"]) == (0, 1)
    )
    assert failed[BANDWIDTH] is None and failed[LATENCY] is not None


def test_interference_is_listed_by_relation(whole):
    found = {
        (one["load"], one["beside"], one["relation"]): one
        for one in whole["interference"]["by_relation"]
    }
    near = found["memory", "storage", "same_node"]
    far = found["memory", "storage", "other_package"]
    assert near["worst"]["ratio_to_alone"]["median"] < 0.7
    assert far["worst"]["ratio_to_alone"]["median"] > near["worst"]["ratio_to_alone"]["median"]
    ratio = near["worst"]["ratio_to_alone"]
    assert ratio["n"] >= 1 and near["cells"] > 1


def test_the_worst_corunning_load_for_latency_makes_it_longest(whole):
    found = [one for one in whole["interference"]["by_relation"] if one["less_is_better"]]
    assert found
    for one in found:
        own = [
            cell["ratio_to_alone"]["median"]
            for cell in whole["interference"]["cells"]
            if (cell["load"], cell["kernel"], cell["metric"])
            == (one["load"], one["kernel"], one["metric"])
            and (one["beside"], one["relation"])
            in {(other["load"], other["relation"]) for other in cell["beside"]}
        ]
        assert one["worst"]["ratio_to_alone"]["median"] == max(own)


def test_a_cache_is_not_taken_for_memory(tmp_path):
    tidy = server("memory_bandwidth", "latency_by_size").tidy()
    sized = tidy[tidy["experiment"] == "latency_by_size"]
    assert not sized.empty
    both = pd.concat([tidy[tidy["experiment"] == "memory_bandwidth"], sized])
    host = read_measured_host(folder_of(XML, both.astype(COLUMNS), tmp_path / "r"))
    assert memory_matrix(host, LATENCY) is None


def test_one_thread_is_not_taken_for_a_node(tmp_path):
    tidy = server("memory_bandwidth").tidy()
    threads = tidy[tidy["initiator_kind"] == "pu"]
    host = read_measured_host(folder_of(XML, threads, tmp_path / "r"))
    assert memory_matrix(host, BANDWIDTH) is None
