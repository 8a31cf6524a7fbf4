"""What must not happen to hosts: bytes that change, records that are half."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_workflow import Pipeline
from published_schemas import schema_errors
from virtual_lab import power_switch, replace_or_slow_drive
from wait_until_true import files_of_running_program, wait_until

pytestmark = pytest.mark.lab
HOST = "small"
DRIVES = {"NV-0-0": 50_000_000, "NV-1-0": 50_000_000}


@pytest.fixture(scope="module")
def host(provisioned):
    return provisioned


@pytest.fixture
def pipeline(host, root: Path, tmp_path: Path) -> Pipeline:
    return Pipeline(root, tmp_path, HOST)


@pytest.fixture
def occupied(host) -> Iterator[None]:
    """Both drives with a file system, and one of them mounted; empty again afterwards."""
    for serial in DRIVES:
        find = f"/dev/$(basename $(dirname $(grep -lw {serial} /sys/class/nvme/*/serial)))n1"
        host.says(f"mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 {find}")
    host.says(f"mount -o noatime {find} /mnt && echo kept > /mnt/file && sync && fstrim /mnt; sync")
    yield
    for serial, speed in DRIVES.items():
        replace_or_slow_drive.replace_drive(host.folder, serial, serial, speed)


def checksums(host) -> dict[str, str]:
    images = sorted((host.folder / "drives").glob("*.img"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in images}


def test_no_byte_of_a_drive_with_a_file_system_changes(occupied, host, pipeline: Pipeline) -> None:
    pipeline.config |= {"experiments": ["storage_sample", "interference"], "sample": {}}
    before = checksums(host)
    assert set(before) == {f"{serial}.img" for serial in DRIVES}
    pipeline.run()
    assert all(r["verdict"]["status"] == "valid" for r in pipeline.records(HOST).values())
    # Even a benchmark that writes, on drives that are named for it, the system's own among them:
    # without its name all would be refused before any job.
    pipeline.config["benchmarks"] = {
        "memory_bandwidth": "chaosity_bandwidth",
        "storage_bandwidth": "fio_sequential_write",
    }
    pipeline.config |= {"experiments": ["storage_sample"], "sample": {"storage_sample": 4}}
    pipeline.with_variables(chaosity_destructive_drives=[*DRIVES, "system"])
    pipeline.snakemake()
    refused = [r for r in pipeline.records(HOST).values() if "write" in str(r["point"]["loads"])]
    assert any("must not be written to" in str(r["verdict"]["reason"]) for r in refused)
    host.says("sync")
    assert checksums(host) == before


def test_a_host_that_loses_power_in_the_middle(host, pipeline: Pipeline) -> None:
    pipeline.config |= {"experiments": ["memory_bandwidth"], "sample": {}}
    run = subprocess.Popen(
        pipeline.command(), cwd=pipeline.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    pattern = "results/*/*/*/*/rep*.json"
    wait_until(lambda: len(files_of_running_program(pipeline.folder, pattern)) >= 3, 300)
    power_switch.stop_machine(host.folder, force=True)
    said = run.communicate(timeout=300)[0].decode()
    assert run.returncode != 0
    assert said.count(f"host {HOST} is skipped") == 1, said
    kept = pipeline.records(HOST)
    assert len(kept) >= 3
    for record in kept.values():
        assert schema_errors(record, "record") == []
    power_switch.boot_machine(host.folder)
    pipeline.run()
    after = pipeline.records(HOST)
    assert len(after) > len(kept)
    for path, record in kept.items():  # what was measured before is not measured again
        assert json.loads(path.read_text())["began_at"] == record["began_at"]
