"""The analysis of variance in the report."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lxml import etree
from report_inputs import CONFIG, system_document
from table_figures import draw

from chaosity.report.build_report_data import build_report_data
from chaosity.report.html_pages_and_inline_svg import render_page
from chaosity.report.variance_analysis_section import analysis_sections
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_json import topology_from_json
from machines import measured_host
from table_rows import LATENCY, rows
from table_rows import table as tidy_table

NAMES = ("latency_by_size", "loaded_latency", "interference")
EXPERIMENTS = [
    {"experiment": "memory_bandwidth", "question": "How much?", "figures": []},
    {"experiment": "latency_matrix", "question": "How long?", "figures": []},
    {"experiment": "storage_bandwidth", "question": "Never measured?", "figures": []},
]


def without_percentiles(tidy):
    return tidy[tidy["metric"] != "latency_p99_of_block_means_ns"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    machine = measured_host("two_packages", "memory_bandwidth", "latency_matrix")
    tidy = without_percentiles(machine.tidy())
    drawn = draw(EXPERIMENTS, tidy, machine.topology(), folder / "figures")
    report = build_report_data(
        Measurements.from_table(tidy),
        output=folder / "report.html",
        experiments=EXPERIMENTS,
        drawn=drawn,
        figures=folder / "figures",
        topology=topology_from_json(machine.topology()),
        system=system_document(),
        summaries=[],
        config=CONFIG,
    )
    return report, render_page("report.html.j2", report=report)


def sections(context):
    return {one.name: one.analysis for one in context.experiments}


def test_tables_and_residuals_are_folded(report):
    context, html = report
    page = etree.HTML(html)
    [section] = page.xpath("//section[@id='experiment-latency_matrix']")
    [details] = section.xpath(".//div[@class='analysis']/details")
    assert details.get("open") is None
    rows = details.xpath("./div[@class='wide']//tbody/tr")
    names = [row.findtext("th") for row in rows]
    assert names == ["initiator", "target", "initiator × target", "replicate", "error"]  # noqa: RUF001
    assert [row.xpath("./td[2]")[0].text for row in rows] == ["3", "3", "9", "2", "30"]
    widths = [float(row.xpath(".//span/span/@style")[0][7:-1]) for row in rows]
    assert sum(widths) == pytest.approx(100.0, abs=0.1)
    [drawing] = details.xpath(".//*[local-name()='svg']")
    assert "Residuals against fitted values" in drawing.get("aria-label")
    [matrix] = sections(context)["latency_matrix"]
    start = "Analysed: 48 values. The logarithms are analysed, since their residuals are"
    assert matrix.remarks.startswith(start)
    verdicts = [row.xpath("./td[last()]")[0].text for row in rows]
    assert verdicts[-2:] == ["no difference detected", "noise"]


def test_titles_and_sentences_have_words_for_the_names_of_columns():
    tidy = without_percentiles(measured_host("two_packages", *NAMES).tidy())
    table = Measurements.from_table(tidy[~tidy["factors"].str.contains("all_cores")])
    texts = [
        text
        for found in analysis_sections(table).values()
        for one in found
        for text in (one.title, one.sentence, *(term.sentence for term in one.terms))
    ]
    assert any("working set" in text for text in texts)
    assert [text for text in texts if re.search(r"[a-z]\.[a-z]|[a-z]_[a-z]|\bbytes\b", text)] == []


def test_drawings_share_no_ids(report):
    _, html = report
    identities = etree.HTML(html).xpath("//@id")
    assert len(identities) == len(set(identities))


def test_values_without_logarithms_are_compared_by_differences():
    near = {True: 90.0, False: 144.0}
    tidy = tidy_table(rows(lambda i, j: near[i == j], range(4), range(4), LATENCY, 8, spread=0.0))
    noise = np.random.default_rng(4).normal(0.0, 1.0, len(tidy))
    [matrix] = analysis_sections(Measurements.from_table(tidy.assign(value=tidy["value"] + noise)))[
        "latency_matrix"
    ]
    assert "above local latency (95 % interval of the difference: +" in matrix.remote
    # The machine was made with a difference of 54 ns.
    assert abs(float(matrix.remote.split("Remote latency is ")[1].split(" ns")[0]) - 54.0) < 1.0
    level = matrix.levels[0].rows[0]
    assert (level.level, level.n) == ("pu0", 32)
    equal = tidy.assign(value=100.0 + noise)
    [same] = analysis_sections(Measurements.from_table(equal))["latency_matrix"]
    assert same.sentence.startswith("No difference is detected at n = 128.")
    start = "No difference between remote latency and local latency is detected: "
    assert same.remote.startswith(f"{start}ratio of the means 0.99")


def test_an_experiment_without_factors_has_no_analysis(report):
    _, html = report
    assert html.count("What explains the differences?") == 2


def test_a_single_replicate_without_error_term_has_no_test(tmp_path):
    machine = measured_host("one_node", replicates=1)
    found = analysis_sections(Measurements.from_table(machine.tidy()))
    kernels = next(one for one in found["memory_bandwidth"] if "kernel" in one.title)
    assert kernels.svg is None
    assert "Effects cannot be separated from noise" in kernels.sentence
    assert {term.p_value for term in kernels.terms} == {None}
