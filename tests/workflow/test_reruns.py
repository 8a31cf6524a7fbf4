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


def test_results_of_this_and_of_older_versions_stay_valid(four_drives):
    four_drives.path("localhost/*/components/file2.json").touch()
    # Older versions gave each measurement all components of its point as inputs.
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
def test_a_replaced_drive_and_a_lost_record_select_the_points_that_they_touch(four_drives):
    component = four_drives.path("localhost/*/components/file2.json")
    component.write_text(json.dumps({**json.loads(component.read_text()), "serial": "new"}))
    four_drives.path("localhost/*/storage_bandwidth/storage=node0+file1/rep1.json").unlink()
    assert f"Updated input files: {component.relative_to(four_drives.folder)}" in (
        four_drives.run("--dry-run")
    )
    names = {point for _, point, _ in four_drives.selected()}
    # of alone 0 to 3, the first two, the first three and all four
    assert names == {
        "storage=node0+file1",
        "storage=node0+file2",
        "storage=node0+unknowndrives3",
        "storage=node0+unknowndrives",
    }
    four_drives.measure()
    assert four_drives.selected() == set()
    four_drives.config["parameters"] = {"fio_sequential_read": {"queue_depth": 4}}
    assert len(four_drives.selected()) == 7
    del four_drives.config["parameters"]


@pytest.mark.thorough
def test_a_failed_point_is_tried_again_and_kept(workflow):
    workflow.config["experiments"] = ["storage_bandwidth"]
    # A folder that cannot be created: below a file.
    blocked = workflow.folder / "blocked"
    blocked.write_text("")
    workflow.host(chaosity_storage_file={"directory": str(blocked / "in"), "bytes": 16 * 2**20})
    workflow.measure()
    record = json.loads(workflow.path("localhost/*/storage_bandwidth/*/rep1.json").read_text())
    assert "cannot be created" in record["verdict"]["reason"]
    blocked.unlink()
    workflow.measure()
    record = json.loads(workflow.path("localhost/*/storage_bandwidth/*/rep1.json").read_text())
    assert record["verdict"]["status"] == "valid"
    assert workflow.selected() == set()
    attempts = workflow.path("localhost/*/storage_bandwidth/*/attempts")
    assert sorted(p.name.split(".")[-2] for p in attempts.glob("*.json")) == ["failed", "valid"]
