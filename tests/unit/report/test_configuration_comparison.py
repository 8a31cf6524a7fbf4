"""The comparison of a host's configurations."""

from __future__ import annotations

import re
from functools import cache

import pytest
from report_inputs import run_of

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.configurations import configurations_section, ratio_and_verdict_texts
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from machines import measured_host

RESOURCES = [
    {name: load_experiment(experiment)[name] for name in ("experiment", "resources")}
    for experiment in ("memory_bandwidth", "storage_bandwidth")
]


NAMES = ("memory_bandwidth", "storage_bandwidth")


@cache
def nps4():
    return compared(measured_host("two_packages", *NAMES).tidy())


@cache
def nps1(configuration="nps1", **keys):
    given = {"configuration": configuration, "day": "2026-11-18", "seed": 2, **keys}
    return compared(measured_host("two_packages", *NAMES, **given).tidy())


def compared(tidy):
    """The table without sets of drives, and with two kernels."""
    return tidy[(tidy["drives"].fillna(1) == 1) & tidy["kernel"].isin(["triad", "copy", None])]


def compare(tidy, others, output):
    """Call `configurations_section` with tidy tables."""
    tables = {path: Measurements.from_table(other) for path, other in others.items()}
    run = run_of(tidy, tables_of_other_configurations=tables, experiments=RESOURCES)
    run.output = output
    return configurations_section(run)


def half(tidy):
    return tidy.assign(value=tidy["value"] / 2)


def older(tidy):
    """A table of an earlier version, which lacks columns."""
    tidy = tidy.drop(columns=["relation", "levels", "factors", "measured_at"])
    return tidy.reindex(columns=list(COLUMNS)).astype(COLUMNS)


def of_one_node(tidy):
    """A package that is one node: its cores are named after the node."""
    return tidy[tidy["initiator_kind"] != "package"].assign(threads=12)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The comparison of a host with its other configurations, and the column of each of them."""
    folder = tmp_path_factory.mktemp("beside")
    others = {
        "nps1": nps1(),
        "half": half(nps1("half")),
        "copies": nps1("copies")[nps1("copies")["kernel"] == "copy"],
        "older": older(nps1("older")),
        "one_node": of_one_node(nps1("one_node")),
    }
    tables = {folder / name / "measurements.parquet": tidy for name, tidy in others.items()}
    own = nps4().copy()
    own.loc[own["initiator_kind"] == "package", ["threads", "relation"]] = [12, "same_nodes"]
    compared = compare(own, tables, folder / "nps4/report.html")
    columns = {name: number for number, name in enumerate(others, start=1)}
    return compared, columns


def cell(found, name, column):
    section, columns = found
    row = next(row for row in section["rows"] if row["name"] == name)
    return row["cells"][columns[column]]


def test_a_package_that_is_one_node_is_found_by_its_threads(found):
    one = cell(found, "Memory bandwidth, one package", "one_node")
    assert one["best"]["place"].where.startswith("node")


def test_verdicts_are_adjusted_for_all_ratios_of_a_configuration(tmp_path):
    """Among many ratios, a difference of 4 % has no verdict, and a difference of 50 % has."""
    other = nps1().copy()
    drive = (other["target_kind"] == "drive") & (other["load"] == "storage")
    other.loc[drive, "value"] *= 0.96
    other.loc[other["initiator_kind"] == "pu", "value"] *= 0.5
    side = compare(nps4(), {tmp_path / "x": other}, tmp_path / "r.html")
    given = side, {"nps1": 1}
    little = cell(given, "Storage bandwidth, one drive", "nps1")["best"]["ratio"]
    assert re.match(r"0\.9[67] times", little["words"])
    assert little["verdict"] == "no difference detected"
    halved = cell(given, "Memory bandwidth, one processing unit", "nps1")
    assert {end["ratio"]["verdict"] for end in (halved["best"], halved["worst"])} == {"worse"}


def test_configurations_without_common_cells_are_reported(tmp_path):
    own, other = nps4(), nps1()
    own, other = own[own["load"] == "memory"], other[other["load"] == "storage"]
    side = compare(own, {tmp_path / "x": other}, tmp_path / "r.html")
    assert side["verdicts"][0]["verdict"].startswith("nps1 against nps4: no comparable cell")
    assert all(
        row["cells"][1] is None or row["cells"][1]["best"]["ratio"] is None for row in side["rows"]
    )


def test_different_numbers_of_replicates_are_both_shown():
    one = {"ratio": 1.0, "low": 0.9, "high": 1.1, "n_left": 2, "n_right": 3}
    found = ratio_and_verdict_texts({**one, "verdict": "no difference detected"})
    assert found["words"] == "no difference detected at n = 2 and 3: 1.00 times (0.90 to 1.10)"
