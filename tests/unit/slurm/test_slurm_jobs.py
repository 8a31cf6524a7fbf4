"""The jobs of a run as squeue prints them, and what the queue costs."""

from __future__ import annotations

import pytest

from chaosity.errors import UserError
from chaosity.slurm import (
    check_finished_jobs_stay_visible,
    describe_queue_and_job_times,
    parse_slurm_jobs_of_run,
    parse_slurm_nodes,
)

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
