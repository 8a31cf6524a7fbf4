"""Every experiment on simulated machines of every kind, from the plan to the report.

Without a machine at hand that has HBM, CXL, 30 drives and a GPU, this is the only place where each
experiment meets the hardware that it is for.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
import yaml

from broken_runs import simulate_records
from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, ROOT, load_experiment
from chaosity.topology.topology_discovery import discover_topology
from inventories import SHIPPED_TOPOLOGIES, machine_file, topology_file, write_inventory
from machines import configuration_folder, make_tables, run_chaosity
from workflow_folder import Workflow

pytestmark = pytest.mark.thorough

NAMES = {path.stem for path in EXPERIMENTS_FOLDER.glob("*.yaml")}
# The machine on which every figure of an experiment has values; a server for all others.
ON_DESKTOP = {
    *("gpu_and_cpu", "gpu_bandwidth", "gpu_copies", "interference_gpu_copies"),
    "unlike_cores",
}
OF_DRIVES = {name for name in NAMES if name.startswith(("storage_", "interference"))} - ON_DESKTOP
OF_NODES = {"memory_bandwidth", "latency_matrix", "contended_paths", "page_placement"}
FEW_POINTS = 12  # of each experiment
# A sample could lack the reference of a ratio, or all points of a figure.
WHOLE = {
    *("interference_matrix", "memory_bandwidth", "numa_runtime", "page_placement"),
    "program_placement",
}
# Placements of pages with measured weights need their bandwidths.
GIVE_WEIGHTS = {"memory_bandwidth", "contended_paths"}
# The label of figures that only show data of others.
PUBLISHED = "published by others"
# The end of the names of figures for a tool that the default config does not select.
OTHER_TOOL = "_by_other_tool"


@dataclass(frozen=True)
class Case:
    """A machine, its topology, its experiments, and those of which every figure has values."""

    machine: str
    topology: str
    experiments: set[str]
    complete: set[str]


# Each machine has what no other has: several L3 domains in each of four nodes, and 30 drives; HBM
# nodes without cores; a CXL expander; two kinds of cores and a GPU.
CASES = [
    Case("epyc_7413", "epyc_7413_nps2", on_epyc, on_epyc)
    for on_epyc in (OF_DRIVES, NAMES - OF_DRIVES - ON_DESKTOP)
]
CASES += [
    Case("xeon_max_9480_snc4", "xeon_max_9480_snc4", OF_NODES, set()),
    Case("epyc_9554_cxl", "epyc_9554_cxl", OF_NODES | {"storage_bandwidth"}, set()),
    Case("desktop", "desktop", ON_DESKTOP | OF_NODES | {"storage_bandwidth"}, ON_DESKTOP),
]


def simulate(folder: Path, topology: Path, machine: Path, **config: object) -> None:
    """Write the records of a host ``server`` to ``results`` in a folder."""
    # Drives that do not exist may be written.
    drives = [drive.serial for drive in discover_topology(str(topology)).drives[:1]]
    variables = {
        "chaosity_topology": str(topology),
        "chaosity_simulated": str(machine),
        "chaosity_destructive_drives": drives,
    }
    inventory = write_inventory(folder / "hosts.yml", {"server": variables})
    chosen = folder / "config.yaml"
    chosen.write_text(yaml.safe_dump(config))
    words = ("--config", chosen, "--inventory", inventory, "--results", folder / "results")
    run_chaosity("simulate", *words)


def numbers(path: Path) -> list[float]:
    """The medians and intervals in a figure's CSV."""
    with path.open() as stream:
        return [
            float(text)
            for row in csv.DictReader(stream)
            for column, text in row.items()
            if column.startswith(("median_", "interval_", "minimum_", "maximum_")) and text
        ]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.machine} with {len(case.experiments)}"
)
def test_each_experiment_has_its_section_and_its_figures_have_finite_numbers(
    case: Case, tmp_path: Path
) -> None:
    needed = GIVE_WEIGHTS & case.experiments
    for experiments in (needed, case.experiments) if needed else (case.experiments,):
        simulate(
            tmp_path,
            topology_file(case.topology),
            machine_file(case.machine),
            experiments=sorted(experiments),
            replicates=2,
            sample=dict.fromkeys(sorted(experiments - WHOLE), FEW_POINTS),
        )
        folder = configuration_folder(tmp_path / "results")
        make_tables(folder)
    run_chaosity("report", folder / "plan.json", "--output", folder / "report.html")
    html = (folder / "report.html").read_text()
    figures = json.loads((folder / "figures/figures.json").read_text())
    planned = json.loads((folder / "plan.json").read_text())
    assert {*planned["experiments"]} >= case.complete
    for experiment in planned["experiments"]:
        assert f'<section id="experiment-{experiment}">' in html
    assert not [figure for figure in figures if figure["problem"]]
    for figure in filter(lambda figure: figure["csv"], figures):
        values = numbers(folder / "figures" / figure["csv"])
        assert all(map(math.isfinite, values)), figure["name"]
        # With one memory node, first touch is the only placement, so nothing is relative to it.
        alone = case.machine == "desktop" and "no reference with policy" in figure["sentence"]
        assert bool(values) != alone, figure["name"]
        assert figure["title"] in unescape(html)
    drawn = {figure["name"] for figure in figures if figure["csv"] and figure["marks"]}
    own = [figure for name in sorted(case.complete) for figure in load_experiment(name)["figures"]]
    assert drawn >= {
        figure["name"]
        for figure in own
        if figure.get("where", {}).get("label") != PUBLISHED
        and not figure["name"].endswith(OTHER_TOOL)
    }
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["measured"].startswith("SIMULATED")
    assert summary["points"] == {"valid": planned["points"], "failed": 0, "missing": 0}
    assert summary["resources"]
    assert "<strong>SIMULATED:</strong>" in html
    assert "NaN" not in (folder / "findings.json").read_text()


