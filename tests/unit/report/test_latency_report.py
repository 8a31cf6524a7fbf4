"""Test latency in the report: text tables, numbers of curves, and the resource table."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest
from lxml import etree
from report_inputs import CONFIG, system_document
from table_figures import draw

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.build_report_data import build_report_data
from chaosity.report.component_change_effects import component_changes
from chaosity.report.configuration_comparison import compare_configurations
from chaosity.report.html_pages_and_inline_svg import render_page
from chaosity.report.resource_table import resource_table
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_json import topology_from_json
from machines import measured_host
from table_rows import LATENCY

NAMES = ("latency_by_size", "latency_matrix", "loaded_latency", "core_to_core")
ALL = [load_experiment(name) for name in NAMES]


def machine(name="two_packages", **keys):
    return measured_host(name, *NAMES, **keys)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("latency_report"), machine()
    tidy, topology = found.tidy(), found.topology()
    drawn = draw(ALL, tidy, topology, folder / "figures")
    report = build_report_data(
        Measurements.from_table(tidy),
        output=folder / "report.html",
        experiments=ALL,
        drawn=drawn,
        figures=folder / "figures",
        topology=topology_from_json(topology),
        system=system_document(),
        summaries=[],
        config=CONFIG,
    )
    return report, etree.HTML(render_page("report.html.j2", report=report))


def sections(context):
    return {figure.file.name: figure for one in context.experiments for figure in one.figures}


def test_a_table_figure_is_in_the_page_with_its_csv(report):
    context, html = report
    section = sections(context)["latency_by_core"]
    assert section.svg is None
    [figure] = html.xpath("//figure[@id='latency_by_core']")
    assert figure.xpath(".//p[@class='links']/a/text()") == ["CSV"]
    tables = figure.xpath(".//table[contains(@class, 'text')]")
    assert [table.findtext("caption").split(":")[0] for table in tables] == [
        "serial",
        "concurrent",
        "all cores",
    ]
    heads = ["".join(head.itertext()) for head in tables[0].xpath(".//thead//th")]
    assert heads[3:5] == ["Pages found on", "16 KiB"]
    assert "n\xa0=\xa03" in tables[0].xpath(".//tbody/tr[1]/td[4]/@title")[0]
    assert tables[0].getparent().get("class") == "wide"  # scrolls
    assert json.dumps(dataclasses.asdict(context))


def test_the_quantities_of_a_curve_are_below_it(report):
    _, html = report
    [figure] = html.xpath("//figure[@id='loaded_latency']")
    [table] = figure.xpath(".//table[contains(@class, 'text')]")
    heads = ["".join(head.itertext()) for head in table.xpath(".//thead//th")]
    assert heads[2:5] == ["Unloaded", "Peak", "Knee (latency doubled)"]
    assert figure.xpath("name(*[1])") == "div"  # the drawing comes first
    links = figure.xpath(".//p[@class='links']/a/text()")
    assert links == ["SVG", "PNG", "CSV", "CSV of the numbers"]


def test_sizes_and_rates_of_values_are_readable(report):
    context, _ = report
    values = sections(context)["latency_serial_concurrent"].table
    assert {row[1] for row in values.rows} >= {"16 KiB", "32 MiB"}
    curve = sections(context)["loaded_latency"].table
    place = curve.columns.index("traffic traffic bytes per second")
    assert any(row[place].endswith(" GB/s") for row in curve.rows)


EXPERIMENTS = [load_experiment(name) for name in ("latency_matrix", "core_to_core")]


def lines(tidy):
    return {line.name: line for line in resource_table(Measurements.from_table(tidy), EXPERIMENTS)}


def test_latency_has_rows_for_own_and_other_nodes_at_the_largest_size():
    found = lines(machine().tidy())
    own = found["Memory latency, one processing unit"]
    other = found["Memory latency of other nodes, one processing unit"]
    assert own.detail == "chaosity latency, thp pages, 4 places"
    assert own.differ is False
    assert other.best.value.endswith(" ns")
    assert float(other.best.value.split()[0]) < 115.0 < float(other.worst.value.split()[0])
    assert other.share.endswith(" times")
    assert [name for name in found if "p99" in name] == []


def test_percentiles_have_no_row():
    tidy = machine().tidy()
    tail = tidy[tidy["metric"] == LATENCY].assign(metric="latency_p99_of_block_means_ns")
    assert list(lines(pd.concat([tidy, tail]))) == list(lines(tidy))


def test_core_to_core_latency_names_both_cores_and_the_lines_home():
    found = lines(machine().tidy())["Core-to-core latency"]
    assert "\N{LEFT RIGHT ARROW}" in found.best.where
    assert ", line on node" in found.best.where
    assert found.differ is True


def test_the_slowdown_of_latency_is_a_ratio():
    found = lines(machine().tidy())["Memory latency, co-running"]
    assert found.detail.startswith("ratio to the value alone")
    assert found.worst.value.startswith(("2.", "3."))
    assert found.best.value.startswith(("0.9", "1.0"))


def test_one_node_gives_one_latency_row():
    found = lines(machine("one_node").tidy())
    assert "Memory latency, one processing unit" in found


def test_configurations_are_compared_for_own_and_other_nodes(tmp_path):
    one = machine()
    other = machine(configuration="nps2")
    tables = {tmp_path / "nps2/measurements.parquet": Measurements.from_table(other.tidy())}
    own = Measurements.from_table(one.tidy())
    found = compare_configurations(own, tables, tmp_path / "report.html", tmp_path, EXPERIMENTS)
    names = [row.name for row in found.rows]
    assert names[:2] == [
        "Memory latency, one processing unit",
        "Memory latency of other nodes, one processing unit",
    ]
    assert all(None not in row.cells for row in found.rows)


def test_loads_of_the_same_name_have_separate_changes():
    rows = []
    for era, since in ((1, "1"), (2, "2")):
        for replicate in (1, 2, 3):
            rows += [
                {
                    "host": "h",
                    "configuration": "c",
                    "experiment": "e",
                    "point": "chase=all",
                    "load": "chase",
                    "initiator": f"pu{pu}",
                    "target": "node0",
                    "metric": LATENCY,
                    "replicate": replicate,
                    "status": "valid",
                    "reason": None,
                    "value": 90.0 * (1 + pu) * era + replicate,
                    "era": era,
                    "asked": "a",
                    "components": json.dumps({"node0": since}),
                }
                for pu in (0, 1)
            ]
    [change], _ = component_changes(Measurements.from_table(pd.DataFrame(rows)), {})
    assert [point.load for point in change.lowest] == [
        "chase of pu0 on node0",
        "chase of pu1 on node0",
    ]
