"""Document 003 from the plan to the report: its profile on a simulated node of its machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaosity.documents.yaml_files import read_yaml
from workflow_folder import Workflow

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a whole run with the config of `profiles/latency_sizes`."""
    workflow = Workflow(root, tmp_path_factory.mktemp("latency_sizes"))
    workflow.timeout = 1200
    machine = {
        "chaosity_topology": str(root / "machines/topologies/epyc_7a53.xml"),
        "chaosity_simulated": str(root / "machines/epyc_7a53.yaml"),
    }
    workflow.hosts({"node": machine})
    profile = read_yaml(root / "profiles/latency_sizes/config.yaml")
    [config] = profile["configfile"]
    workflow.config = {
        **read_yaml(root / config),
        "inventory": str(workflow.folder / "hosts.yml"),
        "results": "results",
    }
    workflow.command()  # writes the config
    # All records at once take a tenth of the time.
    code = "from chaosity.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", "--config", "test.yaml"]
    subprocess.run(command, cwd=workflow.folder, timeout=900, check=True, capture_output=True)
    workflow.run()
    return workflow.path("node/*/report.html").parent


def test_each_figure_and_table_of_the_page_of_documents_comes_out(report: Path, root: Path):
    page = (root / "docs/documents.md").read_text()
    section = page.split("\n## 003\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(latency_\w+)`", section))
    figures = {
        each["name"]: each for each in json.loads((report / "figures/figures.json").read_text())
    }
    assert listed == {
        "latency_by_core",
        "latency_by_size",
        "latency_levels",
        "latency_serial_concurrent",
    }
    html = (report / "report.html").read_text()
    for name in listed:
        figure = figures[name]
        assert not figure["problem"] and not figure["failed"] and figure["marks"], name
        assert figure["tables"] if figure["kind"] == "table" else figure["svg"], name
        assert f'<figure id="{name}">' in html
        files = [figure[kind] for kind in ("svg", "png", "csv", "numbers") if figure[kind]]
        assert all((report / "figures" / file).stat().st_size for file in files)


def test_captions_answer_the_questions_of_the_document(report: Path):
    figures = json.loads((report / "figures/figures.json").read_text())
    said = {figure["name"]: figure["sentence"] for figure in figures}
    assert all(f"{cache} ends between" in said["latency_levels"] for cache in ("L1", "L2", "L3"))
    assert "concurrent" in said["latency_serial_concurrent"]
    [table] = [figure for figure in figures if figure["name"] == "latency_by_core"]
    headings = [heading for each in table["tables"] for heading in each["columns"]]
    assert "16 KiB" in headings and "16 GiB" in headings
    # The machine has the contention of the document, in each of its nodes.
    found = json.loads((report / "findings.json").read_text())["anomalies"]
    contention = [each for each in found if each["kind"] == "contention_within_node"]
    assert {each["components"][0] for each in contention} == {f"node{node}" for node in range(4)}
