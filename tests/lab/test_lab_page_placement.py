"""The study of page placement on a machine with eight nodes, from measured weights to the report.

Where pages are is real there. How fast anything is means nothing in an emulated machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaosity.place.placement_policies import POLICIES
from lab_workflow import SERVER, Pipeline, placed

pytestmark = pytest.mark.lab

NODES = 8
WEIGHTS = "memory_bandwidth"
CONTENDED = "contended_paths"
STUDY = "page_placement"
# Every policy with some worker sets and kernels; all of them are hundreds.
SAMPLE = {STUDY: 40, CONTENDED: 5}


@pytest.fixture(scope="module")
def measured(server, root: Path, tmp_path_factory) -> Pipeline:
    """The server with weights measured by a first run, and placements by a second."""
    pipeline = Pipeline(root, tmp_path_factory.mktemp("placement"), SERVER)
    pipeline.config |= {
        "experiments": [WEIGHTS, CONTENDED],
        "sample": {CONTENDED: SAMPLE[CONTENDED]},
        "levels": {WEIGHTS: {"kernel": 1}},
    }
    pipeline.run_and_try_again()
    pipeline.config |= {"experiments": [WEIGHTS, CONTENDED, STUDY], "sample": SAMPLE}
    pipeline.run_and_try_again()
    return pipeline


def of_study(pipeline: Pipeline) -> list[dict]:
    return [one for one in pipeline.all_records() if one["point"]["experiment"] == STUDY]


def work_of(record: dict) -> dict:
    [load] = [one for one in record["loads"] if one["role"] == "work"]
    return load


def test_every_policy_is_measured_and_pages_are_where_it_says(measured: Pipeline) -> None:
    records = of_study(measured)
    assert {work_of(record)["target"]["name"] for record in records} == set(POLICIES)
    for record in records:
        name = record["point"]["point"]
        assert record["verdict"]["status"] == "valid", (name, record["verdict"]["reason"])
        assert placed(record), (name, record["verdict"]["checks"])


def test_shares_are_within_two_per_cent_by_the_kernels_account(measured: Pipeline) -> None:
    judged = 0
    for record in of_study(measured):
        load = work_of(record)
        wanted = load["placement"]["shares"]
        if wanted is None or load["placement"]["settles"]:
            continue
        seen = load["placement_seen"]["memory_bytes_by_node"]
        total = sum(seen.values())
        off = {
            node: abs(seen.get(node, 0) / total - wanted.get(node, 0.0))
            for node in {*seen, *wanted}
        }
        assert max(off.values()) <= 0.02, (record["point"]["point"], off)
        judged += 1
    print(f"{judged} placements with shares, {len(of_study(measured))} in all")
    assert judged