def test_a_simulated_mac(tmp_path: Path) -> None:
    topology = ROOT / "tests/data/topologies/m1-pro-by-hand.xml"
    config = read_yaml(ROOT / "config/darwin.yaml")
    simulate(tmp_path, topology, machine_file("desktop"), **config)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/*/*/*/*/rep1.json")]
    assert {record["verdict"]["status"] for record in records} == {"valid"}


def test_firmware_modes_one_after_the_other(root: Path, tmp_path: Path) -> None:
    workflow = Workflow(root, tmp_path)
    topology = SHIPPED_TOPOLOGIES / "epyc_9575f_{configuration}.xml"
    machine = machine_file("epyc_9575f")
    workflow.hosts(
        {"turin": {"chaosity_topology": str(topology), "chaosity_simulated": str(machine)}}
    )
    modes = ["nps1", "nps4"]
    workflow.config |= {
        "configurations": modes,
        "experiments": ["latency_matrix"],
        "replicates": 2,
        "sample": {"latency_matrix": 6},
    }
    simulate_records(workflow)
    workflow.run()
    results = tmp_path / "results/turin"
    for mode, nodes in zip(modes, (2, 8), strict=True):
        topology = json.loads((results / mode / "topology.json").read_text())
        assert len(topology["nodes"]) == nodes
        html = (results / mode / "report.html").read_text()
        assert "<h2>Comparison of configurations</h2>" in html
        assert all(other in html for other in modes)
    assert "SIMULATED" in run_chaosity("compare", results / "nps1", results / "nps4")
    assert workflow.counts() == Counter()
    # If a record is lost, the host boots only into the configuration of this record.
    [lost] = results.glob("nps1/latency_matrix/chase=pu0+node0*/rep2.json")
    lost.unlink()
    found = workflow.counts()
    assert found["configure"] == found["discover"] == 1
    text = workflow.measure()
    assert text.index("boot turin into nps1") < text.index("chase=pu0+node0")
    assert "1 further measurement to take" in text and "nps4" not in text
    assert len([*results.glob("*/latency_matrix/*/attempts/*.json")]) == 2 * (4 + 6) + 1
