"""The options that the workflow reads from Snakemake's command line."""

from __future__ import annotations

import pytest

from chaosity.campaign.campaign import CommandLine
from chaosity.errors import UserError

# Words, whether nothing is written, whether measurements are repeated.
CASES = {
    "": (False, False),
    "--dry-run": (True, False),
    "-np": (True, False),
    "-Fn": (True, True),
    "--report x.zip": (True, False),
    "--report=x.zip": (True, False),
    "--cores 4 --forceall": (False, True),
    "--forcerun tidy": (False, False),
    "-R measure": (False, True),
}


@pytest.mark.parametrize("text", CASES)
def test_options_that_matter_while_the_rules_are_read(text: str):
    given = CommandLine(text.split())
    assert (given.writes_nothing, given.repeats_measurements) == CASES[text]
    assert not given.is_of_snakemake_job and not given.only_reads_rules


def test_lists_of_rules_and_jobs_elsewhere_discover_nothing():
    assert CommandLine(["--list-rules"]).only_reads_rules
    assert CommandLine(["--lint"]).only_reads_rules
    assert CommandLine(["--mode", "remote"]).is_of_snakemake_job


@pytest.mark.parametrize("option", ["--until", "-U", "--touch", "--batch"])
def test_options_that_need_all_jobs_are_refused_by_name(option: str):
    with pytest.raises(UserError, match=rf"{option}: .* but budget adds jobs later"):
        CommandLine(["-n", option, "x"]).refuse_options_that_need_all_jobs("budget")
