"""The folders of results: how they are found, and the page that names every file."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import pytest

from chaosity.result_folders import (
    FILES_OF_A_CONFIGURATION,
    has_several_hosts_or_configurations,
    read_skipped_host,
    skipped_hosts,
    summary_files_of_all_hosts,
    tidy_tables_of_other_configurations,
)
from machines import configuration_folder, simulated


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def test_other_configurations_are_those_that_were_measured(tmp_path):
    for name in ("h/nps4", "h/nps1", "g/nps2"):
        touch(tmp_path / name / "measurements.parquet")
    touch(tmp_path / "h/nps8/plan.json")
    assert [
        path.parent.name for path in tidy_tables_of_other_configurations(tmp_path, "h", "nps4")
    ] == ["nps1"]
    assert tidy_tables_of_other_configurations(tmp_path, "new", "nps1") == []


def test_there_are_several_with_another_host_configuration_or_one_left_out(tmp_path):
    own = tmp_path / "h/nps4"
    assert not has_several_hosts_or_configurations(tmp_path, [own])
    touch(own / "summary.json")
    assert not has_several_hosts_or_configurations(tmp_path, [own])
    assert has_several_hosts_or_configurations(tmp_path, [own, tmp_path / "g/nps1"])
    assert has_several_hosts_or_configurations(tmp_path, [tmp_path / "h/nps1"])
    touch(tmp_path / "h/left_out.json")
    assert not has_several_hosts_or_configurations(tmp_path, [own])  # it is the same host
    touch(tmp_path / "away/left_out.json")
    assert has_several_hosts_or_configurations(tmp_path, [own])
    assert summary_files_of_all_hosts(tmp_path) == [own / "summary.json"]


def test_who_was_left_out_and_why(tmp_path):
    (tmp_path / "h").mkdir()
    assert read_skipped_host(tmp_path / "h") is None
    entry = {"host": "h", "at": "2026-11-21T09:15:00.000Z", "reason": "no route to host"}
    (tmp_path / "h/left_out.json").write_text(json.dumps(entry))
    [found] = skipped_hosts(tmp_path)
    assert (found.host, found.time_to_the_minute, found.reason) == (
        "h",
        "2026-11-21 09:15 UTC",
        "no route to host",
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_a_broken_file_still_says_that_the_host_was_left_out(tmp_path, text):
    (tmp_path / "h").mkdir()
    (tmp_path / "h/left_out.json").write_text(text)
    assert "cannot be read" in read_skipped_host(tmp_path / "h").reason


def test_every_file_of_a_host_is_listed() -> None:
    folder = configuration_folder(simulated("two_packages", ["memory_bandwidth", "latency_matrix"]))
    patterns = [
        re.sub(r"EXPERIMENT|POINT|N(?=\.)|(?<=/)$", "*", name) for name in FILES_OF_A_CONFIGURATION
    ]
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not [name for name in files if not any(fnmatchcase(name, one) for one in patterns)]
