"""Contended paths and placements: from the experiments' files to their figures."""

from __future__ import annotations

import copy
from functools import cache

import pandas as pd
import pytest
from table_figures import draw

from chaosity.cpusets import format_cpu_list
from chaosity.design.benchmark_templates import LoadMaker, load_benchmark_of_each_category
from chaosity.design.host_resources import HostResources
from chaosity.design.point_expansion import PointExpansion
from chaosity.design.reference_loads import add_references_to_points
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import load_experiment
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import (
    ReplicateOutcome,
    tidy_rows_of_derived_metrics,
    tidy_rows_of_outcome,
)
from chaosity.store.tidy_table_parquet import COLUMNS
from chaosity.weights.canonical_weights import find_contended_bandwidth_matrix
from machines import shipped_topology

BY_NODE = {"progress": True, "by_node": {"amount": "bytes_by_node", "time": "ns_by_node"}}


@pytest.fixture(scope="module")
def elements():
    return HostResources(shipped_topology("two_packages"), ())


@pytest.fixture(scope="module")
def measured(elements):
    """Points and rows of an experiment on a server with four nodes, with made-up values."""
    config = read_config()
    benchmarks = load_benchmark_of_each_category(config)
    plain = benchmarks["memory_bandwidth"].document
    for category, metrics, kernels in (
        ("contended_paths", {"path_bandwidth_bytes_per_second": BY_NODE}, ["read"]),
        (
            "placed_workload",
            {"elements_per_second": {"progress": True}},
            ["triad", "gather", "stencil", "spmv"],
        ),
    ):
        document = copy.deepcopy(plain) | {"category": category, "metrics": metrics}
        document["kernels"] = {name: {"name": name, "arrays": 3} for name in kernels}
        benchmarks[category] = LoadMaker(document, {})
    rule = config["stopping"]["memory_bandwidth"]
    stopping = {**config["stopping"], "contended_paths": rule, "placed_workload": rule}

    @cache
    def measure(name):
        expansion = PointExpansion(
            elements,
            benchmarks,
            {**config, "stopping": stopping},
            lambda _, workers: {node: 2.0 if node in workers else 1.0 for node in range(4)},
        )
        document = load_experiment(name)
        points = add_references_to_points(
            document, expansion.expand_experiment(document), expansion.plan_notes
        )
        assert expansion.plan_notes.note_texts == []
        rows, outcomes = [], {}
        for point in points:
            reported = {"host": "milan", "configuration": "nps4", **point}
            values = {
                load["name"]: dict(made_up(load, len(point["loads"]))) for load in point["loads"]
            }
            seen = {
                load["name"]: format_cpu_list(load["target"]["nodes"]) for load in point["loads"]
            }
            outcome = ReplicateOutcome("valid", readings=values, seen_nodes=seen)
            outcomes[name, point["point"]] = [outcome, outcome]
            for replicate in (1, 2):
                rows += tidy_rows_of_outcome(reported, replicate, outcome)
        for point in points:
            reported = {"host": "milan", "configuration": "nps4", **point}
            for replicate in (1, 2):
                rows += tidy_rows_of_derived_metrics(reported, replicate, outcomes)
        return points, pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)

    return measure


def made_up(load, loads):
    """Return values by metric: a path is slower to far nodes, and the more workers there are."""
    for metric, source in load["metrics"].items():
        value = 1e9 * (1 + len(load["target"]["nodes"]))
        if "by_node" in source:
            by_node = load["target"]["by_node"].items()
            value = {node: 20e9 / place["distance"] / loads for node, place in by_node}
        yield metric, (value, None)


def drawn(name, table, folder, *names):
    """Draw the figures of these names of an experiment, or all."""
    experiment = load_experiment(name)
    figures = [each for each in experiment["figures"] if each["name"] in names or not names]
    files = draw([{**experiment, "figures": figures}], table, {}, folder)
    assert [file.problem for file in files] == [None] * len(files)
    return {file.name: file for file in files}


def test_contended_paths_are_drawn_and_give_weights(measured, tmp_path):
    points, table = measured("contended_paths")
    assert {len(point["loads"]) for point in points} == set(range(1, 5))
    figures = drawn("contended_paths", table, tmp_path)
    assert set(figures) == {"contended_paths", "contended_paths_by_workers"}
    for point in points:
        workers = [load["initiator"]["nodes"][0] for load in point["loads"]]
        matrix = find_contended_bandwidth_matrix(Measurements.from_table(table), workers)
        assert matrix.initiators == tuple(workers)
        assert len(matrix.samples) == 4 * len(workers)


def test_contended_paths_are_matrices_of_workers_and_memory_nodes(measured, tmp_path):
    points, table = measured("contended_paths")
    tables = drawn("contended_paths", table, tmp_path)["contended_paths"].tables
    assert sorted(len(one.rows) for one in tables) == sorted(len(p["loads"]) for p in points)
    for one in tables:
        assert one.columns[2:] == ("Memory node", "Pages found on", *map(str, range(4)))
        for row in one.rows:
            assert [cell.text for cell in row[2:4]] == ["0-3", "0-3"]
            assert all(cell.text and cell.state == "valid" for cell in row)


def test_placements_are_drawn_by_policy_and_workers(measured, tmp_path):
    points, table = measured("page_placement")
    alone = [point for point in points if len(point["loads"]) == 1]
    assert len(alone) == 12 * 8 * 4  # sets, policies, programs
    beside = [point for point in points if len(point["loads"]) == 2]
    assert len(beside) == 2 * 8 * 4
    for point in beside:
        work = next(load for load in point["loads"] if load["role"] == "work")
        other = next(load for load in point["loads"] if load["role"] == "beside")
        assert set(work["initiator"]["nodes"]) | set(other["target"]["nodes"]) == set(range(4))
        assert not set(work["initiator"]["nodes"]) & set(other["target"]["nodes"])
        assert point["factors"]["beside"] == other["initiator"]["name"]
    names = ("placed_triad", "placed_beside", "cost_of_placement")
    figures = drawn("page_placement", table, tmp_path, *names)
    assert tuple(figures) == names and all(each.marks for each in figures.values())
