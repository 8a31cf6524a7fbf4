"""Every experiment on simulated machines of every kind, from the plan to the report.

All machines are hosts of one run. Without a machine at hand that has HBM, CXL, 30 drives and a GPU,
this is the only place where each experiment meets the hardware that it is for.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chaosity.documents.shipped_documents import EXPERIMENTS, ROOT, load_experiment
from chaosity.documents.yaml_files import read_yaml
from chaosity.topology.topology_discovery import discover_topology
from made_once import made_once
from workflow_folder import Workflow

pytestmark = pytest.mark.thorough

NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
# Each with what no other has: several L3 domains in each of four nodes, and 30 drives; HBM nodes
# without cores; a CXL expander; two kinds of cores and a GPU.
MACHINES = {
    "epyc_7413": "epyc_7413_nps2",
    "xeon_max_9480_snc4": "xeon_max_9480_snc4",
    "epyc_9554_cxl": "epyc_9554_cxl",
    "desktop": "desktop",
}
# The machine on which every figure of an experiment has values; a server for all others.
ON_DESKTOP = (
    *("gpu_and_cpu", "gpu_bandwidth", "gpu_copies", "interference_gpu_copies"),
    "unlike_cores",
)
POINTS = 24  # of each experiment
FEW_POINTS = 12  # are enough for every figure of the other experiments on interference
# A sample could lack the reference of a ratio, or all points of a figure.
WHOLE = {"memory_bandwidth", "page_placement", "program_placement", "numa_runtime"}
# Placements of pages with measured weights need their bandwidths.
GIVE_WEIGHTS = ["memory_bandwidth", "contended_paths"]
# The label of figures that only show data of others.
PUBLISHED = "published by others"
# The end of the names of figures for a tool that the default config does not select.
OTHER_TOOL = "_by_other_tool"
# The simulation has no values of this counter, and the figure says so.
WITHOUT_VALUES = {"numa_runtime_remote_cache"}


def host(machine: str, topology: str) -> dict[str, str]:
    """The variables of a simulated host; `topology` may hold {configuration}."""
    return {
        "chaosity_topology": str(ROOT / f"templates/machines/topologies/{topology}.xml"),
        "chaosity_simulated": str(ROOT / f"templates/machines/{machine}.yaml"),
    }


def chaosity(workflow: Workflow, *arguments: str) -> str:
    """Run a command of chaosity in the workflow's folder, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", "from chaosity.cli import main; main()", *arguments],
        cwd=workflow.folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def simulate(workflow: Workflow, *arguments: str) -> None:
    """Write all records at once, which takes a tenth of the time, then run Snakemake."""
    workflow.command()  # writes the config
    chaosity(workflow, "simulate", "--config", "test.yaml")
    workflow.run(*arguments)


