from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from lxml import etree
from report_inputs import CONFIG, record_summaries, system_document
from table_figures import DRAWN, draw

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError
from chaosity.figures.draw_and_write_figures import FigureFile, draw_figures
from chaosity.report.build_report_data import build_report_data
from chaosity.report.findings_and_checks import shown_findings
from chaosity.report.html_pages_and_inline_svg import inline_svg, render_page
from chaosity.report.report_summary import summarise_report, terminal_lines
from chaosity.report.resource_table import resource_table
from chaosity.store.left_out_points import (
    PREDICTION_COLUMNS,
    PREDICTION_NUMBERS,
    LeftOutPoints,
)
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import rows_to_table
from chaosity.topology.topology_json import topology_from_json
from chaosity.topology.topology_model import Topology
from machines import measured_host
from table_rows import BANDWIDTH

DRAWING = """<?xml version='1.0'?>
<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' width='90px'
 height='40px' viewBox='0 0 90px 40px' onload='alert(1)'>
<script>alert(1)</script><style>* { display: none }</style>
<rect id='Machine' width='9' height='9' fill='url(#paint)'/><image xlink:href='http://x/y.png'/>
<a xlink:href='https://example.org'><use xlink:href='#Machine'/></a>
</svg>"""
FIGURES = [
    {
        "experiment": "memory_bandwidth",
        "question": "How much bandwidth, & where?",
        "resources": load_experiment("memory_bandwidth")["resources"],
        "source": "figure 4",
        "figures": [
            {
                "name": "nodes",
                "kind": "heatmap",
                "title": "Memory <by> node",
                "load": "memory",
                "metric": BANDWIDTH,
                "rows": "initiator",
                "columns": "target",
                "where": {"initiator_kind": "node", "kernel": "triad"},
            },
            {
                "name": "nothing",
                "kind": "heatmap",
                "title": "Of no machine",
                "load": "memory",
                "metric": BANDWIDTH,
                "rows": "initiator",
                "columns": "target",
                "where": {"initiator_kind": "galaxy"},
            },
        ],
    },
    {
        "experiment": "storage_bandwidth",
        "question": "And from drives?",
        "resources": load_experiment("storage_bandwidth")["resources"],
        "figures": [
            {
                "name": "drives",
                "kind": "heatmap",
                "title": "Drives",
                "load": "storage",
                "metric": BANDWIDTH,
                "rows": "initiator",
                "columns": "target",
                "where": {"target_kind": "drive"},
            }
        ],
    },
]


def machine(**keys):
    failed = {"memory=node1+node2+triad": "pages: 97 % on node 2 <wanted 98>"}
    return measured_host("two_packages", **{"host": "h1", "failed": failed, **keys})


def write(folder, found, figures=None, **parts):
    """Write a report; figures that exist already are not drawn again."""
    tidy = parts.pop("tidy", None)
    if tidy is None:
        tidy = found.tidy()
    if figures is None:
        figures = folder / "figures"
        draw(FIGURES, tidy, found.topology(), figures)
    (folder / "topology.svg").write_text(DRAWING)
    given = {
        "experiments": FIGURES,
        "drawn": DRAWN[figures],
        "figures": figures,
        "topology": topology_from_json(found.topology()),
        "system": system_document(),
        "summaries": record_summaries(tidy),
        "config": CONFIG,
        "drawing": folder / "topology.svg",
        **parts,
    }
    output = folder / "report.html"
    report = build_report_data(Measurements.from_table(tidy), output=output, **given)
    output.write_text(render_page("report.html.j2", report=report), encoding="utf-8")
    return report, output.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def report(folder):
    return write(folder, machine())


@pytest.fixture
def figures(report, folder):
    return folder / "figures"


class Page(HTMLParser):
    """Collect the links of a page, and check that every element is closed."""

    EMPTY = frozenset(["meta", "br", "link", "img", "input", "hr", "wbr"])

    def __init__(self):
        super().__init__()
        self.open, self.references, self.identities, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "action", "poster"):
                self.references.append(value)
            if name == "id":
                self.identities.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    page = Page()
    page.feed(html)
    page.close()
    return page


