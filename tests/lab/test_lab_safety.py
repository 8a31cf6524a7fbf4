"""What must not happen to hosts: bytes that change, records that are half."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broken_runs import start
from lab_machines import FULL, Machine, block_device
from lab_workflow import Pipeline, good
from published_schemas import schema_errors
from virtual_lab import power_switch, replace_or_slow_drive
from wait_until_true import wait_until

pytestmark = pytest.mark.lab
HOST = "small"
DRIVES = ("NV-0-0", "NV-1-0")


@pytest.fixture
def pipeline(root: Path, tmp_path: Path) -> Pipeline:
    return Pipeline(root, tmp_path, HOST)


@pytest.fixture
def occupied(provisioned: Machine) -> Iterator[Machine]:
    """The host: both drives with a file system, one of them mounted; empty again afterwards."""
    for serial in DRIVES:
        find = block_device(serial)
        provisioned.says(f"mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 {find}")
    provisioned.says(
        f"mount -o noatime {find} /mnt && echo kept > /mnt/file && sync && fstrim /mnt; sync"
    )
    yield provisioned
    for serial in DRIVES:
        replace_or_slow_drive.replace_drive(provisioned.folder, serial, serial, FULL)


def test_no_byte_of_a_drive_with_a_file_system_changes(
    occupied: Machine, pipeline: Pipeline
) -> None:
    pipeline.config |= {"experiments": ["storage_sample", "interference"], "sample": {}}
    before = occupied.drive_checksums()
    assert set(before) == set(DRIVES)
    pipeline.run()
    assert all(map(good, pipeline.all_records()))
    # Even a benchmark that writes, on drives that are named for it, the system's own among them:
    # without its name all would be refused before any job.
    pipeline.config["benchmarks"] = {
        "memory_bandwidth": "chaosity_bandwidth",
        "storage_bandwidth": "fio_sequential_write",
    }
    pipeline.config |= {"experiments": ["storage_sample"], "sample": {"storage_sample": 4}}
    pipeline.with_variables(chaosity_destructive_drives=[*DRIVES, "system"])
    pipeline.snakemake()
    refused = [r for r in pipeline.all_records() if "write" in str(r["point"]["loads"])]
    assert any("must not be written to" in str(r["verdict"]["reason"]) for r in refused)
    occupied.says("sync")
    assert occupied.drive_checksums() == before


def test_a_host_that_loses_power_in_the_middle(provisioned: Machine, pipeline: Pipeline) -> None:
    pipeline.config |= {"experiments": ["memory_bandwidth"], "sample": {}}
    run = start(pipeline)
    wait_until(lambda: len(pipeline.records()) >= 3, 300)
    power_switch.stop_machine(provisioned.folder, force=True)
    said = run.communicate(timeout=300)[0]
    assert run.returncode != 0
    assert said.count(f"host {HOST} is skipped") == 1, said
    kept = pipeline.records(HOST)
    assert len(kept) >= 3
    for record in kept.values():
        assert schema_errors(record, "record") == []
    power_switch.boot_machine(provisioned.folder)
    pipeline.run()
    after = pipeline.records(HOST)
    assert len(after) > len(kept)
    for path, record in kept.items():  # what was measured before is not measured again
        assert json.loads(path.read_text())["began_at"] == record["began_at"]
