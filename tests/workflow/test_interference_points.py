"""Two loads on the cores of this machine, alone and together, from the plan to the figure."""

from __future__ import annotations

import csv
import json

import pytest


@pytest.mark.alone
@pytest.mark.thorough
def test_a_reader_and_a_writer_and_two_neighbours_in_a_cache(workflow):
    workflow.config |= {
        "experiments": ["interference_memory", "interference_cache"],
        "working_set": {**workflow.config["working_set"], "sweep_at_most_bytes": None},
    }
    workflow.run()
    results = workflow.folder / "results/localhost"
    records = [json.loads(path.read_text()) for path in results.glob("*/*/*/rep1.json")]
    reasons = {record["verdict"]["reason"] for record in records} - {None}
    assert {record["verdict"]["status"] for record in records} == {"valid"}, reasons
    pairs = [record["point"] for record in records if len(record["loads"]) == 2]
    assert {point["experiment"] for point in pairs} == {"interference_memory", "interference_cache"}
    figures = {
        file["name"]: file
        for file in json.loads(workflow.path("*/*/figures/figures.json").read_text())
    }
    assert figures["latency_beside_l3_neighbour"]["sentence"].startswith(
        "Latency with neighbour same l3 domain"
    )
    shown = figures["reads_beside_writes"]
    with workflow.path(f"*/*/figures/{shown['csv']}").open() as stream:
        rows = {row["load"]: row for row in csv.DictReader(stream)}
    [median] = [column for column in rows["sum"] if column.startswith("median_")]
    value = {name: float(row[median]) for name, row in rows.items()}
    assert value["sum"] == pytest.approx(value["reader"] + value["writer"])
    assert value["larger_load_alone"] > 0
    assert shown["sentence"].startswith("The sum of reader and writer is more than 1 % below")
