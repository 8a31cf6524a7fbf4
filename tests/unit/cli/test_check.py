"""What ``chaosity check`` prints."""

from __future__ import annotations

import csv
import errno
import fcntl
import gzip
import json
import os
import shutil
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from broken_runs import chaosity
from chaosity.cli import chaosity as command_line
from chaosity.cli.check import print_check_result
from chaosity.components import COMPONENTS_SEEN_BY_CHECKS_FILE
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, yaml_file_names
from chaosity.errors import UserError
from chaosity.health import check_host
from chaosity.health.check_host import HostCheck, HostCheckResult, refuse_busy_host
from chaosity.health.check_points import CheckedValue, CheckPoint
from chaosity.hosts.runner_command import SSH
from chaosity.records.record_format import Record
from chaosity.text_templates import texts_of_yaml_file
from machines import configuration_folder, run_chaosity, simulated
from nightly_checks import check_points


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the results of a simulated host with a map."""
    mapped = configuration_folder(simulated("fleet", ["memory_bandwidth", "latency_matrix"]))
    shutil.copytree(mapped.parent, tmp_path / "sim")
    return tmp_path / "sim" / mapped.name


def test_records_do_not_grow_from_night_to_night(folder: Path):
    for _ in range(2):
        HostCheck(folder).run()
    files = sorted((folder / "checks").iterdir())
    assert len(files) == 2
    for path in files:
        for record in json.loads(gzip.decompress(path.read_bytes())):
            assert record["point"]["orders"] == [0]


def test_each_check_keeps_the_components_that_it_sees(folder: Path):
    path = folder / "topology.json"
    for kernel in ("6.1.1", "6.1.1", "6.1.2"):
        topology = json.loads(path.read_text())
        topology["host"]["kernel_release"] = kernel
        path.write_text(json.dumps(topology))
        HostCheck(folder).run()
    states = [
        json.loads(line)
        for line in (folder / COMPONENTS_SEEN_BY_CHECKS_FILE).read_text().splitlines()
    ]
    assert [each["content"]["system"]["kernel_release"] for each in states] == ["6.1.1", "6.1.2"]


def test_names_are_whole_in_a_pipe(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "")
    said = run_chaosity("check", folder, "--all")
    for row in csv.DictReader((folder / "checks.csv").open()):
        assert f"{row['experiment']}/{row['point']} " in said


def test_a_host_whose_map_has_findings_is_not_called_fine(folder: Path):
    findings = folder / "findings.json"
    findings.write_text(run_chaosity("anomalies", folder, "--json"))
    assert "is worse than in the map.\n" in run_chaosity("check", folder)
    document = json.loads(findings.read_text())
    slow = {
        **{"kind": "slow_component", "initiator": None, "target": 1, "components": ["node1"]},
        **{"metric": "latency_ns", "observed": 120.0, "expected": 100.0, "loss_percent": 20.0},
        **{"loss_percent_low": 19.0, "loss_percent_high": 21.0, "confidence": 0.99, "n": 3},
        **{"siblings": "others", "sentence": "The memory of node 1 is slow.", "advice": "Look."},
    }
    findings.write_text(json.dumps(document | {"anomalies": [slow]}))
    said = run_chaosity("check", folder)
    sentence = f"in the map, but the map itself has 1 finding: chaosity anomalies {folder}\n"
    assert "no change: none of" in said and sentence in said and "fine" not in said
    odd = folder.parent.with_name("odd name")
    odd.symlink_to(folder.parent)
    said = run_chaosity("check", odd / folder.name)
    assert f": chaosity anomalies '{odd / folder.name}'\n" in said
    findings.write_text(json.dumps(document | {"unusable": "The results are unusable: noise."}))
    said = run_chaosity("check", folder)
    assert "no change: none of" in said and "The results are unusable: noise.\n" in said
    findings.write_text("broken")
    assert "is worse than in the map.\n" in run_chaosity("check", folder)


def test_an_experiment_that_the_map_lacks_is_named_with_what_the_check_does_not_see(tmp_path: Path):
    names = {each["experiment"] for each in texts_of_yaml_file("check")["experiments"].values()}
    assert names <= set(yaml_file_names(EXPERIMENTS_FOLDER))
    partial = configuration_folder(simulated("two_packages", ["latency_matrix"]))
    copy = shutil.copytree(partial.parent, tmp_path / "server") / partial.name
    for said in (run_chaosity("check", copy), run_chaosity("check", copy, "--dry-run")):
        assert said.count("server: the map has no value of ") == 2
        assert "storage_bandwidth, so the check does not see slow drives: add storage_b" in said
        assert "the map has no value of memory_bandwidth, so" in said
    missing = json.loads(run_chaosity("check", copy, "--json"))["experiments_missing_in_map"]
    assert missing == {
        "memory_bandwidth": "slow memory and slow paths",
        "storage_bandwidth": "slow drives",
    }
    without = configuration_folder(simulated("two_packages", ["core_to_core"]))
    with pytest.raises(AssertionError, match="add memory_bandwidth, latency_matrix, storage_bandw"):
        run_chaosity("check", without)


def test_the_map_of_another_machine_is_refused(folder: Path):
    """As on a login node with the results of a Slurm node."""
    path = folder.parent / "host.json"
    host = json.loads(path.read_text()) | {"transport": {"kind": "slurm", "way": []}}
    path.write_text(json.dumps(host))
    done = chaosity("check", folder)
    assert done.returncode == 3
    assert "the map was measured on simulated machine fleet, and this machine is" in done.stdout
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
    assert result.left_for_next_check
    assert len(result.values) + len(result.left_for_next_check) == len(check.points)


def test_a_running_measurement_is_not_disturbed(tmp_path: Path):
    lock = tmp_path / "measuring.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="measures on this host; check it later"):
            refuse_busy_host(lock, 0.0)


@pytest.mark.parametrize(("busy", "is_refused"), [(2.0, False), (60.0, True)])
def test_only_the_use_of_processors_during_the_look_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: float, is_refused: bool
):
    """Since its boot, the host was busy for half of the time."""
    before = {"user": 5e4, "idle": 5e4, "iowait": 0.0}
    looks = iter([before, {**before, "user": 5e4 + busy, "idle": 5e4 + 100.0 - busy}])
    monkeypatch.setattr(check_host, "read_processor_seconds", lambda: next(looks))
    refused = pytest.raises(UserError, match=f"other programs use {busy:.0f} % of the processors")
    with refused if is_refused else nullcontext():
        refuse_busy_host(tmp_path / "measuring.lock", 0.0)


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
        command_line.main(["check", str(folder)], standalone_mode=False)
    assert ended.value.code == 3
    assert said in capsys.readouterr().err


def point_of(part: str) -> CheckPoint:
    """The point of a node, a path or a drive; the server itself has no disk and no file."""
    points = check_points()
    if part == "node":
        return next(each for each in points if each.parts == ("node0",))
    if part == "path":
        return next(each for each in points if len(each.parts) == 2)
    nvme = next(each for each in points if each.load["target"]["drives"])
    if part == "NVMe drive":
        return nvme
    name, place = {"disk": ("disk-sdb", "path"), "file": ("file0", "file")}[part]
    drive = {"node": None, "component": name, place: f"/somewhere/{name}"}
    target = {**nvme.load["target"], "drives": [drive]}
    return replace(nvme, load={**nvme.load, "target": target}, parts=(name,))


def output_of_check(slow: CheckPoint, capsys, *, disturbed: bool = False) -> str:
    """What a check prints in which a single value is slow, measured three times."""
    values = [
        CheckedValue(each, (100.0,), 100.0, 0.05)
        for each in check_points()
        if each.parts != slow.parts
    ]
    values.append(CheckedValue(slow, (20.0, 20.0, 20.0), 100.0, 0.05, disturbed))
    result = HostCheckResult("server", "2026-11-25T02:00:00.000Z", 44.0, values)
    print_check_result(result, print_all=False)
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        ("node", "look at the node's memory modules and at the clock of its cores"),
        ("path", "look at the link between the nodes"),
        ("NVMe drive", "look at the health and link of the drive (nvme smart-log, lspci -vv)"),
        ("disk", "look at the health and the link of the drive"),
        ("file", "look at the health and the link of the drive"),
    ],
)
def test_the_advice_fits_the_slow_part(part, advice, capsys):
    check = point_of(part)
    said = output_of_check(check, capsys)
    assert f"server: fault [node_problem] {'->'.join(check.parts)}: 80 % worse" in said
    assert f"; {advice}" in said


def test_nobody_looks_for_a_broken_part_while_other_programs_work(capsys):
    said = output_of_check(point_of("NVMe drive"), capsys, disturbed=True)
    assert "server: warning [user_problem] " in said
    assert "; check the host again when nobody works on it." in said
