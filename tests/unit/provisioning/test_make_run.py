"""`make run` provisions the hosts that it measures."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest


def make_run(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    """What `make run` would do."""
    return subprocess.run(
        ["make", "--dry-run", "run", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "provisioned", "measured"),
    [
        ([], "inventories/localhost", "--config budget=auto"),
        (["INVENTORY=mine"], "mine", "--config inventory=mine budget=auto"),
        (["INVENTORY=mine", "BUDGET=2h"], "mine", "--config inventory=mine budget=2h"),
        (
            ["INVENTORY=mine", "SNAKEMAKE_ARGUMENTS=--configfile short.yaml"],
            "mine",
            "--configfile short.yaml --config inventory=mine",
        ),
        (
            ["SNAKEMAKE_ARGUMENTS=--config replicates=2 inventory=mine"],
            "mine",
            "--config replicates=2 inventory=mine",
        ),
    ],
)
def test_the_hosts_that_are_measured_are_provisioned(root, arguments, provisioned, measured):
    done = make_run(root, *arguments)
    # A source of provisioning that was renamed would be named here.
    assert (done.returncode, done.stderr) == (0, "")
    reported = re.findall(r"^\.venv/bin/snakemake *(.*?) *$", done.stdout, re.MULTILINE)
    assert [" ".join(words.split()) for words in reported] == [measured]
    played = re.findall(r"ansible-playbook (.*) -e", done.stdout)
    assert played in ([f"-i {provisioned} provision.yml --tags tools"], [])
    # Only this machine can be provisioned already.
    assert played or provisioned == "inventories/localhost"


def test_two_configs_are_refused_with_what_to_write_instead(root):
    done = make_run(root, "INVENTORY=mine", "SNAKEMAKE_ARGUMENTS=--config replicates=2")
    assert done.returncode != 0
    assert "add inventory=mine to that of SNAKEMAKE_ARGUMENTS" in done.stderr
