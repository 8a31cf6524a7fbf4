"""A host's description of itself gives the same topology as looking at it directly."""

from __future__ import annotations

import io
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaosity.runner import describe_host
from chaosity.runner.build_zipapp import write_zipapp, zipapp_sha256
from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from chaosity.topology.topology_model import topology_to_json

NEEDS = [{"program": "fio", "version": ["fio", "--version"]}, {"program": "no-such-tool"}]


@pytest.fixture
def description(tmp_path):
    """What the packed runner says of this machine."""
    runner = tmp_path / "chaosity-run.pyz"
    write_zipapp(runner)
    answer = subprocess.run(
        [sys.executable, runner, "--describe"],
        input=json.dumps({"needs": NEEDS}).encode(),
        capture_output=True,
        check=True,
    )
    path = tmp_path / "description.json"
    path.write_bytes(answer.stdout)
    return path


def test_a_description_gives_the_same_topology_as_the_machine(description):
    live, live_xml = discover_topology_with_xml("live")
    reported, reported_xml = discover_topology_with_xml(str(description))
    assert reported == discover_topology(str(description))
    live_document, reported_document = topology_to_json(live), topology_to_json(reported)
    reported_document["source"] = live_document["source"]
    # A virtual machine may give memory back to its host at any time.
    for mine, other in zip(live_document["nodes"], reported_document["nodes"], strict=True):
        assert other["memory_bytes"] == pytest.approx(mine["memory_bytes"], rel=0.2)
        other["memory_bytes"] = mine["memory_bytes"]
    assert reported_document == live_document
    assert _without_bytes_of_memory(reported_xml) == _without_bytes_of_memory(live_xml)


def _without_bytes_of_memory(xml: str) -> str:
    return re.sub(r'(local_memory|count)="\d+"', "", xml)


def test_a_description_has_tools_and_the_runners_hash(description):
    facts = json.loads(description.read_text())
    fio, missing = facts["tools"]
    assert fio["version"].startswith("fio-")
    assert len(fio["sha256"]) == 64
    assert missing["path"] is None
    assert facts["runner_sha256"] == zipapp_sha256()
    assert facts["module_table"]  # the modules, or why they are unknown


def test_without_hwloc_there_is_no_description(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    output = io.StringIO()
    with pytest.raises(describe_host.DescriptionError, match="lstopo is not installed"):
        describe_host.write_host_description([], output)
    assert output.getvalue() == ""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the calls have other numbers")
@pytest.mark.parametrize(
    "program", ["chaosity-run --describe", "chaosity-place --policy first_touch --workers 0 true"]
)
def test_a_container_that_forbids_memory_policies_is_reported_before_all_points(program, root):
    filtered = [sys.executable, root / "tests/support/denied_system_calls.py", "237,238,239"]
    name, *arguments = program.split()
    command = [*filtered, Path(sys.executable).with_name(name), *arguments]
    answer = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    if answer.returncode == 77:
        pytest.skip("this machine allows no filter of system calls")
    assert (answer.returncode != 0, answer.stdout) == (True, "")
    wanted = "the container forbids memory policies; add CAP_SYS_NICE (docker --cap-add SYS_NICE)"
    assert answer.stderr == f"{name}: {wanted}.\n"
