"""``chaosity check`` on a simulated host that gets a fault, and while a measurement runs."""

from __future__ import annotations

import csv
import errno
import fcntl
import gzip
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broken_runs import chaosity, run_program
from chaosity.cli.check import check_command
from chaosity.errors import UserError
from chaosity.health.check_host import HostCheck, refuse_busy_host
from chaosity.health.choose_check_points import CheckPoint
from chaosity.records.record_types_and_verdict import Record
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS, write_parquet_table
from chaosity.transport.runner_command import SSH
from simulated_map import set_faults, slow_node


def test_a_healthy_host_is_fine_and_a_slow_node_is_named(folder: Path, tmp_path: Path):
    metrics = tmp_path / "chaosity.prom"
    done = chaosity("check", folder, "--textfile", metrics, "--all")
    assert done.returncode == 0, done.stdout
    assert "SIMULATED" in done.stdout
    assert "sim: fine: none of" in done.stdout
    set_faults(folder, slow_node(1, 0.8))
    done = chaosity("check", folder, "--textfile", metrics)
    assert done.returncode == 2, done.stdout
    # The simulated node is 20 % slower than before, and its values scatter by 1 %.
    assert re.search(r"sim: fault \[node_problem\] node1: (19|2\d) % worse", done.stdout)
    assert ", 3 measured (" in done.stdout
    assert "look at its memory modules" in done.stdout
    found = {
        each.name: each.samples for each in text_string_to_metric_families(metrics.read_text())
    }
    [status] = found["chaosity_check_status"]
    assert (status.labels, status.value) == ({"host": "sim"}, 2.0)
    losses = found["chaosity_check_loss_ratio"]
    assert 0.15 < max(each.value for each in losses if each.labels["component"] == "node1") < 0.25
    document = json.loads(chaosity("check", folder, "--json").stdout)
    assert document["status"] == 2
    assert document["suspects"][0]["components"] == ["node1"]
    assert len((folder / "checks.csv").read_text().splitlines()) == 1 + 3 * len(document["values"])
    assert len(list((folder / "checks").iterdir())) == 3


def test_records_do_not_grow_from_night_to_night(folder: Path):
    for _ in range(3):
        assert chaosity("check", folder).returncode == 0
    for path in sorted((folder / "checks").iterdir()):
        for record in json.loads(gzip.decompress(path.read_bytes())):
            assert record["point"]["orders"] == [0]


def test_names_are_whole_in_a_pipe(folder: Path):
    said = run_program("chaosity", "check", folder, "--all", environment={"COLUMNS": ""}).stdout
    for row in csv.DictReader((folder / "checks.csv").open()):
        assert f"{row['experiment']}/{row['point']} " in said


def test_a_host_whose_map_was_bad_is_told_by_equal_hosts(mapped: Path, tmp_path: Path):
    folders = []
    for number in range(5):
        host = tmp_path / f"sim{number}"
        shutil.copytree(mapped.parent, host)
        document = json.loads((host / "host.json").read_text()) | {"host": host.name}
        (host / "host.json").write_text(json.dumps(document))
        folders.append(host / mapped.name)
    sick = folders[4]
    set_faults(sick, slow_node(1, 0.85))
    table = Measurements.read(sick / "measurements.parquet").rows
    bad = (table["target"] == "node1") & (table["category"] == "memory_bandwidth")
    table["value"] = table["value"].where(~bad, 0.85 * table["value"])
    write_parquet_table(table[list(COLUMNS)], sick / "measurements.parquet", COLUMNS)
    for folder in folders[:4]:
        done = chaosity("check", folder)
        assert done.returncode == 0, done.stdout
    done = chaosity("check", sick)
    assert done.returncode == 1, done.stdout
    assert "sim4: warning [node_problem] node1: 1" in done.stdout
    assert "worse than in the recent checks of 4 equal hosts, in the map already" in done.stdout
    done = chaosity("check", sick, "--without-equal-hosts")
    assert done.returncode == 0, done.stdout