def test_the_page_is_well_formed_with_unique_ids(report):
    _, html = report
    page = read(html)
    assert page.open == []
    assert len(page.identities) == len(set(page.identities))
    anchors = {link[1:] for link in page.references if link.startswith("#")}
    assert anchors <= set(page.identities)


def test_the_page_needs_no_network(report):
    _, html = report
    outside = [link for link in read(html).references if re.match(r"(?:\w+:)?//|\w+:", link)]
    assert [link for link in outside if not link.startswith("data:")] == []
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.findall(r"@import|url\((?!#)", without_namespaces)
    assert "http://" not in without_namespaces.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in without_namespaces


def test_texts_are_escaped(report):
    _, html = report
    assert "Memory <by> node" not in html
    assert "Memory &lt;by&gt; node" in html
    assert "&lt;wanted 98&gt;" in html


def test_a_row_has_the_declared_kernel_even_if_another_has_more_or_better_values(report):
    """One host measured fast copies of all pairs, another only triads: both rows are of triads."""
    tidy = machine().tidy()
    triads = (tidy["experiment"] == "memory_bandwidth") & (tidy["kernel"] == "triad")
    copies = tidy[triads].assign(kernel="copy_nt", value=tidy["value"] * 1.5)
    more = pd.concat([tidy, copies.assign(point=copies["point"] + "copy_nt")])
    rows = [
        {line.name: line for line in resource_table(Measurements.from_table(each), FIGURES)}
        for each in (tidy, more)
    ]
    names = [name for name in rows[0] if "co-running" not in name]
    assert "Memory bandwidth, one node" in names
    assert {name: rows[1][name] for name in names} == {name: rows[0][name] for name in names}


def test_a_package_counts_only_with_its_own_memory():
    """Older results have a package with one node alone: another quantity, so no row."""
    tidy = machine().tidy()
    older = resource_table(Measurements.from_table(tidy), FIGURES)
    assert not any("package" in line.name for line in older)
    whole = tidy.loc[tidy["initiator_kind"] == "package"].copy()
    whole[["relation", "target", "target_kind"]] = ["same_nodes", "nodes0-1", "nodes"]
    whole["value"] *= 3
    table = Measurements.from_table(pd.concat([tidy, whole.assign(point=whole["point"] + "all")]))
    [line] = [line for line in resource_table(table, FIGURES) if "package" in line.name]
    assert line.name == "Memory bandwidth, one package"
    assert float(line.best.value.split()[0]) > 50.0


def test_a_finding_links_the_figure_that_shows_its_cells():
    """Sets of drives have a comma in their names, and a figure of single nodes has all nodes."""
    tidy = machine().tidy()
    tidy.loc[tidy["target"] == "nodes0,2drives", "value"] *= 0.4
    table = Measurements.from_table(tidy)
    found = analyse_host(table)
    sets = [each for each in found.anomalies if "," in str(each.target)]
    drives = table.where(experiment="storage_bandwidth").rows
    places = {
        kind: tuple(map(tuple, own[["point", "initiator", "target"]].drop_duplicates().to_numpy()))
        for kind, own in drives.groupby("target_kind")
    }
    figures = [
        FigureFile(kind, "storage_bandwidth", "heatmap", "", "", None, None, shown=shown)
        for kind, shown in places.items()
    ]
    linked = {each.figure for each in shown_findings(sets, figures, table)}
    assert sets and linked == {"all_of_nodes"}
    others = [each for each in figures if each.name != "all_of_nodes"]
    assert {each.figure for each in shown_findings(sets, others, table)} == {None}


def test_report_data_is_json(report):
    context, _ = report
    assert json.loads(json.dumps(dataclasses.asdict(context)))["host"] == "h1"


def test_unchanged_data_gives_an_equal_report(report, tmp_path):
    _, html = report
    assert write(tmp_path, machine())[1] == html


