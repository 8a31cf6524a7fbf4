"""`snakemake --profile cluster`, typed like that, over a real Slurm with two nodes."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from pathlib import Path

import pytest

from broken_runs import run_program
from published_schemas import schema_errors
from slurm_workflow import HOSTS, Checkout, play
from wait_until_true import wait_until

pytestmark = pytest.mark.slurm

COST = re.compile(r"(\d+) measurements in 2 Slurm jobs on 2 nodes: .* Per measurement,")


def keys(document: object) -> object:
    """The form of a document: its keys at every depth that is not a tool's own output."""
    if isinstance(document, dict):
        return {key: keys(value) for key, value in document.items() if key not in ("raw", "files")}
    return type(document).__name__ if isinstance(document, list) else None


def running(node: str) -> list[str]:
    """Numbers of the batches that run on a node, without the short jobs of discovery."""
    said = run_program(
        "squeue", "--noheader", "--states=RUNNING", f"--nodelist={node}", "-o", "%i %j"
    )
    return [line.split()[0] for line in said.stdout.splitlines() if "describe" not in line]


def pending() -> str:
    return run_program("squeue", "--noheader", "--states=PENDING", "-o", "%i").stdout


def test_both_hosts_are_measured_as_a_local_one_would_be(checkout: Checkout) -> None:
    done = checkout.run()
    assert done.returncode == 0, done.stdout
    found = {
        host: [json.loads(path.read_text()) for path in checkout.records(host)] for host in HOSTS
    }
    assert len(found["nodea"]) == len(found["nodeb"]) > 1
    for host, records in found.items():
        for record in records:
            assert schema_errors(record, "record") == []
            assert record["point"]["host"] == host
            assert record["verdict"]["status"] == "valid", record["verdict"]
        # One after the other, in the random order.
        by_time = sorted(records, key=lambda record: record["began_at"])
        assert [record["order"] for record in by_time] == sorted(r["order"] for r in records)
        for one, other in itertools.pairwise(by_time):
            assert one["finished_at"] <= other["began_at"]
    assert COST.findall(done.stdout) == [str(sum(map(len, found.values())))]
    # Nothing is left to do, neither through Slurm nor otherwise.
    assert "Nothing to be done" in checkout.run("--dry-run").stdout
    # The same points on this machine without Slurm.
    words = ("--config", "hosts=[nodea]", "results=local")
    local = run_program("snakemake", *words, folder=checkout.folder)
    assert local.returncode == 0, local.stdout
    for path in checkout.records("nodea"):
        other = path.parts[path.parts.index("results") + 1 :]
        here = json.loads(checkout.folder.joinpath("local", *other).read_text())
        assert keys(here) == keys(json.loads(path.read_text()))


def test_a_simulated_host_is_measured_on_any_node(checkout: Checkout) -> None:
    machine = {
        "ansible_connection": "local",
        "chaosity_topology": "templates/machines/topologies/desktop.xml",
        "chaosity_simulated": "templates/machines/desktop.yaml",
    }
    inventory = {"all": {"hosts": {"made_up": machine}}}
    (checkout.folder / "made_up.yml").write_text(json.dumps(inventory))
    checkout.configure(inventory="made_up.yml", hosts=[])
    done = checkout.run()
    assert done.returncode == 0, done.stdout
    assert checkout.records("made_up")


def test_the_measurements_of_each_round_are_slurm_jobs(checkout: Checkout) -> None:
    # Every run without a limit of time is one in rounds. So wide a target needs few of them.
    checkout.configure(replicates=3)
    done = checkout.run("--config", "precision=90%")
    assert done.returncode == 0, done.stdout
    for host in HOSTS:
        [folder] = checkout.folder.glob(f"results/{host}/*/")
        choices = [json.loads(path.read_text()) for path in folder.glob("rounds/*.json")]
        rounds = [each for choice in choices for each in choice["rounds"]]
        assert len(rounds) >= 2
        taken = checkout.records(host)
        assert len(taken) == sum(len(each["measurements"]) for each in rounds)
        records = [json.loads(path.read_text()) for path in taken]
        assert {record["verdict"]["status"] for record in records} == {"valid"}
        assert (folder / "report.html").exists()
    jobs = re.findall(r"go to Slurm as one job", done.stdout)
    assert len(jobs) >= 2 * len(HOSTS)


