"""``chaosity measure`` with files that are no point to measure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.errors import UserError


def test_a_point_of_a_simulated_host_is_refused_wherever_its_file_is(tmp_path):
    (tmp_path / "host.json").write_text(json.dumps({"transport": {"kind": "simulated"}}))
    for folder in ("", "a", "a/b/c/d"):
        with pytest.raises(UserError, match="the point belongs to a simulated host"):
            run(tmp_path / folder)


def test_a_host_that_is_only_named_simulated_is_measured(tmp_path):
    (tmp_path / "host.json").write_text(json.dumps({"host": "simulated", "transport": {}}))
    with pytest.raises(UserError, match="replicate 7 is unknown"):
        run(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"transport": null}', "[" * 100_000])
def test_a_damaged_description_of_the_host_is_an_error(tmp_path, text):
    (tmp_path / "host.json").write_text(text)
    with pytest.raises(UserError, match=r"host\.json: the file is not a description"):
        run(tmp_path)


def measured(
    folder: Path, point: dict[str, object], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the command without an activated environment."""
    file = folder / "point.json"
    file.write_text(json.dumps({**point, "estimated_seconds": 1.0}))
    return subprocess.run(
        [Path(sys.executable).parent / "chaosity", "measure", file, *options],
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        text=True,
        capture_output=True,
        check=False,
    )


def test_it_finds_the_kernels_without_an_activated_environment(tmp_path, make_point):
    kernel = {"program": "chaosity-latency", "install": "run ansible-playbook provision.yml"}
    done = measured(tmp_path, make_point(needs=kernel))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]["status"] == "valid"


def test_it_ends_with_the_values_and_the_path_of_the_record(tmp_path, make_point):
    kernel = {"program": "chaosity-latency", "install": "run ansible-playbook provision.yml"}
    record = tmp_path / "rep1.json"
    done = measured(tmp_path, make_point(needs=kernel), "--record", str(record))
    value, where = done.stderr.splitlines()[-2:]
    assert re.fullmatch(r"memory, machine -> node0: bandwidth: [\d.]+ \wB/s", value), value
    assert where == f"record of replicate 1 of 1: {record}"
    assert (done.stdout, json.loads(record.read_text())["verdict"]["status"]) == ("", "valid")


def test_a_failed_measurement_has_a_status_and_a_reason(tmp_path, make_point):
    done = measured(tmp_path, make_point("dies"))
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"]["status"] == "failed"
    assert "point.json: failed: " in done.stderr.splitlines()[-1]


def run(folder: Path) -> None:
    """Ask for a replicate that a point in a folder does not have, so that nothing is measured."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "point.json").write_text(json.dumps({"orders": [0]}))
    CliRunner().invoke(
        chaosity,
        ["measure", str(folder / "point.json"), "--replicate", "7"],
        catch_exceptions=False,
    )
