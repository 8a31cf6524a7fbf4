"""Reports of small machines, in which every name and message of others is hostile."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import shutil
import subprocess
from html.parser import HTMLParser

import hostile_texts as hostile
import pandas as pd
import pytest
from lxml import etree
from report_inputs import change_documents, measured_results, system_document, texts, write_report

from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import printable_text
from chaosity.figures.figure_files import FigureEntry
from chaosity.records.record_format import make_check
from chaosity.report.sections import figure_section
from chaosity.store.csv_tables import escape_formula
from machines import configuration_folder, run_chaosity, simulated

DRAWING = """<?xml version='1.0'?>
<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' width='90px'
 height='40px' viewBox='0 0 90px 40px' onload='alert(1)'>
<script>alert(1)</script><style>* { display: none }</style><foreignObject/>
<rect id='Machine' width='9' height='9' fill='url(#paint)'/><image xlink:href='http://x/y.png'/>
<a xlink:href='https://example.org'><use xlink:href='#Machine'/></a><a href='javascript:x()'/>
</svg>"""
SLOW_NODE = {"fault": "slow_node", "node": 1, "remaining": 0.5}


def two_nodes(*faults):
    return simulated("fleet", ["memory_bandwidth"], faults)


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


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory):
    """The report of a machine with a slow node and a failed point, and its folder."""
    folder = tmp_path_factory.mktemp("hostile")

    def change(table):
        failed = table["point"] == "memory=pu0+node1+triad"
        table["host"], table["label"] = hostile.EVERYTHING, hostile.FORMULA
        table["initiator"] = table["initiator"].replace(
            "pu4", hostile.EVERYTHING + hostile.TERMINAL
        )
        table.loc[failed, ["status", "reason", "value"]] = "failed", hostile.EVERYTHING, None
        return table

    place = measured_results(two_nodes(SLOW_NODE), folder, change)
    firmware = {"bios_vendor": hostile.HTML, "bios_version": hostile.JINJA}
    system = system_document(cpu_model=hostile.EVERYTHING, firmware=firmware, smt=hostile.HTML)
    (place / "components/system.json").write_text(json.dumps(system))
    (folder / "topology.svg").write_text(DRAWING)
    return write_report(place, "--drawing", folder / "topology.svg"), place


def test_the_page_is_well_formed_with_unique_ids_and_needs_no_network(hostile_report):
    html, _ = hostile_report
    page = read(html)
    assert page.open == []
    assert len(page.identities) == len(set(page.identities))
    anchors = {link[1:] for link in page.references if link.startswith("#")}
    assert anchors <= set(page.identities)
    assert 'href="#memory_bandwidth_by_kernel">See the figure' in html
    outside = [link for link in page.references if re.match(r"(?:\w+:)?//|\w+:", link)]
    assert [link for link in outside if not link.startswith("data:")] == []
    own = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html).replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"@import|url\((?!#)|https?://", own)


def test_names_and_messages_of_others_are_text(hostile_report):
    html, folder = hostile_report
    assert "<script>alert" not in html and "onerror=alert(1)>" not in html.replace("&gt;", "")
    assert "&lt;script&gt;alert(1)" in html
    assert "{{ 7 * 7 }}" in html and "49{%" not in html
    drawings = [etree.fromstring(path.read_bytes()) for path in folder.glob("figures/*.svg")]
    for root in drawings:
        assert not root.xpath("//*[local-name()='script' or local-name()='img']")
    shown = "".join(text for root in drawings for text in root.itertext())
    assert "<script>" in shown
    assert hostile.MATH in shown and printable_text(hostile.TERMINAL) in shown
    tables = [path.read_text() for path in folder.glob("figures/*.csv")]
    cells = [cell for text in tables for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells and all(escape_formula(cell) == cell for cell in cells)


def test_a_package_counts_only_with_its_own_memory(tmp_path, monkeypatch):
    """Older results have a package with one node alone: another quantity, so no row."""

    def with_packages(table):
        whole = table[table["initiator_kind"] == "package"].copy()
        whole[["relation", "target", "target_kind"]] = ["same_nodes", "nodes0-1", "nodes"]
        whole["value"] *= 3
        return pd.concat([table, whole.assign(point=whole["point"] + "all")])

    monkeypatch.setenv("COLUMNS", "200")  # wide enough for a row in one line
    results = simulated("two_packages", ["memory_bandwidth"])
    assert "one package" not in run_chaosity("show", results)
    shown = run_chaosity("show", measured_results(results, tmp_path, with_packages))
    [value] = re.findall(r"Memory bandwidth, one package +(\S+) GB/s", shown)
    assert float(value) > 50.0


def test_the_commands_of_a_report_explain_points_in_its_folder(tmp_path, monkeypatch):
    """The name of the folder has a space, and begins like an option."""
    results = shutil.copytree(two_nodes(SLOW_NODE), tmp_path / "-new results")
    monkeypatch.chdir(tmp_path)
    place = f"./{configuration_folder(results).relative_to(tmp_path)}"
    table, page = f"{place}/measurements.parquet", tmp_path / "report.html"
    run_chaosity("tidy", f"{place}/plan.json", "--output", table)
    run_chaosity("report", f"{place}/plan.json", "--table", table, "--output", page)
    shown = (html.unescape(page.read_text()), run_chaosity("anomalies", place))
    commands = [line for text in shown for line in re.findall(r"chaosity explain [^<\n]+", text)]
    assert len(commands) >= 3
    for command in commands:
        _, *words = shlex.split(command)
        assert "  median of " in run_chaosity(*words)


@pytest.mark.parametrize("share", ["own", "all"])
def test_disturbed_values_give_suspicions_and_too_many_of_them_no_verdict(tmp_path, share):
    """Of the slow node or of all, the second and third replicate were disturbed."""

    def disturb(table):
        marked = ((table["target"] == "node1") | (share == "all")) & (table["replicate"] > 1)
        return table.assign(remarks=marked.map({True: "disturbed", False: None}).astype("string"))

    place = measured_results(two_nodes(SLOW_NODE), tmp_path, disturb)
    html = write_report(place)
    shown = html[html.index('id="problems"') : html.index('id="resources"')]
    before, _, folded = shown.partition('<details class="suspicions">')
    assert 'id="finding-1"' not in before
    assert "Node 1 is slow" in folded.split("</details>")[0]
    assert ("No problems found" in before) is (share == "own")
    assert bool(json.loads((place / "summary.json").read_text())["tested"]) is (share == "own")
    assert ("Usability" in before) is (share == "all")


def test_a_report_without_any_value_drawing_and_system_is_complete(tmp_path):
    def lose(table):
        return table.assign(status="missing", value=None)

    place = measured_results(simulated("one_node", ["memory_bandwidth"]), tmp_path, lose)
    for name in ("components/system.json", "topology.json"):
        (place / name).unlink()
    html = write_report(place)
    assert "No value was measured." in html
    assert read(html).open == []


def test_notes_of_tools_are_counted_by_target(tmp_path):
    """One of two valid runs cut a search short; all on another target searched to its end."""

    def note(record):
        [load] = record["loads"]
        load["notes"] = [{"name": "search to its end"}]
        good = record["replicate"] == 2 or load["target"]["name"] == "node1"
        of_local = record["point"]["point"].endswith(("node0+node0+triad", "node1+node1+triad"))
        check = make_check("memory: search to its end", good, "cut short", decisive=False)
        record["verdict"]["checks"] += [check] if of_local else []
        record["verdict"]["status"] = "failed" if record["replicate"] == 3 else "valid"

    place = measured_results(two_nodes(), tmp_path)
    change_documents(place, "*/*/rep*.json", note)
    remarks = texts(write_report(place), "//section[@id='experiment-memory_bandwidth']/ul/li")
    assert remarks == ["Search to its end, node0: not met in 1 of 2 runs: cut short."]


@pytest.mark.parametrize(("marks", "start"), [(3, "<svg"), (3001, "<img")])
def test_a_figure_of_very_many_marks_is_a_picture_in_the_page(marks, start, tmp_path):
    svg = '<svg viewBox="0 0 48 30">' + '<path class="mark"/>' * marks + "</svg>"
    (tmp_path / "a.svg").write_text(svg)
    (tmp_path / "a.png").write_bytes(b"PNG")
    file = FigureEntry("a", "", "heatmap", "", "", None, None, svg="a.svg", png="a.png")
    shown = figure_section(file, tmp_path)
    assert shown.svg.startswith(start)
    assert shown.width_pixels == 80


@pytest.mark.parametrize("text", ["", "no xml", "<html/>", "<svg"])
def test_a_file_that_is_not_svg_is_an_error(text, tmp_path):
    (tmp_path / "topology.svg").write_text(text)
    plan = configuration_folder(two_nodes()) / "plan.json"
    output = ("--drawing", tmp_path / "topology.svg", "--output", tmp_path / "report.html")
    with pytest.raises(AssertionError, match=r"topology\.svg.*not an SVG file"):
        run_chaosity("report", plan, *output)


def test_core_to_core_latency_names_both_cores_and_the_lines_home(tmp_path):
    page = write_report(measured_results(simulated("two_packages", ["core_to_core"]), tmp_path))
    [line] = texts(page, "//table[contains(@class, 'resources')]//tr[contains(., 'Core-to-core')]")
    assert "processing unit 0 to processing unit 8, line on node 0" in line
    assert line.endswith(" 219 %")


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
