"""What `scontrol show node --oneliner` says, as Slurm 22.05 and later print it."""

from __future__ import annotations

import pytest

from chaosity.campaign.slurm_jobs import JOB_PREFIX
from chaosity.slurm import (
    parse_slurm_nodes,
    slurm_node_name,
    srun_command_for_description,
)

# Recorded from Slurm 22.05.8 with two nodes, one drained by hand; shortened in the middle.
RECORDED = (
    "NodeName=nodea Arch=x86_64 CoresPerSocket=2  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.79"
    " NodeAddr=127.0.0.1 NodeHostName=vm Port=17001 Version=22.05.8 RealMemory=21504 AllocMem=0"
    " Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Partitions=chaosity "
    " CfgTRES=cpu=2,mem=21G,billing=2 ExtSensorsTemp=n/s\n"
    "NodeName=nodeb Arch=x86_64 CoresPerSocket=2  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.79"
    " NodeAddr=127.0.0.1 NodeHostName=vm Port=17002 Version=22.05.8 RealMemory=21504 AllocMem=0"
    " Sockets=1 Boards=1 State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Partitions=chaosity "
    " CfgTRES=cpu=2,mem=21G,billing=2 ExtSensorsTemp=n/s"
    " Reason=bad fan, see ticket 7 [root@2026-11-21T07:44:20]\n"
)


def line(state: str, rest: str = "") -> str:
    return f"NodeName=n1 CPUTot=128 RealMemory=1 State={state} ThreadsPerCore=2 {rest}\n"


def test_a_drained_node_says_why():
    nodes = parse_slurm_nodes(RECORDED)
    assert list(nodes) == ["nodea", "nodeb"]
    assert nodes["nodea"].unusable_reason is None
    reason = "node nodeb is drained: reason bad fan, see ticket 7"
    assert nodes["nodeb"].unusable_reason == reason
    assert (nodes["nodeb"].processors, nodes["nodeb"].memory_mib) == (2, 21504)


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED+PLANNED", "IDLE+CLOUD+POWERED_DOWN"])
def test_a_job_can_start_or_wait_there(state):
    assert parse_slurm_nodes(line(state))["n1"].unusable_reason is None


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("DOWN*", "down and not responding"),
        ("IDLE*", "not responding"),
        ("ALLOCATED+DRAIN", "drained"),
        ("UNKNOWN*", "in an unknown state"),
        ("DOWN+NOT_RESPONDING", "down and not responding"),
        ("IDLE+MAINT+RESERVED", "under maintenance"),
    ],
)
def test_no_job_can_start_there(state, word):
    assert word in parse_slurm_nodes(line(state))["n1"].unusable_reason


def test_what_the_system_keeps_is_not_asked_for():
    text = "NodeName=n1 CPUEfctv=60 CPUTot=64 RealMemory=4096 State=IDLE MemSpecLimit=1024\n"
    node = parse_slurm_nodes(text)["n1"]
    assert (node.processors, node.memory_mib) == (60, 3072)
    # Slurm's default of 1 MiB means that nobody said how much there is.
    assert parse_slurm_nodes(line("IDLE"))["n1"].memory_mib == 0


def test_the_inventory_may_know_the_host_by_another_name():
    assert slurm_node_name("head", {}) == "head"
    assert slurm_node_name("head", {"chaosity_slurm_node": "n017"}) == "n017"


def test_a_describing_job_is_not_taken_for_one_that_measures():
    slurm = {"partition": None, "account": None, "wait_minutes": 1}
    command = srun_command_for_description(parse_slurm_nodes(RECORDED)["nodea"], slurm)
    [name] = [word for word in command if word.startswith("--job-name=")]
    assert not name.removeprefix("--job-name=").startswith(JOB_PREFIX)
