"""The comparison of a host's configurations."""

from __future__ import annotations

import re

import pytest
from lxml import etree

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.configuration_comparison import (
    compare_configurations,
    compared_ratio_with_verdict,
)
from chaosity.report.resource_table import resource_table
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from machines import measured_host

RESOURCES = [
    {name: load_experiment(experiment)[name] for name in ("experiment", "resources")}
    for experiment in ("memory_bandwidth", "storage_bandwidth")
]


def nps4(**keys):
    return measured_host("two_packages", **keys)


def nps1(**keys):
    given = {"configuration": "nps1", "day": "2026-11-18", "seed": 2, **keys}
    return measured_host("two_packages", "memory_bandwidth", "storage_bandwidth", **given)


def compare(tidy, others, output, figures):
    """Call `compare_configurations` with tidy tables."""
    tables = {path: Measurements.from_table(other) for path, other in others.items()}
    return compare_configurations(Measurements.from_table(tidy), tables, output, figures, RESOURCES)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    other = folder / "nps1"
    other.mkdir()
    (other / "report.html").write_text("")
    tables = {other / "measurements.parquet": nps1().tidy()}
    output = folder / "nps4/report.html"
    return compare(nps4().tidy(), tables, output, folder / "nps4"), folder / "nps4"


def cell(found, name, column):
    row = next(row for row in found.rows if row.name == name)
    return row.cells[column]


def test_the_rows_are_the_resources_of_the_report(found):
    alone = [
        line.name
        for line in resource_table(Measurements.from_table(nps4().tidy()), RESOURCES)
        if "co-running" not in line.name
    ]
    there = [row.name for row in found[0].rows]
    assert [name for name in there if name in alone] == alone
    assert set(there) == set(alone)


def test_the_ratio_is_to_this_reports_configuration(found, tmp_path):
    slower = compare(
        nps4().tidy(), {tmp_path / "x": half(nps1().tidy())}, tmp_path / "r.html", tmp_path
    )
    ratio = cell(slower, "Memory bandwidth, one processing unit", 1).ratio
    assert re.fullmatch(r"0\.(4\d|5\d) times \(0\.\d\d to 0\.\d\d\), worse", ratio.words)
    assert ratio.verdict == "worse"
    ratio = cell(found[0], "Memory bandwidth, one processing unit", 1).ratio
    assert ratio.words.startswith("no difference detected at n = 3: ")


def test_each_other_configuration_has_a_verdict(tmp_path):
    tables = {
        tmp_path / "a": nps1().tidy(),
        tmp_path / "b": half(nps1(configuration="nps2").tidy().assign(threads=12)),
    }
    same, slower = compare(nps4().tidy(), tables, tmp_path / "r.html", tmp_path).verdicts
    assert same.verdict.startswith("nps1 against nps4: ")
    assert re.match(
        r"nps2 against nps4: (\d+) of \1 cells differ clearly .* \1 worse;", slower.verdict
    )
    memory = next(text for text in slower.groups if text.startswith("Memory bandwidth:"))
    assert re.search(r"typically 0\.(49|50)\d times", memory)
    # Places are classes: node1 is another thing in another configuration.
    assert "Initiator node has 12 threads in nps2 and 4 in nps4." in slower.notes
    assert any("no comparable cell in" in text for text in slower.notes)


def test_verdicts_are_adjusted_for_all_ratios_of_a_configuration(tmp_path):
    """Among many ratios, a difference of 4 % has no verdict, and a difference of 50 % has."""
    other = nps1().tidy()
    drive = (other["target_kind"] == "drive") & (other["load"] == "storage")
    other.loc[drive, "value"] *= 0.96
    unit = other["initiator_kind"] == "pu"
    other.loc[unit, "value"] *= 0.5
    side = compare(nps4().tidy(), {tmp_path / "x": other}, tmp_path / "r.html", tmp_path)
    little = cell(side, "Storage bandwidth, one drive", 1).ratio
    assert re.match(r"0\.9[67] times", little.words)
    assert little.verdict == "no difference detected"
    assert cell(side, "Memory bandwidth, one processing unit", 1).ratio.verdict == "worse"


