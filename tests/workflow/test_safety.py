"""Nothing is written to a device that the inventory does not name as destructive."""

from __future__ import annotations

import pytest

from loop_devices import checksum, loop_device


def verdict(workflow):
    [record] = workflow.records(experiment="storage_bandwidth").values()
    return record["verdict"]


def test_measurements_leave_every_byte_of_a_drive(workflow, tmp_path):
    image = tmp_path / "image"
    with loop_device(image, filesystem=True) as device:
        before = checksum(image)
        workflow.host(chaosity_extra_drives=[str(device)])
        workflow.config |= {
            "experiments": ["storage_bandwidth", "interference"],
            "sample": {"interference": 1},
        }
        workflow.measure()
        assert verdict(workflow)["status"] == "valid", verdict(workflow)
        assert checksum(image) == before


def write_to(workflow, device, **variables):
    """Plan a benchmark that writes to a drive of a host with these variables."""
    workflow.host(chaosity_extra_drives=[str(device)], **variables)
    workflow.config["experiments"] = ["storage_bandwidth"]
    workflow.config["benchmarks"] = {"storage_bandwidth": "fio_sequential_write"}


@pytest.mark.thorough
def test_a_writing_benchmark_is_refused_before_any_job(workflow, tmp_path):
    image = tmp_path / "image"
    with loop_device(image) as device:
        before = checksum(image)
        write_to(workflow, device)
        done = workflow.snakemake()
        assert done.returncode != 0
        assert "chaosity_destructive_drives" in done.stdout
        assert checksum(image) == before


@pytest.mark.thorough
@pytest.mark.parametrize("filesystem", [True, False])
def test_of_named_drives_only_a_blank_one_is_written(workflow, tmp_path, filesystem):
    image = tmp_path / "image"
    with loop_device(image, filesystem=filesystem) as device:
        before = checksum(image)
        write_to(workflow, device, chaosity_destructive_drives=[str(device)])
        workflow.measure()
        if filesystem:
            assert "has a signature (TYPE=ext4)" in verdict(workflow)["reason"]
        else:
            assert verdict(workflow)["status"] == "valid", verdict(workflow)
        assert (checksum(image) == before) is filesystem