@pytest.fixture(scope="module")
def machines(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    def run(folder: Path) -> None:
        simulate(run_of_machines(root, folder, GIVE_WEIGHTS), "--until", "tidy")
        simulate(run_of_machines(root, folder, NAMES))

    # Snakemake takes both cores for minutes, so a second run beside it would end no earlier.
    return run_of_machines(root, made_once(tmp_path_factory, "machines", run), NAMES)


def run_of_machines(root: Path, folder: Path, experiments: list[str]) -> Workflow:
    """Return the run of these experiments on all machines."""
    workflow = Workflow(root, folder)
    workflow.timeout = 1200
    hosts: dict[str, Any] = {name: host(name, topology) for name, topology in MACHINES.items()}
    # Drives that do not exist may be written.
    drives = discover_topology(hosts["epyc_7413"]["chaosity_topology"]).drives
    hosts["epyc_7413"]["chaosity_destructive_drives"] = [drives[0].serial]
    workflow.hosts(hosts)
    workflow.config |= {
        "experiments": experiments,
        "replicates": 2,
        "sample": {
            name: FEW_POINTS if name.startswith("interference_") else POINTS
            for name in set(experiments) - WHOLE
        },
    }
    return workflow


def folder_of(machines: Workflow, name: str) -> Path:
    return machines.path(f"{name}/*/report.html").parent


def numbers(path: Path) -> list[float]:
    """The medians and intervals in a figure's CSV."""
    with path.open() as stream:
        return [
            float(text)
            for row in csv.DictReader(stream)
            for column, text in row.items()
            if column.startswith(("median_", "interval_", "minimum_", "maximum_")) and text
        ]


@pytest.mark.parametrize("name", MACHINES)
def test_each_planned_experiment_has_its_section_and_finite_numbers(machines: Workflow, name: str):
    folder = folder_of(machines, name)
    html = (folder / "report.html").read_text()
    figures = json.loads((folder / "figures/figures.json").read_text())
    for experiment in json.loads((folder / "plan.json").read_text())["experiments"]:
        assert f'<section id="experiment-{experiment}">' in html
        own = [figure for figure in figures if figure["experiment"] == experiment]
        assert not [figure for figure in own if figure["problem"]], own
        for figure in filter(lambda figure: figure["csv"], own):
            values = numbers(folder / "figures" / figure["csv"])
            assert all(map(math.isfinite, values)), figure["name"]
            # With one memory node, first touch is the only placement, so nothing is relative to it.
            alone = name == "desktop" and "no reference with policy" in figure["sentence"]
            assert bool(values) != (alone or figure["name"] in WITHOUT_VALUES), figure["name"]
            assert figure["title"] in html


@pytest.mark.parametrize("experiment", NAMES)
def test_an_experiment_has_all_its_figures_on_the_machine_that_it_is_for(
    machines: Workflow, experiment: str
):
    folder = folder_of(machines, "desktop" if experiment in ON_DESKTOP else "epyc_7413")
    figures = json.loads((folder / "figures/figures.json").read_text())
    drawn = {figure["name"] for figure in figures if figure["csv"] and figure["marks"]}
    own = load_experiment(experiment)["figures"]
    own_values = {
        figure["name"]
        for figure in own
        if figure.get("where", {}).get("label") != PUBLISHED
        and not figure["name"].endswith(OTHER_TOOL)
    }
    assert drawn >= own_values - WITHOUT_VALUES


@pytest.mark.parametrize("name", MACHINES)
def test_the_summary_says_simulated_and_no_point_failed(machines: Workflow, name: str):
    folder = folder_of(machines, name)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert summary["measured"].startswith("SIMULATED")
    planned = json.loads((folder / "plan.json").read_text())["points"]
    assert summary["points"] == {"valid": planned, "failed": 0, "missing": 0}
    assert summary["resources"]
    assert "<strong>SIMULATED.</strong>" in (folder / "report.html").read_text()
    assert "NaN" not in (folder / "findings.json").read_text()


def test_the_overview_lists_every_machine(machines: Workflow):
    html = (machines.folder / "results/index.html").read_text()
    assert all(f"{name}/" in html for name in MACHINES)
    assert "SIMULATED" in html


def test_a_second_run_has_nothing_to_do(machines: Workflow):
    assert machines.counts() == Counter()


def test_a_simulated_mac(root: Path, tmp_path: Path):
    workflow = Workflow(root, tmp_path)
    variables = host("desktop", "desktop")
    variables["chaosity_topology"] = str(root / "tests/data/topologies/m1-pro-by-hand.xml")
    workflow.hosts({"mac": variables})
    workflow.config |= read_yaml(root / "workflow/config/darwin.yaml")
    workflow.command()  # writes the config
    chaosity(workflow, "simulate", "--config", "test.yaml")
    records = [
        json.loads(path.read_text()) for path in tmp_path.glob("results/mac/*/*/*/rep1.json")
    ]
    assert {record["verdict"]["status"] for record in records} == {"valid"}


def test_firmware_modes_one_after_the_other(root: Path, tmp_path: Path):
    workflow = Workflow(root, tmp_path)
    workflow.hosts({"turin": host("epyc_9575f", "epyc_9575f_{configuration}")})
    modes = ["nps1", "nps4"]
    workflow.config |= {
        "configurations": modes,
        "experiments": ["latency_matrix"],
        "replicates": 2,
        "sample": {"latency_matrix": 6},
    }
    simulate(workflow)
    results = tmp_path / "results/turin"
    for mode, nodes in zip(modes, (2, 8), strict=True):
        topology = json.loads((results / mode / "topology.json").read_text())
        assert len(topology["nodes"]) == nodes
        html = (results / mode / "report.html").read_text()
        assert "<h2>Comparison of configurations</h2>" in html
        assert all(other in html for other in modes)
    compared = chaosity(workflow, "compare", str(results / "nps1"), str(results / "nps4"))
    assert "SIMULATED" in compared
    assert workflow.counts() == Counter()
