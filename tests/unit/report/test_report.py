"""The report of a small machine, in which every name and message of others is hostile."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import hostile_texts as hostile
import pandas as pd
import pytest
from lxml import etree
from report_inputs import CONFIG, record_summaries, run_of, system_document
from table_figures import DRAWN, draw

from chaosity.documents.shipped_documents import ROOT, load_experiment
from chaosity.errors import UserError
from chaosity.figures.figure_files import FigureFile, draw_figures
from chaosity.records.record_files import SCHEMA_VERSION, save_record
from chaosity.records.record_format import make_check, make_verdict
from chaosity.report.best_places_of_resources import resource_table_rows
from chaosity.report.page import report_page, summarise_report, terminal_lines
from chaosity.report.run import read_record_summaries, unmet_note_sentences
from chaosity.report.sections import figure_section, svg_as_image
from chaosity.store.csv_tables import escape_formula
from chaosity.store.measurements import (
    PREDICTION_COLUMNS,
    PREDICTION_NUMBERS,
    LeftOutPoints,
    Measurements,
)
from chaosity.store.tidy_table_from_records import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import rows_to_table
from chaosity.topology.topology_model import Topology, topology_from_json
from machines import measured_host
from table_rows import BANDWIDTH

DRAWING = """<?xml version='1.0'?>
<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' width='90px'
 height='40px' viewBox='0 0 90px 40px' onload='alert(1)'>