def test_the_map_of_another_machine_is_refused(folder: Path):
    """As on a login node with the results of a Slurm node."""
    path = folder.parent / "host.json"
    host = json.loads(path.read_text()) | {"transport": {"kind": "slurm", "way": []}}
    path.write_text(json.dumps(host))
    done = chaosity("check", folder)
    assert done.returncode == 3
    assert "the map was measured on simulated machine xeon_8358, and this machine is" in done.stdout
    assert not (folder / "checks.csv").exists()


def test_the_folder_of_ssh_sockets_is_made_again_after_a_boot(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = folder.parent / "host.json"
    transport = {"kind": "ssh", "way": ["false"], "runner": []}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"transport": transport}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UserError):
        HostCheck(folder).run(5.0)
    assert (tmp_path / f"chaosity-ssh-{os.getuid()}").is_dir()


def test_a_dry_run_measures_nothing(folder: Path):
    done = chaosity("check", folder, "--dry-run")
    assert done.returncode == 0, done.stdout
    assert "node1" in done.stdout
    assert not (folder / "checks.csv").exists()


class SlowHostCheck(HostCheck):
    """A check of a host on which each measurement takes four times as long as planned."""

    measured = 0.0  # seconds of the plan

    def _measure(self, check: CheckPoint, replicate: int) -> Record:
        time.sleep(4.0 * check.seconds)
        self.measured += check.seconds
        return super()._measure(check, replicate)


@pytest.mark.thorough
def test_a_check_of_a_busy_host_leaves_out_more_and_ends_in_time(folder: Path):
    check = SlowHostCheck(folder)
    check.transport = SSH  # only the time of a simulated check is that of the plan
    result = check.run(15.0)
    # After the first measurement, the check expects that all others are four times as slow, too.
    assert result.seconds < 15.0 + 4.0 * max(point.seconds for point in check.points)
    assert check.measured < 5.0
    assert result.left
    assert len(result.values) + len(result.left) == len(check.points)


def test_what_a_short_check_leaves_out_is_said(folder: Path):
    done = chaosity("check", folder, "--seconds", "3")
    assert "did not fit into the time and will be measured by the next check" in done.stdout


def test_a_folder_without_a_map_is_not_checked(tmp_path: Path):
    done = chaosity("check", tmp_path)
    assert done.returncode == 3
    assert "not checked" in done.stdout
    assert "the folder has no results of a host; name a folder results/HOST/CONF" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no/such/folder"], "Directory 'no/such/folder' does not exist"),
        (["--every-value"], "No such option"),
        ([".", "--dry-run", "--json"], "--json: it has no effect with --dry-run; leave it out"),
    ],
)
def test_wrong_arguments_are_no_fault_of_the_host(folder: Path, arguments: list[str], said: str):
    done = chaosity("check", *arguments, folder=folder)
    assert done.returncode == 3
    assert said in done.stdout


def test_a_textfile_with_another_ending_is_refused(folder: Path):
    done = chaosity("check", folder, "--textfile", "status.txt")
    assert done.returncode == 3
    assert "node_exporter reads only files that end in .prom" in done.stdout


def test_a_running_measurement_is_not_disturbed(tmp_path: Path):
    lock = tmp_path / "measuring.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="measures on this host; check it later"):
            refuse_busy_host(lock, 0.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ZeroDivisionError("a defect of the program"),
            "ZeroDivisionError: a defect of the program",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "checks.csv"), "not checked: checks.csv"),
    ],
)
def test_a_check_that_fails_is_no_warning_and_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error, said
):
    """Python's own status of a crash is 1: it would be a warning that nobody reads."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(HostCheck, "run", fail)
    with pytest.raises(SystemExit) as ended:
        check_command.main([str(folder)], standalone_mode=False)
    assert ended.value.code == 3
    assert said in capsys.readouterr().err
