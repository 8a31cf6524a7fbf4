"""Hosts over a real OpenSSH server: measured in parallel, refused, and lost in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broken_runs import start
from chaosity.runner.build_zipapp import write_zipapp
from published_schemas import schema_errors
from sshd import Server, make_key_pair, running_server
from wait_until_true import wait_until
from workflow_folder import Workflow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "sshd") as one:
        yield one


@pytest.fixture
def workflow(workflow: Workflow, server: Server, root: Path) -> Workflow:
    """One host, `far`, behind the server, with the runner installed for it."""
    write_zipapp(workflow.folder / "installed/chaosity-run.pyz")
    workflow.config["experiments"] = ["memory_bandwidth"]
    workflow.config["sample"] = {"memory_bandwidth": 2}
    workflow.hosts({"far": host(workflow, server)})
    return workflow


def host(workflow: Workflow, server: Server, **variables) -> dict:
    return {
        **server.variables,
        "runner_directory": str(workflow.folder / "installed"),
        "kernels_directory": str(workflow.root / "build/kernels"),
        **variables,
    }


def test_a_host_is_measured_over_one_kept_connection(workflow, server):
    workflow.measure()
    found = workflow.records("far")
    assert len(found) == 2
    for record in found.values():
        assert schema_errors(record, "record") == []
        assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
    assert server.log.count("Accepted publickey") == 1
    assert workflow.selected() == set()


UNREACHABLE = {
    "deaf": ({"ansible_port": 1}, "nothing listens"),
    "unknown": (
        {"ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null"},
        "host key is not known",
    ),
    # An inventory cannot switch the check off.
    "unchecked": (
        {"ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no"},
        "host key is not known",
    ),
    "bare": ({"runner_directory": "/nowhere"}, "cannot be described"),
    "windows": ({"ansible_connection": "winrm"}, "cannot carry measurements"),
    "wrong": ({"ansible_ssh_private_key_file": "wrong"}, "it refused the key or the password"),
    "old": ({"runner_directory": "old"}, "the runner on the host has another version"),
}


@pytest.mark.thorough
def test_hosts_that_cannot_be_reached_are_named_and_the_others_go_on(workflow, server):
    workflow.timeout = 900  # it is a run of the workflow for each host
    workflow.config["sample"] = {"memory_bandwidth": 1}
    good = host(workflow, server)
    lost = {name: {**good, **variables} for name, (variables, _) in UNREACHABLE.items()}
    lost["wrong"]["ansible_ssh_private_key_file"] = str(make_key_pair(server.folder / "wrong"))
    runner, old = (workflow.folder / name / "chaosity-run.pyz" for name in ("installed", "old"))
    old.parent.mkdir()
    old.write_bytes(runner.read_bytes() + b"\0")
    lost["old"]["runner_directory"] = str(old.parent)
    workflow.hosts({"far": good, **lost})
    done = workflow.snakemake("--until", "measure")
    assert done.returncode != 0
    assert workflow.records("far")
    for name, (_, message) in UNREACHABLE.items():
        assert f"host {name}" in done.stdout
        assert message in done.stdout
        note = (workflow.folder / f"results/{name}/left_out.json").read_text()
        assert name in note
        assert message in note
        assert not workflow.records(name)
    repaired = ("deaf", "old")
    workflow.hosts(dict.fromkeys(["far", *repaired], good))
    workflow.measure()
    for name in repaired:
        assert len(workflow.records(name)) == len(workflow.records("far"))
        assert not (workflow.folder / f"results/{name}/left_out.json").exists()


@pytest.mark.thorough
def test_a_changed_host_key_is_called_that(workflow, server):
    other = make_key_pair(server.folder / "other")
    public = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    server.known.write_text(f"[127.0.0.1]:{server.port} {public}\n")
    done = workflow.snakemake()
    assert done.returncode == 2
    assert "host key has changed" in done.stdout


@pytest.mark.thorough
def test_a_host_that_dies_in_the_middle_leaves_whole_records_and_the_next_run_goes_on(
    workflow, server
):
    good = host(workflow, server)
    workflow.config |= {"replicates": 3, "sample": {}}
    workflow.hosts({"far": good, "localhost": {"ansible_connection": "local"}})
    run = start(workflow, "--until", "measure")
    wait_until(lambda: len(workflow.records("far")) >= 3)
    server.stop()
    said = run.communicate(timeout=120)[0]
    assert run.returncode != 0
    assert said.count("host far is skipped") == 1
    survived = workflow.records("far")
    assert 3 <= len(survived) < len(workflow.records("localhost"))
    for record in survived.values():
        assert schema_errors(record, "record") == []
    server.start()
    workflow.measure()
    assert len(workflow.records("far")) == len(workflow.records("localhost"))