def left_out_drives(tidy):
    """The measured rows, and three drives that the budget left out; the first is predicted."""
    is_drive = (tidy["experiment"] == "storage_bandwidth") & (tidy["target_kind"] == "drive")
    rows = (
        tidy[is_drive]
        .drop_duplicates("point")
        .iloc[:3]
        .assign(status="missing", value=float("nan"))
    )
    [row] = rows.iloc[:1].to_dict("records")
    numbers = dict(zip(PREDICTION_NUMBERS, (5e9, 4e9, 6e9, 3e9, 7e9), strict=True))
    known = {name: row.get(name) for name in PREDICTION_COLUMNS}
    known |= {**numbers, "method": "sums; median error 2 %"}
    measured = tidy[~(is_drive & tidy["point"].isin(rows["point"]))]
    predictions = rows_to_table([known], PREDICTION_COLUMNS)
    return measured, LeftOutPoints(Measurements.from_table(rows), predictions)


def test_what_a_budget_left_out_is_told_first_and_predictions_are_in_columns_of_their_own(tmp_path):
    found = machine(failed={})
    measured, left_out = left_out_drives(found.tidy())
    topology = topology_from_json(found.topology())
    table, figures = Measurements.from_table(measured), tmp_path / "figures"
    DRAWN[figures] = draw_figures(FIGURES, table, topology, figures, left_out)
    context, html = write(tmp_path, found, figures, tidy=measured, left_out=left_out)
    all_points = len(found.tidy()[["experiment", "point"]].drop_duplicates())
    assert context.coverage == (
        f"{all_points - 3} of {all_points} combinations measured, 1 predicted, 2 without a value"
    )
    summary = summarise_report(context, table, FIGURES)
    assert terminal_lines(context, summary)[0] == context.coverage
    assert context.coverage not in terminal_lines(context, summary)[1:]
    assert html.index(context.coverage) < html.index('<section id="problems">')
    [fact] = [fact for fact in context.methodology if fact.name == "Predictions"]
    assert "sums; median error 2 %" in fact.value
    [values] = [
        figure.table
        for section in context.experiments
        for figure in section.figures
        if figure.file.name == "drives"
    ]
    assert values.columns[-6:-4] == ("status", "predicted value")
    rows = {row[-6]: row[-5:] for row in values.rows}
    assert rows["predicted"] == ("5.00", "4.00", "6.00", "3.00", "7.00")
    assert rows["valid"] == rows["left_out"] == ("",) * 5


def test_a_complete_plan_has_no_word_of_predictions(report):
    context, html = report
    assert context.coverage is None
    assert not re.search("predict|budget", html, re.IGNORECASE)


def test_findings_come_first_and_point_to_their_figure(tmp_path, figures):
    slow = machine()
    node = 3
    slow_tidy = slow.tidy()
    local = (slow_tidy["load"] == "memory") & (slow_tidy["target"] == f"node{node}")
    slow_tidy.loc[local, "value"] *= 0.5
    context, html = write(tmp_path, slow, figures, tidy=slow_tidy)
    assert f"node{node}; " in context.findings[0].text
    assert "95 % interval" in context.findings[0].text
    assert html.index("is slow") < html.index("Failed points:")
    assert f'<a href="#{context.findings[0].figure}">See the figure</a>' in html


UNTESTED = "Not tested: links between packages, "


def slow_node_with_remarks(remarked_replicates, all_rows=False):
    """A machine with a slow node, of which some replicates say that they were disturbed."""
    slow = machine(failed={})
    tidy = slow.tidy()
    tidy = tidy[~tidy["target_kind"].isin(["all_of_node", "all_of_nodes"])].copy()
    own = (tidy["load"] == "memory") & (tidy["target"] == "node3")
    tidy.loc[own, "value"] *= 0.5
    marked = (own | all_rows) & tidy["replicate"].isin(remarked_replicates)
    tidy["remarks"] = marked.map({True: "disturbed", False: None}).astype("string")
    return slow, tidy


