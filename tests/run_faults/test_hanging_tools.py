"""A tool that hangs or prints rubbish: its points fail with a reason, the others are measured."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from broken_runs import record_files
from chaosity.records.record_format import FAILED, VALID
from chaosity.runner import describe_host, load_process, point_measurement
from chaosity.runner.describe_host import find_tool_path_version_and_hash
from chaosity.runner.point_measurement import measure_point

# Hangs without an output, ignores every signal that can be ignored, and so does its child.
HANGS = 'trap "" TERM INT HUP; sleep 300.5 & while :; do sleep 300.5; done'


@pytest.mark.alone
def test_a_tool_that_hangs_and_ignores_signals_is_killed_with_its_children(make_point, monkeypatch):
    monkeypatch.setattr(load_process, "GRACE_SECONDS", 0.2)
    point = make_point(
        command=["sh", "-c", HANGS],
        start="spawn",
        stop={"by": "self", "signal": "TERM", "exit": [0]},
        progress=None,
        metrics={},
        point={"timeout_seconds": 1},
    )
    began = time.monotonic()
    verdict = measure_point(point, 1)["verdict"]
    assert time.monotonic() - began < 30
    assert verdict["status"] == FAILED
    assert "the loads have not ended after 1 s" in str(verdict["reason"])
    assert not running("300.5")
    assert measure_point(make_point(), 1)["verdict"]["status"] == VALID


@pytest.mark.alone
def test_a_tool_that_never_gets_ready_fails_its_point(make_point, monkeypatch):
    monkeypatch.setattr(load_process, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(point_measurement, "READY_SECONDS", 0.5)
    verdict = measure_point(make_point(command=["sh", "-c", HANGS]), 1)["verdict"]
    assert "was not ready after 0.5 s" in str(verdict["reason"])
    assert not running("300.5")
    assert measure_point(make_point(), 1)["verdict"]["status"] == VALID


def test_a_tool_whose_version_query_hangs_is_discovered_without_a_version(
    tmp_path: Path, monkeypatch
):
    tool = tmp_path / "slow-tool"
    tool.write_text("#!/bin/sh\nsleep 300.75\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(shutil.which('sh') or '').parent}")
    monkeypatch.setattr(describe_host, "VERSION_SECONDS", 0.5)
    need = {"program": tool.name, "install": "-", "version": [tool.name, "--version"]}
    facts = find_tool_path_version_and_hash(need)  # type: ignore[arg-type]
    assert facts["version"] == ""
    assert facts["path"] == str(tool)
    assert not running("300.75")


@pytest.mark.thorough
def test_a_tool_that_prints_rubbish_fails_its_points_alone(workflow, monkeypatch):
    tools = workflow.folder / "bin"
    tools.mkdir()
    fio = tools / "fio"
    fio.write_text(
        "#!/bin/sh\ncase $1 in --version) echo fio-3.33;; *) echo rubbish; sleep 1;; esac\n"
    )
    fio.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    workflow.config["experiments"] = ["memory_bandwidth", "storage_bandwidth"]
    workflow.config["sample"] = {"memory_bandwidth": 1}
    said = workflow.measure()
    assert "failed: storage=node0+file0: " in said
    verdicts = {
        path.parent.parent.name: json.loads(text)["verdict"]
        for path, text in record_files(workflow.folder / "results").items()
    }
    assert verdicts["memory_bandwidth"]["status"] == VALID
    assert verdicts["storage_bandwidth"]["status"] == FAILED
    assert "wrote no output result.json" in verdicts["storage_bandwidth"]["reason"]


def running(words: str) -> list[str]:
    """The command lines of running processes that contain these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words in line:
            found.append(line)
    return found