def test_a_cancelled_job_is_tried_again_and_keeps_what_it_had(checkout: Checkout) -> None:
    long = {"relative_precision": None, "min_seconds": 1, "max_seconds": 1}
    checkout.configure(stopping={"memory_bandwidth": long})
    run = checkout.start()
    wait_until(lambda: len(checkout.attempts("nodea")) >= 3)
    [number] = running("nodea")
    assert run_program("scancel", number).returncode == 0
    said, _ = run.communicate(timeout=400)
    kept = {path: path.read_bytes() for path in checkout.attempts("nodea")[:3]}
    assert run.returncode == 0, said
    assert re.search(rf"Slurm job {number} on host nodea ended .* as CANCELLED", said), said
    # Those that were whole before were not measured again; all others were.
    for path, content in kept.items():
        replicate = path.parent.parent / "rep1.json"
        assert replicate.read_bytes() == content
        assert len(list(path.parent.glob("*.json"))) == 1
    assert {path.parent for path in checkout.records("nodea")} == {
        path.parent.parent for path in checkout.attempts("nodea")
    }
    assert len(checkout.records("nodea")) == len(checkout.records("nodeb"))


def test_a_drained_node_is_left_for_later(checkout: Checkout, drain) -> None:
    drain("nodeb", "bad fan, see ticket 7")
    done = checkout.run()
    assert "node nodeb is drained: reason bad fan, see ticket 7" in done.stdout
    assert checkout.records("nodea")
    assert checkout.records("nodeb") == []
    kept = {path: path.read_bytes() for path in checkout.records("nodea")}
    run_program("scontrol", "update", "nodename=nodeb", "state=resume")
    done = checkout.run()
    assert done.returncode == 0, done.stdout
    assert len(checkout.records("nodeb")) == len(kept)
    assert {path: path.read_bytes() for path in checkout.records("nodea")} == kept


def test_a_node_that_is_drained_during_the_run_does_not_hold_it_up(
    checkout: Checkout, drain
) -> None:
    short = {"minutes_per_job": 0.05, "time_factor": 2, "slack_minutes": 20, "wait_minutes": 5}
    checkout.configure(slurm={**short, "partition": None, "account": None}, replicates=2)
    run = checkout.start()
    try:
        wait_until(lambda: checkout.attempts("nodeb"))
        drain("nodeb", "bad fan")
        said, _ = run.communicate(timeout=450)
    finally:
        run.kill()
    assert run.returncode != 0
    assert "node nodeb is drain" in said, said
    assert "a later run measures its points" in said
    assert pending() == ""
    # The other host was not kept from anything.
    assert 0 < len(checkout.records("nodeb")) < len(checkout.records("nodea"))


def test_ctrl_c_leaves_no_job_behind(checkout: Checkout) -> None:
    run = checkout.start()
    wait_until(lambda: running("nodea") or running("nodeb"))
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=120)
    wait_until(lambda: not running("nodea") and not running("nodeb") and not pending())


def test_what_a_jobs_cgroup_withholds_is_discovered_as_such(checkout: Checkout) -> None:
    """The daemon's jobs inherit its cpuset, as those of a confined job inherit the job's."""
    cpuset = Path("/sys/fs/cgroup/cpuset")
    if not (cpuset / "cpuset.cpus").exists() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip(
            "this machine has no cpuset to confine a daemon to (cgroup v1), or one processor"
        )
    daemon = Path("/run/slurmd.nodeb.pid").read_text().strip()
    confined = cpuset / "chaosity-test"
    confined.mkdir(exist_ok=True)
    try:
        for name in ("mems", "cpus"):
            (confined / f"cpuset.{name}").write_text("0")
        (confined / "cgroup.procs").write_text(daemon)
        done = checkout.run("--until", "draw_topology")
    finally:
        (cpuset / "cgroup.procs").write_text(daemon)
    assert done.returncode == 0, done.stdout
    facts = {
        host: json.loads(next(checkout.folder.glob(f"results/{host}/*/topology.json")).read_text())
        for host in HOSTS
    }
    assert facts["nodeb"]["usable"] != facts["nodea"]["usable"]
    assert facts["nodeb"]["pus"] == 1
    assert facts["nodeb"]["restricted"] and not facts["nodea"]["restricted"]
    confined.rmdir()


def test_an_unknown_node_is_named(checkout: Checkout) -> None:
    checkout.adjust("hosts.yml", "nodeb: {}", "nodeb: {chaosity_slurm_node: nodex}")
    done = checkout.run("--dry-run")
    assert "Slurm has no node 'nodex'" in done.stdout


def test_a_second_run_of_the_role_changes_nothing(root, cluster: None) -> None:
    for arguments in ((), ("--check",)):
        done = play(root, *arguments)
        assert (done.status, done.count("changed")) == (0, 0), done.said


def test_the_role_leaves_another_cluster_alone(root, cluster: None, tmp_path) -> None:
    """A slurm.conf without the role's mark belongs to somebody."""
    path = Path("/etc/slurm/slurm.conf")
    ours = path.read_text()
    try:
        path.write_text(ours.split("\n", 1)[1])
        done = play(root, "-e", "slurm_state=absent")
        assert done.status != 0
        assert done.says("of a Slurm cluster that this role did not set up")
    finally:
        path.write_text(ours)
    assert run_program("scontrol", "ping").returncode == 0