def test_configurations_without_common_cells_are_reported(tmp_path):
    own, other = nps4().tidy(), nps1().tidy()
    own, other = own[own["load"] == "memory"], other[other["load"] == "storage"]
    side = compare(own, {tmp_path / "x": other}, tmp_path / "r.html", tmp_path)
    assert side.verdicts[0].verdict.startswith("nps1 against nps4: no comparable cell")
    assert all(row.cells[1] is None or row.cells[1].ratio is None for row in side.rows)


@pytest.mark.parametrize("column", ["relation", "levels", "factors", "measured_at"])
def test_a_table_with_a_missing_column_is_compared(tmp_path, column):
    other = nps1().tidy().drop(columns=column).reindex(columns=list(COLUMNS)).astype(COLUMNS)
    side = compare(nps4().tidy(), {tmp_path / "x": other}, tmp_path / "r.html", tmp_path)
    assert "nps1 against nps4: " in side.verdicts[0].verdict


def half(tidy):
    return tidy.assign(value=tidy["value"] / 2)


def test_a_package_that_is_one_node_is_found_by_its_threads(tmp_path):
    """Its cores are named after the node, so no point has the name of the package."""
    own = nps4()
    package = own.tidy()
    is_package = package["initiator_kind"] == "package"
    package.loc[is_package, ["threads", "relation"]] = [12, "same_nodes"]
    other = nps1().tidy()
    other = other[other["initiator_kind"] != "package"].assign(threads=12)
    side = compare(package, {tmp_path / "x": other}, tmp_path / "r.html", tmp_path)
    assert cell(side, "Memory bandwidth, one package", 1).best.where.startswith("node")


def test_an_unmeasured_resource_is_none(tmp_path):
    other = nps1().tidy()
    other = other[other["load"] == "memory"]
    side = compare(nps4().tidy(), {tmp_path / "x": other}, tmp_path / "r.html", tmp_path)
    assert cell(side, "Storage bandwidth, one drive", 1) is None


def test_other_kernels_are_not_compared(tmp_path):
    other = nps1().tidy()
    other = other[other["kernel"].fillna("") != "triad"]
    side = compare(nps4().tidy(), {tmp_path / "x": other}, tmp_path / "r.html", tmp_path)
    assert cell(side, "Memory bandwidth, one node", 1) is None


def test_a_single_configuration_has_no_section(tmp_path):
    output, folder = tmp_path / "r.html", tmp_path
    assert compare(nps4().tidy(), {}, output, folder) is None
    empty = nps1(missing=tuple(nps1().tidy()["point"]))
    assert compare(nps4().tidy(), {folder / "x": empty.tidy()}, output, folder) is None
    assert compare(empty.tidy(), {folder / "x": nps4().tidy()}, output, folder) is None


def test_each_bar_has_a_hover_text(found):
    side, folder = found
    memory, _, storage = side.figures
    svg = etree.parse(folder / memory.svg)
    marks = svg.xpath("//*[@class='mark']/*[local-name()='title']/text()")
    start = "configuration nps1, resource one node: "
    assert any(text.startswith(start) and "n = 3" in text for text in marks)
    assert "compared with the best places of nps4" in storage.sentence
    assert (folder / storage.csv).read_text().count("nps1") == len(
        [row for row in side.rows if row.name.startswith("Storage") and row.cells[1]]
    )


def test_a_single_replicate_has_no_interval():
    one = {"ratio": 0.5, "low": None, "high": None, "n_left": 1, "n_right": 1}
    found = compared_ratio_with_verdict({**one, "verdict": "cannot be said"})
    assert found.words == "0.50 times, no interval: n = 1"


def test_different_numbers_of_replicates_are_both_shown():
    one = {"ratio": 1.0, "low": 0.9, "high": 1.1, "n_left": 2, "n_right": 3}
    found = compared_ratio_with_verdict({**one, "verdict": "no difference detected"})
    assert found.words == "no difference detected at n = 2 and 3: 1.00 times (0.90 to 1.10)"
