"""Names of devices, hosts and files of others have no effect in reports, figures and tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import hostile_texts as hostile
import pandas as pd
import pytest
from lxml import etree
from report_inputs import system_document
from table_figures import draw
from test_overview_page import leave_out, measured, overview
from test_report import FIGURES, machine, read, write

from chaosity.report.html_pages_and_inline_svg import inline_svg
from chaosity.store.csv_for_spreadsheets import csv_text, original_text, without_formula
from machines import measured_host
from table_rows import BANDWIDTH

BY_KERNEL = {
    "experiment": "memory_bandwidth",
    "question": "How fast?",
    "figures": [
        {
            "name": "kernels",
            "kind": "heatmap",
            "title": f"Of {hostile.HTML}",
            "load": "memory",
            "metric": BANDWIDTH,
            "rows": "initiator",
            "columns": "kernel",
            "where": {"initiator_kind": "node", "target": "node0"},
        }
    ],
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report in which every name and message of others is hostile, and its folder."""
    folder = tmp_path_factory.mktemp("hostile")
    found = machine(failed={"memory=node1+node2+triad": hostile.EVERYTHING})
    tidy = found.tidy()
    tidy["host"], tidy["label"] = hostile.EVERYTHING, hostile.FORMULA
    tidy["kernel"] = tidy["kernel"].replace("triad", hostile.EVERYTHING)
    firmware = {"bios_vendor": hostile.HTML, "bios_version": hostile.JINJA}
    system = system_document(cpu_model=hostile.EVERYTHING, firmware=firmware, smt=hostile.HTML)
    figures = folder / "figures"
    shown = [BY_KERNEL]
    draw(shown, tidy, found.topology(), figures)
    _, html = write(folder, found, figures, tidy=tidy, system=system, experiments=shown)
    return html, folder


def test_html_in_names_is_text_in_the_report(page):
    html, _ = page
    assert "<script>alert" not in html and "onerror=alert(1)>" not in html.replace("&gt;", "")
    assert "&lt;script&gt;alert(1)" in html
    assert read(html).open == []


def test_jinja_braces_in_names_are_not_evaluated_in_the_report(page):
    html, _ = page
    assert "{{ 7 * 7 }}" in html and "49{%" not in html


def test_html_in_titles_and_hover_texts_of_a_drawing_is_text(page):
    _, folder = page
    for path in (folder / "figures").glob("*.svg"):
        root = etree.fromstring(path.read_bytes())
        assert not root.xpath("//*[local-name()='script' or local-name()='img']")
        assert any("<script>" in text for text in root.xpath("//text()"))


def test_dollar_signs_in_names_are_no_formula_in_a_drawing(tmp_path):
    found = measured_host("one_node")
    tidy = found.tidy()
    tidy["kernel"] = tidy["kernel"].replace("triad", hostile.MATH)
    draw([BY_KERNEL], tidy, found.topology(), tmp_path)
    assert list(tmp_path.glob("*.svg"))


def test_control_characters_in_names_and_reasons_break_no_drawing(tmp_path):
    found = measured_host("one_node")
    tidy = found.tidy()
    tidy["kernel"] = tidy["kernel"].replace("triad", hostile.TERMINAL)
    tidy.loc[tidy.index[:3], ["status", "reason"]] = "failed", hostile.TERMINAL
    draw([BY_KERNEL], tidy, found.topology(), tmp_path)
    for path in tmp_path.glob("*.svg"):
        assert "\\x1b" in " ".join(etree.fromstring(path.read_bytes()).itertext())


def test_scripts_in_a_drawing_of_the_topology_are_left_out():
    drawing = (
        "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script>"
        "<a href='javascript:alert(1)'><text>x</text></a><foreignObject/></svg>"
    )
    shown = inline_svg(drawing, "a")
    for word in ("script", "onload", "foreignObject"):
        assert word not in shown


def test_the_overview_escapes_hosts_reasons_and_links(tmp_path, tmp_path_factory):
    figures = tmp_path_factory.mktemp("figures")
    found = measured_host("one_node")
    draw(FIGURES, found.tidy(), found.topology(), figures)
    measured(tmp_path, figures, "javascript:alert(1)")
    leave_out(tmp_path, "b", hostile.HTML)
    made, html = overview(tmp_path)
    assert any((row.link or "").startswith("javascript%3A") for row in made.rows)
    assert "<script>alert" not in html and "&lt;script&gt;" in html
    assert read(html).open == []


@pytest.mark.parametrize(
    "text", [hostile.FORMULA, "+1+cmd", "-2+3", "@SUM(A1)", " =1+1", "\n=1+1", "\uff1d1+1"]
)
def test_a_formula_in_a_text_cell_gets_an_apostrophe(text):
    table = pd.DataFrame({"name": [text], "value": [-1.5], "@head": ["plain"]})
    [head, row] = csv.reader(io.StringIO(csv_text(table), newline=""))
    assert row == [f"'{text}", "-1.5", "plain"] and head == ["name", "value", "'@head"]
    assert original_text(row[0]) == text


@pytest.mark.parametrize("text", ["-1.5", "+2", "-1e-9", "-inf", "-", "node0", "a=b", "'x", ""])
def test_numbers_and_plain_texts_of_a_csv_file_are_unchanged(text):
    assert without_formula(text) == text == original_text(text)


def test_a_figure_neutralises_formulas_in_its_csv_file(page):
    _, folder = page
    texts = [path.read_text() for path in (folder / "figures").glob("*.csv")]
    assert texts
    for text in texts:
        for row in csv.reader(io.StringIO(text)):
            assert all(without_formula(cell) == cell for cell in row)


def test_the_data_of_a_hostile_report_is_json(tmp_path):
    found = machine(failed={"memory=node1+node2+triad": hostile.TERMINAL})
    data, _ = write(tmp_path, found)
    json.dumps(dataclasses.asdict(data), default=str)
