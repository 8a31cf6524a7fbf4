"""Commands find the results of a host below the folder that was named, or list them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broken_runs import chaosity
from table_rows import whole_map

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"
# Commands of a folder results/HOST/CONFIGURATION, with what else they need.
COMMANDS = [
    "check RESULTS",
    "history RESULTS",
    "explain RESULTS triad",
    "fit RESULTS",
    "predict RESULTS",
    "show RESULTS",
    "export hwloc RESULTS",
    "export all RESULTS --output out",
    "profile normal RESULTS",
    "anomalies RESULTS",
    "weights RESULTS --workers 0",
    "place --policy canonical --workers 0 --matrix RESULTS -- true",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_results_of_several_configurations_are_listed(command: str, tmp_path: Path):
    for name in ("nps1", "nps4"):
        (tmp_path / f"results/h/{name}/points").mkdir(parents=True)
    given = "results" if command.startswith("show") else "results/h"
    done = chaosity(*command.replace("RESULTS", given).split(), folder=tmp_path)
    assert done.returncode == (3 if command.startswith("check") else 2)
    assert f"{given}: the folder has the results of 2 configurations" in done.stdout
    assert "name one of them: results/h/nps1 or results/h/nps4." in done.stdout


def test_the_only_configuration_is_taken(tmp_path: Path):
    folder = whole_map(EPYC, tmp_path / "results/h/nps4")
    said = [chaosity("show", given) for given in (folder, folder.parent, tmp_path / "results")]
    assert {done.returncode for done in said} == {0}
    assert len({done.stdout for done in said}) == 1
    # A folder without another choice is as good as the table in it.
    said = [
        chaosity("weights", given, "--workers", "0")
        for given in (folder / "measurements.parquet", folder.parent)
    ]
    assert {done.returncode for done in said} == {0}
    assert said[0].stdout == said[1].stdout


def test_a_list_of_many_results_ends(tmp_path: Path):
    for number in range(40):
        (tmp_path / f"h{number:02}/nps4/points").mkdir(parents=True)
    said = chaosity("show", tmp_path).stdout
    assert "h11/nps4 and 28 more." in said and "h12" not in said
