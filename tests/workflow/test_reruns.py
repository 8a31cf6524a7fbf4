"""Only what a changed component touches is measured again, and failed points always."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.thorough


def files(folder, **given):
    return {"directory": str(folder / "drives"), "bytes": 16 * 2**20, **given}


def test_a_replaced_drive_and_a_lost_record_select_the_points_that_they_touch(workflow):
    """Four files stand in for four drives of one locality: alone, first two, three, all."""
    workflow.host(chaosity_storage_file=files(workflow.folder, count=4))
    workflow.config["experiments"] = ["storage_bandwidth"]
    workflow.measure()
    component = workflow.path("localhost/*/components/file2.json")
    component.write_text(json.dumps({**json.loads(component.read_text()), "serial": "new"}))
    workflow.path("localhost/*/storage_bandwidth/storage=node0+file1/rep1.json").unlink()
    assert f"Updated input files: {component.relative_to(workflow.folder)}" in (
        workflow.run("--dry-run")
    )
    names = {point for _, point, _ in workflow.selected()}
    # of alone 0 to 3, the first two, the first three and all four
    assert names == {
        "storage=node0+file1",
        "storage=node0+file2",
        "storage=node0+unknowndrives3",
        "storage=node0+unknowndrives",
    }
    workflow.measure()
    assert workflow.selected() == set()
    workflow.config["parameters"] = {"fio_sequential_read": {"queue_depth": 4}}
    assert len(workflow.selected()) == 7


def test_a_failed_point_is_tried_again_and_kept(workflow):
    workflow.config["experiments"] = ["storage_bandwidth"]
    # A folder that cannot be created: below a file.
    blocked = workflow.folder / "blocked"
    blocked.write_text("")
    workflow.host(chaosity_storage_file=files(blocked))
    workflow.measure()
    [record] = workflow.records().values()
    assert "cannot be created" in record["verdict"]["reason"]
    blocked.unlink()
    workflow.measure()
    [record] = workflow.records().values()
    assert record["verdict"]["status"] == "valid"
    assert workflow.selected() == set()
    attempts = [path.name.split(".")[-2] for path in workflow.attempts()]
    assert sorted(attempts) == ["failed", "valid"]