<script>alert(1)</script><style>* { display: none }</style><foreignObject/>
<rect id='Machine' width='9' height='9' fill='url(#paint)'/><image xlink:href='http://x/y.png'/>
<a xlink:href='https://example.org'><use xlink:href='#Machine'/></a><a href='javascript:x()'/>
</svg>"""


def figure(name, load, title="Memory <by> node", **where):
    axes = {"kind": "heatmap", "rows": "initiator", "columns": "target"}
    what = {"title": title, "load": load, "metric": BANDWIDTH, "where": where}
    return {"name": name, **axes, **what}


def experiment(name, *figures):
    resources = load_experiment(name)["resources"]
    question = "How much bandwidth, & where?"
    return {"experiment": name, "question": question, "resources": resources, "figures": figures}


MEMORY = experiment("memory_bandwidth", figure("nodes", "memory", initiator_kind="node"))
STORAGE = experiment("storage_bandwidth", figure("drives", "storage", target_kind="drive"))


def machine(*experiments, name="fleet", **keys):
    return measured_host(name, *(experiments or ["memory_bandwidth"]), **keys)


def triads(found):
    """The values of one kernel, of which a figure has one a cell."""
    tidy = found.tidy()
    return tidy[tidy["kernel"].fillna("triad") == "triad"]


def write(folder, found, tidy=None, experiments=(MEMORY,), **parts):
    """Write a report; figures are drawn unless they are given."""
    tidy = triads(found) if tidy is None else tidy
    figures = folder / "figures"
    if "drawn" not in parts:
        draw(experiments, tidy, found.topology(), figures)
    given = {
        "experiments": experiments,
        "figures": parts.pop("drawn", DRAWN.get(figures)),
        "topology": topology_from_json(found.topology()),
        "system_facts": system_document(),
        "record_summaries": record_summaries(tidy),
        "config_with_plan_and_notes": CONFIG,
        "components": {},
        "history": Measurements.from_table(rows_to_table([], HISTORY_COLUMNS)),
        **parts,
    }
    page = report_page(run_of(tidy, folder, **given))
    return page, page.to_html()


def section(page, name):
    """The data of a section of a page."""
    return next(each.data for each in page.sections if each.id == name)


class Page(HTMLParser):
    """Collect the links of a page, and check that every element is closed."""

    EMPTY = frozenset(["meta", "br", "link", "img", "input", "hr", "wbr"])

    def __init__(self):
        super().__init__()
        self.open, self.references, self.identities = [], [], []

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


def read(html):
    page = Page()
    page.feed(html)
    page.close()
    return page


def slow_node(found, share=0.5):
    """The table of a machine of which a node is slow."""
    tidy = triads(found)
    return tidy.assign(value=tidy["value"].where(tidy["target"] != "node1", tidy["value"] * share))


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory):
    """The report of a machine with a slow node and a failed point, and its folder."""
    folder = tmp_path_factory.mktemp("hostile")
    found = machine(failed={"memory=pu0+node1+triad": hostile.EVERYTHING})
    tidy = slow_node(found)
    tidy["host"], tidy["label"] = hostile.EVERYTHING, hostile.FORMULA
    tidy["kernel"] = tidy["kernel"].replace("triad", hostile.EVERYTHING)
    firmware = {"bios_vendor": hostile.HTML, "bios_version": hostile.JINJA}
    system = system_document(cpu_model=hostile.EVERYTHING, firmware=firmware, smt=hostile.HTML)
    by_kernel = figure("kernels", "memory", f"Of {hostile.HTML}", initiator_kind="node")
    by_kernel |= {"columns": "kernel", "combine": "median"}
    shown = ({**MEMORY, "figures": [*MEMORY["figures"], by_kernel]},)
    (folder / "topology.svg").write_text(DRAWING)
    parts = {"system_facts": system, "drawing_file": folder / "topology.svg"}
    return *write(folder, found, tidy, shown, **parts), folder


def test_the_page_is_well_formed_with_unique_ids_and_needs_no_network(hostile_report):
    context, html, _ = hostile_report
    page = read(html)
    assert page.open == []
    assert len(page.identities) == len(set(page.identities))
    anchors = {link[1:] for link in page.references if link.startswith("#")}
    assert anchors <= set(page.identities)
    assert context.problems.findings[0].figure == "nodes" and 'href="#nodes">See the figure' in html
    outside = [link for link in page.references if re.match(r"(?:\w+:)?//|\w+:", link)]
    assert [link for link in outside if not link.startswith("data:")] == []
    own = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html).replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"@import|url\((?!#)|https?://", own)


def test_names_and_messages_of_others_are_text(hostile_report):
    _, html, folder = hostile_report
    assert "<script>alert" not in html and "onerror=alert(1)>" not in html.replace("&gt;", "")
    assert "&lt;script&gt;alert(1)" in html and "Memory &lt;by&gt; node" in html
    assert "{{ 7 * 7 }}" in html and "49{%" not in html
    drawings = [etree.fromstring(path.read_bytes()) for path in folder.glob("figures/*.svg")]
    for root in drawings:
        assert not root.xpath("//*[local-name()='script' or local-name()='img']")
    assert any("<script>" in text for root in drawings for text in root.xpath("//text()"))
    tables = [path.read_text() for path in folder.glob("figures/*.csv")]
    cells = [cell for text in tables for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells and all(escape_formula(cell) == cell for cell in cells)


@pytest.mark.parametrize("name", [hostile.MATH, hostile.TERMINAL])
def test_dollar_signs_and_control_characters_break_no_drawing(tmp_path, name):
    found = machine(name="two_packages")
    tidy = triads(found)
    tidy["kernel"] = tidy["kernel"].replace("triad", name)
    tidy.loc[tidy.index[:3], ["status", "reason"]] = "failed", name
    by_kernel = {**MEMORY["figures"][0], "columns": "kernel", "combine": "median"}
    draw([{**MEMORY, "figures": [by_kernel]}], tidy, found.topology(), tmp_path)
    [text] = ["".join(etree.parse(path).getroot().itertext()) for path in tmp_path.glob("*.svg")]
    assert printable(name) in text


def printable(text):
    return text.encode("unicode_escape").decode() if "\x1b" in text else text


def test_a_package_counts_only_with_its_own_memory():
    """Older results have a package with one node alone: another quantity, so no row."""
    tidy = triads(machine(name="two_packages"))
    older = resource_table_rows(Measurements.from_table(tidy), [MEMORY])
    assert not any("one package" in line.name for line in older)
    whole = tidy.loc[tidy["initiator_kind"] == "package"].copy()
    whole[["relation", "target", "target_kind"]] = ["same_nodes", "nodes0-1", "nodes"]
    whole["value"] *= 3
    table = Measurements.from_table(pd.concat([tidy, whole.assign(point=whole["point"] + "all")]))
    [line] = [line for line in resource_table_rows(table, [MEMORY]) if "one package" in line.name]
    assert line.name == "Memory bandwidth, one package"
    assert float(line.best.value.split()[0]) > 50.0


def left_out_drives(tidy):
    """The measured rows, and two drives that the budget left out; the first is predicted."""
    is_drive = tidy["target_kind"] == "drive"
    rows = tidy[is_drive].drop_duplicates("point").iloc[:2]
    rows = rows.assign(status="missing", value=float("nan"))
    [row] = rows.iloc[:1].to_dict("records")
    numbers = dict(zip(PREDICTION_NUMBERS, (5e9, 4e9, 6e9, 3e9, 7e9), strict=True))
    known = {name: row.get(name) for name in PREDICTION_COLUMNS}
    known |= {**numbers, "method": "sums; median error 2 %"}
    measured = tidy[~(is_drive & tidy["point"].isin(rows["point"]))]
    predictions = rows_to_table([known], PREDICTION_COLUMNS)
    return measured, LeftOutPoints(Measurements.from_table(rows), predictions)


def test_what_a_budget_left_out_is_reported_first_and_predictions_are_in_columns_of_their_own(
    tmp_path,
):
    found = machine("storage_bandwidth")
    measured, left_out = left_out_drives(found.tidy())
    topology = topology_from_json(found.topology())
    table, figures = Measurements.from_table(measured), tmp_path / "figures"
    drawn = draw_figures([STORAGE], table, topology, figures, left_out)
    given = {"drawn": drawn, "left_out": left_out}
    context, html = write(tmp_path, found, measured, [STORAGE], **given)
    points = found.tidy()["point"].nunique()
    assert context.run.coverage_text == (
        f"{points - 2} of {points} combinations measured, 1 predicted, 1 without a value"
    )
    lines = terminal_lines(context.run, summarise_report(context.run, context.problems))
    assert lines[0] == context.run.coverage_text not in lines[1:]
    assert html.index(context.run.coverage_text) < html.index('<section id="problems">')
    assert "sums; median error 2 %" in section(context, "methodology")["Predictions"]
    [values] = [one.file.values for each in context.sections for one in each.figures]
    at = values.columns.index("status")
    assert values.columns[at + 4] == "predicted value"
    rows = {row[at].text: tuple(cell.text for cell in row[at + 4 :]) for row in values.rows}
    assert rows["predicted"] == ("5.00", "4.00", "6.00", "3.00", "7.00")
    assert rows["valid"] == rows["left_out"] == ("",) * 5


@pytest.mark.parametrize("share", ["own", "all"])
def test_disturbed_values_give_suspicions_and_too_many_of_them_no_verdict(tmp_path, share):
    """Of the slow node or of all, the second and third replicate were disturbed."""
    tidy = slow_node(machine())
    marked = ((tidy["target"] == "node1") | (share == "all")) & (tidy["replicate"] > 1)
    tidy["remarks"] = marked.map({True: "disturbed", False: None}).astype("string")
    context, html = write(tmp_path, machine(), tidy, drawn=())
    found = context.problems
    assert (found.findings, len(found.suspicions)) == ((), 1)
    shown = html[html.index('id="problems"') : html.index('id="resources"')]
    folded = shown.index('<details class="suspicions">')
    assert "node 1" in shown[folded : shown.index("</details>", folded)]
    if share == "own":
        assert shown.index(found.no_problems.split(" in ")[0]) < folded
    else:
        first = found.problems[0]
        assert (first.name, first.severity, found.no_problems) == ("Usability", "problem", "")
        assert shown.index(first.name) < folded


def test_a_report_without_any_value_drawing_and_system_is_complete(tmp_path):
    tidy = triads(machine(name="one_node"))
    found = machine(name="one_node", missing=tuple(tidy["point"]))
    nothing = {"record_summaries": [], "system_facts": {}, "topology": Topology()}
    context, html = write(tmp_path, found, **nothing)
    assert (section(context, "resources"), section(context, "parts")["drawing"]) == ([], None)
    assert "No value was measured." in html
    assert read(html).open == []


def record(status="valid", started=True):
    load = {"name": "memory", "command": ["numactl", "--membind=0", "a tool"]}
    program = {"program": {"name": "fio", "path": "/usr/bin/fio", "version": "fio-3.33"}}
    checks = [make_check("memory: pages", status == "valid", "half of them")]
    return {
        "schema_version": SCHEMA_VERSION,
        "point": {"experiment": "e", "point": "memory=node0+node0+triad", "loads": [load]},
        "replicate": 2,
        "order": 17,
        "began_at": "2026-11-21T04:09:08.961Z",
        "finished_at": "2026-11-21T04:09:11.461Z",
        "loads": [{**load, **program}] if started else [],
        "verdict": make_verdict(checks),
    }


def noted(folder, *said, target="bwap"):
    """Return runs with these notes on their search; None: it converged, "": there was none."""
    for number, words in enumerate(said, start=1):
        found = record()
        [load] = found["loads"]
        load |= {"target": {"name": target}, "notes": [{"name": "search to its end"}]}
        if words != "":
            name, detail = "memory: search to its end", words or "nothing was noted"
            note = make_check(name, words is None, detail, decisive=False)
            found["verdict"]["checks"].append(note)
        save_record(found, folder / f"{target}/rep{number}.json")
    return read_record_summaries(folder.glob(f"{target}/*.json"))


def test_notes_of_tools_are_counted_by_target(tmp_path):
    short = "cut short after 60 s, at the best so far"
    runs = noted(tmp_path, short, None, short, "") + noted(tmp_path, None, target="bwap_uniform")
    assert list(unmet_note_sentences(runs)) == [
        f"search to its end, bwap: not met in 2 of 3 runs: {short}"
    ]
    assert not list(unmet_note_sentences([replace(run, status="failed") for run in runs]))


def test_incomplete_records_are_skipped(tmp_path):
    (tmp_path / "rep1.json").write_text('{"half": ')
    (tmp_path / "rep2.json").write_text('{"schema_version": 1, "verdict": {}}')
    assert read_record_summaries(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize(("marks", "start"), [(3, "<svg"), (3001, "<img")])
def test_a_figure_of_very_many_marks_is_a_picture_in_the_page(marks, start, tmp_path):
    svg = '<svg viewBox="0 0 48 30">' + '<path class="mark"/>' * marks + "</svg>"
    (tmp_path / "a.svg").write_text(svg)
    (tmp_path / "a.png").write_bytes(b"PNG")
    file = FigureFile("a", "", "heatmap", "", "", None, None, svg="a.svg", png="a.png")
    shown = figure_section(file, tmp_path)
    assert shown.svg.startswith(start)
    assert shown.width_pixels == 80


def test_a_drawing_of_another_program_is_an_image_so_that_its_scripts_cannot_run():
    image = svg_as_image(b"<svg><script>alert(1)</script></svg>\n", "a & b", "topology.svg")
    assert image.startswith('<img alt="a &amp; b" src="data:image/svg+xml;base64,')
    assert "script" not in image


@pytest.mark.parametrize("text", [b"", b"no xml", b"<html/>", b"<svg"])
def test_a_file_that_is_not_svg_is_an_error(text):
    with pytest.raises(UserError, match=r"topology\.svg.*not an SVG file"):
        svg_as_image(text, "topology", "topology.svg")


def test_core_to_core_latency_names_both_cores_and_the_lines_home():
    table = Measurements.from_table(measured_host("two_packages", "core_to_core").tidy())
    [found] = (
        line
        for line in resource_table_rows(table, [load_experiment("core_to_core")])
        if line.name == "Core-to-core latency"
    )
    assert found.best.where == "processing unit 0 to processing unit 8, line on node 0"
    assert found.places_differ is True


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCRIPT = (ROOT / "templates/report/sortable_tables.js").read_text(encoding="utf-8")
PAGE = """<!DOCTYPE html><div class="wide"><table class="sortable">
<thead><tr><th>Name</th><th>Bandwidth</th><th>Share</th></tr></thead><tbody>
<tr><th scope="row">node10</th><td>38.0 GB/s <span>95 % interval 37 to 39</span></td>
<td data-value="-3.1">3</td></tr>
<tr><th scope="row">node9</th><td>950 MB/s</td><td data-value="-20">20</td></tr>
<tr><th scope="row">node2</th><td>not measured</td><td data-value="4">4</td></tr>
<tr><th scope="row">node1</th><td>1.9 GB/s</td><td data-value="0"></td></tr>
<tr><th scope="row">far5</th><td>1\N{THIN SPACE}900 MB/s</td><td data-value="1">1</td></tr>
<tr><th scope="row">far6</th><td>120 ns</td><td data-value="2">2</td></tr>
</tbody></table></div><pre id="out"></pre><script>%s</script><script>
var out = [], all = function (s) { return Array.from(document.querySelectorAll(s)); };
function name(t) { return t.firstChild.textContent.trim(); }
function shown() { return all("tbody tr").filter(function (r) { return !r.hidden; }).length; }
function names() { return all("tbody th").map(name); }
function note(name, value) { out.push([name, value]); }
note("before", names());
all("thead button")[0].click(); note("by name", names());
all("thead button")[1].click(); note("by bandwidth", names());
all("thead button")[1].click(); note("descending", names());
note("state", all("thead th").map(function (t) { return t.getAttribute("aria-sort"); }));
all("thead button")[2].click(); note("by share", names());
var input = document.querySelector("input[type=search]");
input.value = "NODE 1"; input.dispatchEvent(new Event("input"));
note("filtered", shown());
note("status", document.querySelector("[role=status]").textContent);
input.value = ""; input.dispatchEvent(new Event("input"));
note("all again", shown());
note("focusable", all("table button, input").every(function (b) {
  b.focus();
  return document.activeElement === b;
}));
document.getElementById("out").textContent = JSON.stringify(out);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_rows_are_sorted_and_filtered_in_a_browser(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE.replace("%s", SCRIPT, 1), encoding="utf-8")
    options = ["--headless", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    noted = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert noted, done.stdout
    found = dict(json.loads(html.unescape(noted[1])))
    assert found["before"] == ["node10", "node9", "node2", "node1", "far5", "far6"]
    assert found["by name"] == ["far5", "far6", "node1", "node2", "node9", "node10"]
    # Times and rates are numbers of other units; what has no number comes last.
    assert found["by bandwidth"] == ["far6", "node9", "far5", "node1", "node10", "node2"]
    assert found["descending"] == ["node10", "far5", "node1", "node9", "far6", "node2"]
    assert found["state"] == [None, "descending", None]
    assert found["by share"] == ["node9", "node10", "node1", "far5", "far6", "node2"]
    assert (found["filtered"], found["status"], found["all again"]) == (2, "2 of 6 rows", 6)
    assert found["focusable"] is True
