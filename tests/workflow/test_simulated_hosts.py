"""A simulated host goes through the whole workflow, and every output says SIMULATED."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rocrate.rocrate import ROCrate

import playbooks
from broken_runs import chaosity
from chaosity.campaign.campaign import Campaign
from chaosity.documents.config import read_config
from chaosity.store.measurements import Measurements
from inventories import simulated_host
from workflow_folder import Workflow

HOST = simulated_host("fleet")


@pytest.fixture(scope="module")
def simulated(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow(root, tmp_path_factory.mktemp("simulated"))
    workflow.host("imagined", **HOST)
    workflow.config["experiments"] = ["memory_bandwidth", "storage_bandwidth"]
    workflow.config["sample"] = {"memory_bandwidth": 3, "storage_bandwidth": 1}
    workflow.run()
    return workflow


def test_a_dry_run_needs_no_slurm_no_locale_no_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workflow = Workflow(root, tmp_path)
    workflow.host("imagined", **HOST)
    workflow.config["experiments"] = ["latency_matrix"]
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "env", "which"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("LC_ALL", "C")
    done = workflow.snakemake("--profile", str(root / "profiles/cluster"), "--dry-run")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("this dry run does not ask for Slurm's nodes") == 1
    remedy = "repeat the command on a machine that has scontrol, such as a login node."
    assert remedy in done.stdout
    assert "rule measure:" in done.stdout


def test_every_output_says_simulated_and_none_can_be_used_by_a_machine(simulated: Workflow):
    folder = simulated.path("imagined/*/report.html").parent
    records = simulated.records().values()
    assert {record["origin"] for record in records} == {"simulated"}
    assert {record["verdict"]["status"] for record in records} == {"valid"}
    assert Measurements.read(folder / "measurements.parquet").is_simulated
    assert json.loads((folder / "findings.json").read_text())["verdict"].startswith("SIMULATED")
    assert "<strong>SIMULATED:</strong>" in (folder / "report.html").read_text()
    assert (folder / "summary.txt").read_text().startswith("SIMULATED")
    assert json.loads((folder / "summary.json").read_text())["measured"].startswith("SIMULATED")
    for path in folder.glob("figures/*.csv"):
        assert "simulated" in path.read_text(), path
    placement = json.loads((folder / "exports/placement.json").read_text())
    assert placement["origin"] == "simulated"
    notes = (folder / "exports/notes.txt").read_text()
    assert "hwloc must not use simulated values" in notes
    assert "the kernel must not use simulated values" in notes
    assert not (folder / "exports/weights.json").exists()
    refused = chaosity("profile", "collect", "results", folder=simulated.folder)
    assert refused.returncode == 2
    assert "the table is of a simulated host" in refused.stdout


def test_results_of_this_and_of_older_versions_stay_valid(simulated: Workflow):
    for component in simulated.folder.glob("results/*/*/components/*.json"):
        component.touch()
    # Older versions gave each measurement all components of its point as inputs.
    changed = 0
    for metadata in (simulated.folder / ".snakemake/metadata").iterdir():
        kept = json.loads(metadata.read_text())
        if kept["rule"] == "measure":
            components = sorted(simulated.folder.glob("results/*/*/components/*.json"))
            kept["input"] = [str(path.relative_to(simulated.folder)) for path in components]
            metadata.write_text(json.dumps(kept))
            changed += 1
    assert changed == 4
    assert simulated.selected() == set()


@pytest.mark.thorough
def test_an_rocrate_has_each_record_with_its_command_and_a_bulk_run_has_its_values(
    simulated: Workflow,
):
    name = "SIMULATED server"
    licence = "https://spdx.org/licenses/CC0-1.0"
    given = ("--report-fairscape-name", name, "--report-fairscape-license", licence)
    said = simulated.run("--reporter", "fairscape", *given)
    assert "RO-Crate written to ro-crate-metadata.json" in said
    crate = ROCrate(simulated.folder)
    assert (crate.name, crate.license) == (name, licence)
    described = {str(entity.get("contentUrl")): entity for entity in crate.get_entities()}
    assert any(name.endswith("/exports/notes.txt") for name in described)
    words = ("simulate", "--config", "test.yaml", "--results", "bulk")
    done = chaosity(*words, folder=simulated.folder)
    assert done.returncode == 0, done.stdout
    records = simulated.records()
    assert len(records) == len([*simulated.folder.glob("bulk/imagined/*/*/*/rep1.json")]) > 0
    for path, record in records.items():
        name = str(path.relative_to(simulated.folder))
        [made] = described[name]["generatedBy"]
        assert "chaosity-measure" in made["command"] and name in made["command"]
        bulk = simulated.folder / "bulk" / path.relative_to(simulated.folder / "results")
        assert record["loads"] == json.loads(bulk.read_text())["loads"]


def test_no_playbook_does_anything_for_a_host_without_a_machine(root: Path, tmp_path: Path):
    workflow = Workflow(root, tmp_path)
    # With this connection, every task would act on the machine that runs the test.
    imagined = {"ansible_connection": "local", **HOST}
    planned = {"chaosity_topology": "elsewhere.xml"}
    workflow.hosts({"imagined": imagined, "elsewhere.invalid": planned})
    others = [root / f"playbooks/{name}.yml" for name in ("configure", "firmware", "monitor")]
    words = (*others, root / "tests/slurm/slurm.yml", "--check", "-i", tmp_path / "hosts.yml")
    # From a folder without ansible.cfg, as the workflow starts them for a user who is elsewhere.
    done = playbooks.play(tmp_path, *words, playbook=str(root / "provision.yml"))
    assert done.status == 0, done.said
    assert done.said.count("PLAY [") == 6  # provision.yml has two
    for word in ("ok", "changed", "failed", "unreachable"):
        assert done.count(word) == 0, done.said


def test_a_drive_that_is_gone_is_named_by_the_run_and_in_the_plan(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The plan's notes are in the report."""
    workflow, topology = Workflow(root, tmp_path), tmp_path / "topology.xml"
    workflow.host("imagined", **{**HOST, "chaosity_topology": str(topology)})
    given = {"inventory": str(tmp_path / "hosts.yml"), "results": str(tmp_path / "results")}
    config = {**read_config(), **given, "experiments": ["memory_bandwidth"]}
    tree = ElementTree.parse(HOST["chaosity_topology"])
    tree.write(topology)
    Campaign(config, root=root)
    parts = ((parent, part) for parent in tree.iter("object") for part in parent)
    bridge, drive = next(x for x in parts if x[1].find("object[@subtype='Disk']") is not None)
    bridge.remove(drive)
    tree.write(topology)
    slot = "drive-" + drive.get("pci_busid").replace(":", "-").replace(".", "-")
    capsys.readouterr()
    Campaign(config, root=root)
    said = capsys.readouterr().err
    assert f"chaosity: host imagined: {slot}" in said
    assert " is missing since " in said
    plan = json.loads(workflow.path("imagined/*/plan.json").read_text())
    assert plan["notes"][-1].startswith(slot)
