"""Only what a changed component touches is measured again, and failed points always."""

from __future__ import annotations

import json

import pytest

from workflow_folder import Workflow


@pytest.fixture(scope="module")
def four_drives(root, tmp_path_factory):
    """Four files stand in for four drives of one locality: alone, first two, three, all."""
    workflow = Workflow(root, tmp_path_factory.mktemp("four"))
    workflow.host(chaosity_storage_file=files(workflow, count=4))
    workflow.config["experiments"] = ["storage_bandwidth"]
    workflow.measure()
    return workflow


def files(workflow, **given):
    return {"directory": str(workflow.folder / "drives"), "bytes": 16 * 2**20, **given}


def test_nothing_changed_selects_nothing(four_drives):
    four_drives.path("localhost/*/components/file2.json").touch()
    assert four_drives.selected() == set()


@pytest.mark.thorough
def test_a_replaced_drive_selects_the_points_that_touch_it(four_drives):
    component = four_drives.path("localhost/*/components/file2.json")
    before = component.read_text()
    component.write_text(json.dumps({**json.loads(before), "serial": "new"}))
    assert f"Updated input files: {component.relative_to(four_drives.folder)}" in (
        four_drives.run("--dry-run")
    )
    names = {point for _, point, _ in four_drives.selected()}
    # of alone 0 to 3, the first two, the first three and all four
    assert names == {
        "storage=node0+file2",
        "storage=node0+unknowndrives3",
        "storage=node0+unknowndrives",
    }
    four_drives.measure()
    assert four_drives.selected() == set()


@pytest.mark.thorough
def test_a_changed_system_selects_everything(four_drives):
    system = four_drives.path("localhost/*/components/system.json")
    before = system.read_text()
    system.write_text(before.replace("{", '{"note": "new firmware",', 1))
    assert len(four_drives.selected()) == 7
    system.write_text(before)
    assert four_drives.selected() == set()


def test_results_of_versions_with_components_as_inputs_stay_valid(four_drives):
    """Older versions gave each measurement all components of its point as inputs."""
    changed = 0
    for metadata in (four_drives.folder / ".snakemake/metadata").iterdir():
        kept = json.loads(metadata.read_text())
        if kept["rule"] == "measure":
            components = sorted(four_drives.folder.glob("results/localhost/*/components/*.json"))
            kept["input"] = [str(path.relative_to(four_drives.folder)) for path in components]
            metadata.write_text(json.dumps(kept))
            changed += 1
    assert changed == 7
    assert four_drives.selected() == set()


@pytest.mark.thorough
def test_a_changed_parameter_selects_what_uses_it(four_drives):
    four_drives.config["parameters"] = {"fio_sequential_read": {"queue_depth": 4}}
    assert len(four_drives.selected()) == 7
    del four_drives.config["parameters"]
    assert four_drives.selected() == set()


@pytest.mark.thorough
def test_a_lost_record_is_measured_again(four_drives):
    path = four_drives.path("localhost/*/storage_bandwidth/storage=node0+file1/rep1.json")
    away = path.rename(path.with_suffix(".away"))
    assert {point for _, point, _ in four_drives.selected()} == {"storage=node0+file1"}
    away.rename(path)
    assert four_drives.selected() == set()


@pytest.mark.thorough
def test_a_failed_point_is_tried_again_and_kept(workflow):
    workflow.config["experiments"] = ["storage_bandwidth"]
    # A folder that cannot be created: below a file.
    blocked = workflow.folder / "blocked"
    blocked.write_text("")
    workflow.host(chaosity_storage_file={"directory": str(blocked / "in"), "bytes": 16 * 2**20})
    workflow.run()  # the report is made all the same
    record = json.loads(workflow.path("localhost/*/storage_bandwidth/*/rep1.json").read_text())
    assert "cannot be created" in record["verdict"]["reason"]
    assert len(workflow.selected()) == 1
    blocked.unlink()
    workflow.measure()
    record = json.loads(workflow.path("localhost/*/storage_bandwidth/*/rep1.json").read_text())
    assert record["verdict"]["status"] == "valid"
    assert workflow.selected() == set()
    attempts = workflow.path("localhost/*/storage_bandwidth/*/attempts")
    assert sorted(p.name.split(".")[-2] for p in attempts.glob("*.json")) == ["failed", "valid"]