def test_a_suspicion_is_folded_and_the_first_screen_says_no_problems(tmp_path, figures):
    slow, tidy = slow_node_with_remarks([1, 2])
    context, html = write(tmp_path, slow, figures, tidy=tidy)
    assert (context.findings, len(context.suspicions)) == ((), 1)
    section = html[html.index('id="problems"') : html.index('id="resources"')]
    assert "No problems found in " in section
    assert f" {UNTESTED}" in section
    folded = section[section.index('<details class="suspicions">') : section.index("</details>")]
    assert "disturbed or imprecise" in folded and "node3" in folded
    assert section.index("No problems found") < section.index("<details")


def test_unusable_results_are_the_first_problem_with_what_to_do(tmp_path, figures):
    slow, tidy = slow_node_with_remarks([1, 2], all_rows=True)
    context, html = write(tmp_path, slow, figures, tidy=tidy)
    assert (context.problems[0].name, context.problems[0].severity) == ("Usability", "problem")
    assert "Stop other programs on the host" in context.problems[0].text
    assert (context.findings, len(context.suspicions)) == ((), 1)
    section = html[html.index('id="problems"') :]
    assert "No problems found" not in section and context.no_problems == ""
    assert section.count("The results are unusable") == 1
    assert section.index("The results are unusable") < section.index("Suspicions (1)")


def test_without_problems_the_passed_checks_are_listed(tmp_path, figures):
    found = machine(failed={})
    clean = [
        dataclasses.replace(run, checks=run.checks[:1]) for run in record_summaries(found.tidy())
    ]
    tidy = found.tidy()
    # On this machine many drives give less than few, and one package reads the other's slowly.
    tidy = tidy[~tidy["target_kind"].isin(["all_of_node", "all_of_nodes"])]
    context, html = write(tmp_path, found, figures, summaries=clean, tidy=tidy)
    assert context.findings == ()
    assert context.problems == ()
    assert "No problems found in " in html
    assert UNTESTED in context.no_problems
    names = {check.name for check in context.passed}
    assert names >= {"Failed points", "Completeness", "Clock governor", "NUMA balancing"}
    assert "Anomalies" in names


def test_a_small_virtual_machine_has_its_warnings(tmp_path):
    found = measured_host("one_node", replicates=1)
    system = system_document(hypervisor=True, frequency={"governors": []})
    files = found.tidy().assign(file_backed=True, label="file-backed")
    context, html = write(tmp_path, found, system=system, tidy=files)
    severities = {check.name: check.severity for check in context.problems}
    assert severities["Virtual machine"] == severities["Drives"] == "warning"
    assert severities["Replicates"] == "warning"
    assert severities["Clock governor"] == "unknown"
    assert "file-backed" in html


def test_a_table_without_any_value_still_gives_a_report(tmp_path):
    found = measured_host("one_node")
    tidy = found.tidy()
    found = measured_host("one_node", missing=tuple(tidy["point"]))
    context, html = write(tmp_path, found, summaries=[])
    assert context.resources == ()
    assert " have no value" in html
    assert "No value was measured." in html
    assert read(html).open == []


def test_a_report_without_drawing_and_system_is_complete(tmp_path, figures):
    context, html = write(
        tmp_path, machine(), figures, drawing=None, system={}, topology=Topology()
    )
    assert context.drawing is None
    assert read(html).open == []


def test_a_drawing_loses_scripts_and_can_shrink():
    root = etree.fromstring(inline_svg(DRAWING, "topology"))
    assert root.get("viewBox") == "0 0 90 40"
    assert root.get("onload") is None
    assert not root.xpath("//*[local-name()='script' or local-name()='style']")
    assert root.xpath("//@id") == ["topology-Machine"]
    assert root.xpath("//*[local-name()='use']/@*") == ["#topology-Machine"]
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", inline_svg(DRAWING, "topology"))


@pytest.mark.parametrize("text", ["", "no xml", "<html/>", "<svg"])
def test_a_file_that_is_not_svg_is_an_error(text):
    with pytest.raises(UserError, match="is not an SVG file"):
        inline_svg(text, "topology", "topology.svg")
