"""The script of the tables sorts and filters rows in a browser, and loses none."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from chaosity.documents.shipped_documents import ROOT

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
