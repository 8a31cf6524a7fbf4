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


@pytest.mark.thorough
def test_a_writing_benchmark_is_refused_before_any_job(workflow, tmp_path):
    image = tmp_path / "image"
    with loop_device(image) as device:
        before = checksum(image)
        workflow.host(chaosity_extra_drives=[str(device)])
        workflow.config["experiments"] = ["storage_bandwidth"]
        workflow.config["benchmarks"] = {"storage_bandwidth": "fio_sequential_write"}
        done = workflow.snakemake()
        assert done.returncode != 0
        assert "chaosity_destructive_drives" in done.stdout
        assert checksum(image) == before


@pytest.mark.thorough
def test_a_named_drive_with_a_file_system_is_refused_even_so(workflow, tmp_path):
    image = tmp_path / "image"
    with loop_device(image, filesystem=True) as device:
        before = checksum(image)
        name = str(device)
        workflow.host(chaosity_extra_drives=[name], chaosity_destructive_drives=[name])
        workflow.config["experiments"] = ["storage_bandwidth"]
        workflow.config["benchmarks"] = {"storage_bandwidth": "fio_sequential_write"}
        workflow.measure()
        assert "has a signature (TYPE=ext4)" in verdict(workflow)["reason"]
        assert checksum(image) == before


@pytest.mark.thorough
def test_a_named_blank_drive_is_written(workflow, tmp_path):
    image = tmp_path / "image"
    with loop_device(image) as device:
        before = checksum(image)
        name = str(device)
        workflow.host(chaosity_extra_drives=[name], chaosity_destructive_drives=[name])
        workflow.config["experiments"] = ["storage_bandwidth"]
        workflow.config["benchmarks"] = {"storage_bandwidth": "fio_sequential_write"}
        workflow.measure()
        assert verdict(workflow)["status"] == "valid", verdict(workflow)
        assert checksum(image) != before
