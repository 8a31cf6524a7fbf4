"""A full disk, on the controller and on the host: no half record, and the next run goes on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from broken_runs import ResultsFolder, record_files, start
from chaosity.errors import MeasurementError
from chaosity.records.record_files import load_record, save_record
from chaosity.records.record_format import FAILED, VALID
from chaosity.runner.devices_of_point import create_random_file_as_drive
from chaosity.runner.point_measurement import measure_point
from small_file_system import fill, free_again, small_file_system
from wait_until_true import wait_until
from workflow_folder import Workflow

SIZE = 16 * 2**20


@pytest.mark.thorough
def test_the_disk_of_the_controller_fills_while_points_are_measured(simulated: Workflow):
    simulated.config["sample"] = {}
    results = simulated.folder / "results"
    with small_file_system(results, SIZE):
        run = start(simulated)
        wait_until(lambda: len(record_files(results)) >= 3)
        fill(results)
        said = run.communicate(timeout=300)[0]
        assert run.returncode != 0
        assert said.count(f"the file system {results} has 0 bytes free") == 1, said
        assert "free space and run again. Finished measurements are kept." in said
        assert "Traceback" not in said
        kept = record_files(results)
        planned = len(list(results.glob("*/*/points/*/*.json")))
        assert 3 <= len(kept) < planned
        free_again(results)
        simulated.measure()
        after = record_files(results)
        assert len(after) == planned
        assert {path: after[path] for path in kept} == kept


def test_nothing_is_measured_whose_record_has_no_room(results: ResultsFolder, tmp_path: Path):
    with small_file_system(tmp_path / "small", SIZE) as mounted:
        shutil.copytree(results.results, mounted / "results")
        copy = ResultsFolder(mounted / "results")
        point = copy.points[0]
        before = copy.record(point).read_bytes()
        fill(mounted, leave=2**20)
        done = copy.measure(point)
        assert done.returncode == 1
        assert f"the file system {mounted} has " in done.stdout
        assert "free space and run again." in done.stdout
        assert copy.record(point).read_bytes() == before
        free_again(mounted)
        assert copy.measure(point).returncode == 0
        assert len(list(copy.record(point).parent.glob("attempts/*.json"))) == 2


def test_nothing_is_measured_if_there_are_no_inodes_for_its_files(
    results: ResultsFolder, tmp_path: Path
):
    used = 1 + sum(1 for _ in results.results.rglob("*"))
    with small_file_system(tmp_path / "small", SIZE, inodes=used + 100) as mounted:
        shutil.copytree(results.results, mounted / "results")
        copy = ResultsFolder(mounted / "results")
        before = record_files(copy.results)
        done = copy.measure(copy.points[0])
        assert done.returncode == 1
        assert f"the file system {mounted} has " in done.stdout
        assert "inodes free, one for each file, 1000 are needed" in done.stdout
        assert record_files(copy.results) == before


@pytest.mark.alone
def test_a_record_that_does_not_fit_leaves_the_older_one(make_point, tmp_path: Path):
    with small_file_system(tmp_path / "small", 64 * 1024) as mounted:
        path = mounted / "point/rep1.json"
        save_record(measure_point(make_point(), 1), path)
        before = path.read_bytes()
        fill(mounted)
        with pytest.raises(OSError, match=r"No space left on device: '.*rep1\..*valid\.json'"):
            save_record(measure_point(make_point(), 1), path)
        assert path.read_bytes() == before
        assert [found.name for found in mounted.rglob("*.json")] == [
            path.name,
            *(found.name for found in path.parent.glob("attempts/*.json")),
        ]
        assert not list(mounted.rglob(".*"))


@pytest.mark.thorough
def test_the_disk_is_full_while_tables_figures_and_the_report_are_written(
    results: ResultsFolder, tmp_path: Path
):
    with small_file_system(tmp_path / "small", SIZE) as mounted:
        shutil.copytree(results.results, mounted / "results")
        copy = ResultsFolder(mounted / "results")
        before = record_files(copy.results)
        for stage in ("tidy", "export", "report"):
            fill(mounted)
            done = copy.write(stage)
            assert done.returncode == 2, done.stdout
            said = done.stdout.strip().splitlines()[-1]
            assert f"No space left on device on the file system {mounted}; free space" in said
            assert "Traceback" not in done.stdout
            assert record_files(copy.results) == before
            assert not list(copy.folder.glob(".*.part"))
            free_again(mounted)
            done = copy.write(stage)
            assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_a_drawing_of_which_lstopo_wrote_only_a_part_does_not_count(
    simulated: Workflow, finished: Path
):
    """lstopo (2.9) exits with 0 when it could not write the whole drawing."""
    results = simulated.folder / "results"
    with small_file_system(results, SIZE):
        shutil.copytree(finished, results, dirs_exist_ok=True)
        [topology] = results.glob("*/*/topology.xml")
        fill(results, leave=8192)
        drawing = topology.with_suffix(".svg")
        done = simulated.snakemake("--until", "draw_topology")
        assert done.returncode != 0
        assert not drawing.exists()
        free_again(results)
        simulated.run("--until", "draw_topology")
        assert drawing.read_text().rstrip().endswith("</svg>")


@pytest.mark.alone
def test_the_working_folder_of_the_runner_is_full(make_point, tmp_path: Path, monkeypatch):
    with small_file_system(tmp_path / "small", SIZE) as mounted:
        monkeypatch.setattr(tempfile, "tempdir", str(mounted))
        fill(mounted)
        verdict = measure_point(make_point(), 1)["verdict"]
        assert verdict["status"] == FAILED
        assert f"the file system {mounted} has 0 bytes free" in str(verdict["reason"])
        free_again(mounted)
        assert measure_point(make_point(), 1)["verdict"]["status"] == VALID


# Writes until the disk is full, and ends as if it had noticed nothing.
WRITES_UNTIL_FULL = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
with open("log", "ab", buffering=0) as log:
    try:
        while True: log.write(bytes(1 << 20))
    except OSError: pass
"""


@pytest.mark.alone
def test_a_load_that_fills_the_working_folder_has_no_valid_record(
    make_point, tmp_path: Path, monkeypatch
):
    point = make_point()
    program = point["loads"][0]["command"][2].replace(
        "import json", f"{WRITES_UNTIL_FULL}\nimport json", 1
    )
    point = make_point(command=[sys.executable, "-c", program, ""])
    with small_file_system(tmp_path / "small", SIZE) as mounted:
        monkeypatch.setattr(tempfile, "tempdir", str(mounted))
        verdict = measure_point(point, 1)["verdict"]
        assert verdict["status"] == FAILED
        assert f"the file system {mounted} has 0 bytes free" in str(verdict["reason"])
        assert measure_point(make_point(), 1)["verdict"]["status"] == VALID


def test_the_file_in_place_of_a_drive_does_not_fit(tmp_path: Path):
    with small_file_system(tmp_path / "small", SIZE) as mounted:
        with pytest.raises(MeasurementError, match=f"the file system {mounted} has .* are needed"):
            create_random_file_as_drive(mounted / "file0", 2 * SIZE)
        assert list(mounted.iterdir()) == []
        create_random_file_as_drive(mounted / "file0", SIZE // 2)
        assert (mounted / "file0").stat().st_size == SIZE // 2


def test_a_record_cut_at_any_place_is_no_record(results: ResultsFolder):
    record = results.record(results.points[0])
    whole = record.read_bytes()
    record.unlink()
    for length in (0, 1, len(whole) // 2, len(whole) - 3):
        record.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a"):
            load_record(record)
