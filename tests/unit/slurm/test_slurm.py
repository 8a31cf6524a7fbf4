"""What Slurm's programs say of nodes and jobs, and the jobs that measurements become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.campaign.slurm_jobs import (
    JOB_PREFIX,
    ReplicateToMeasure,
    cut_measurements_into_batches,
    planned_seconds,
    time_limit_minutes,
)
from chaosity.errors import UserError
from chaosity.slurm import (
    check_finished_jobs_stay_visible,
    describe_queue_and_job_times,
    parse_slurm_jobs_of_run,
    parse_slurm_nodes,
    slurm_node_name,
    srun_command_for_host_description,
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
    command = srun_command_for_host_description(parse_slurm_nodes(RECORDED)["nodea"], slurm)
    [name] = [word for word in command if word.startswith("--job-name=")]
    assert not name.removeprefix("--job-name=").startswith(JOB_PREFIX)


# The jobs of a run as squeue prints them, and what the queue costs.


# Recorded from Slurm 22.05.8 with SLURM_TIME_FORMAT=%s.
QUEUE = """\
7|PENDING|nodeb|1100|N/A|N/A|ReqNodeNotAvail, UnavailableNodes:nodeb|chaosity_1|/home/a
6|CANCELLED|nodea|1000|1010|1044|None|chaosity_1|/home/a
5|COMPLETED|nodea|1044|1050|1150|None|chaosity_1|/home/a
4|COMPLETED|nodea|900|910|920|None|chaosity_0|/home/a
3|RUNNING|nodea|1000|1010|4610|None|another|/home/a
2|RUNNING|nodea|1000|1010|4610|None|chaosity_2|/home/b
"""


def jobs(*nodes):
    return parse_slurm_jobs_of_run(
        QUEUE, nodes or ("nodea", "nodeb"), "chaosity_", "/home/a", since=950
    )


def test_only_the_runs_own_jobs_are_seen():
    found = jobs()
    assert sorted(found) == ["5", "6", "7"]
    assert (found["7"].started, found["7"].ended, found["7"].state) == (None, None, "PENDING")
    assert (found["6"].state, found["6"].ended) == ("CANCELLED", 1044.0)


def test_jobs_of_another_hosts_run_in_the_same_folder_do_not_count():
    assert sorted(jobs("nodea")) == ["5", "6"]
    assert sorted(jobs("nodeb")) == ["7"]


def test_the_cost_is_split_into_waiting_and_starting():
    # On nodea 150 s from the first submission to the last end; jobs ran for 34 and 100 s.
    sentence = describe_queue_and_job_times(jobs().values(), {"nodea": (20, 114.0)})
    assert "20 measurements in 2 Slurm jobs on 1 node: 150 s" in sentence
    assert "114 s of it measuring" in sentence
    assert "0.80 s of waiting in the queue and 1.00 s of start and end of the jobs" in sentence


def test_without_a_job_there_is_no_cost():
    assert describe_queue_and_job_times([], {"nodea": (0, 0.0)}) is None


def settings(age, storage):
    return f"MinJobAge               = {age} sec\nAccountingStorageType   = {storage}\n"


def test_a_slurm_that_forgets_is_refused_unless_it_keeps_accounts():
    check_finished_jobs_stay_visible(settings(300, "accounting_storage/none"))
    check_finished_jobs_stay_visible(settings(2, "accounting_storage/slurmdbd"))
    with pytest.raises(UserError, match="MinJobAge"):
        check_finished_jobs_stay_visible(settings(2, "accounting_storage/none"))


def test_odd_numbers_in_answers_of_slurm_are_unknown():
    for number in ("\N{SUPERSCRIPT TWO}", "9" * 5000):
        line = f"1|COMPLETED|n1|{number}|{number}|{number}|None|chaosity-1|/work"
        parse_slurm_jobs_of_run(line, {"n1"}, "chaosity-", "/work", 0.0)
        check_finished_jobs_stay_visible(f"MinJobAge = {number} sec")
        [node] = parse_slurm_nodes(f"NodeName=n1 CPUTot={number} State=IDLE").values()
        assert node.processors == 0


# Measurements of a host become jobs of a sensible length, in their random order.


def measurements(seconds):
    return [ReplicateToMeasure((str(i),), i, s) for i, s in enumerate(seconds)]


@given(st.lists(st.floats(0.1, 500), max_size=60), st.floats(0.5, 30))
def test_each_goes_once_in_order(seconds, minutes):
    wanted = measurements(seconds)
    found = cut_measurements_into_batches(reversed(wanted), minutes)
    assert [one for batch in found for one in batch] == wanted
    # All but the last are long enough; without its last measurement, none but the last would have
    # been.
    for batch in found[:-1]:
        assert planned_seconds(batch) >= 60 * minutes
        assert planned_seconds(batch) - batch[-1].seconds < 60 * minutes


def test_crumbs_join_the_job_before():
    found = cut_measurements_into_batches(measurements([60.0, 60.0, 1.0]), minutes=1)
    assert [len(batch) for batch in found] == [1, 2]


def test_the_time_limit_grows_with_each_try():
    seconds = planned_seconds(measurements([30.0] * 20))
    assert time_limit_minutes(seconds, factor=2, slack=5) == 25
    assert time_limit_minutes(seconds, factor=2, slack=5, attempt=2) == 50
