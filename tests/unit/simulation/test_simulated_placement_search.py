"""The search for a placement on the simulated Opteron of document 002, and its figures."""

from __future__ import annotations

import json
import re

import pytest

from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.figure_files import draw_figures
from chaosity.simulation.machine_model import true_values
from machines import SimulatedHost, planned


@pytest.fixture(scope="module")
def host() -> SimulatedHost:
    levels = {"page_placement": {"kernel": 1}}
    config = {"experiments": ["page_placement"], "levels": levels}
    host = planned("opteron_6272", faults=None, all_points=True, **config)
    return host.where(lambda point: len(point["loads"]) == 1)


def test_a_searched_placement_is_the_best_step_between_all_nodes_and_the_workers(host):
    values = {
        (point["factors"]["workers"], point["factors"]["policy"]): true_values(point, host.model)[
            "work"
        ]
        for point in host.points
    }
    for (workers, policy), own in values.items():
        assert ("dwp" in own) == (policy == "bwap_uniform")
        if policy == "bwap_uniform":
            others = (values[workers, name] for name in ("uniform_all", "uniform_workers"))
            speed = own["elements_per_second"]
            assert all(speed >= other["elements_per_second"] * 0.999 for other in others)
    # One worker leaves most pages on other nodes, as in document 002; if all nodes are workers, no
    # other node is left.
    assert 0.0 < values["node0", "bwap_uniform"]["dwp"] < 0.5
    assert values["nodes0-7", "bwap_uniform"]["dwp"] == 0.0


def test_the_best_number_of_workers_is_marked_and_the_proximity_is_drawn(host, tmp_path):
    experiment = load_experiment("page_placement")
    names = ("placed_triad_by_worker_count", "placed_proximity_uniform", "placed_proximity")
    figures = [each for each in experiment["figures"] if each["name"] in names]
    files = draw_figures(
        [{**experiment, "figures": figures}], host.table(1), host.topology, tmp_path
    )
    drawn = {file.name: file for file in files}
    speed = drawn["placed_triad_by_worker_count"]
    assert speed.problem is None and speed.marks == 40
    # Five workers and more fill the controllers of all nodes.
    assert re.match("Best: worker nodes [5-8], ", speed.sentence)
    assert "not clearly worse" in speed.sentence and "n = 3" in speed.sentence
    rows = json.loads((tmp_path / speed.svg).with_suffix(".vl.json").read_text())["data"]["values"]
    assert [row["role"] for row in rows].count("best") == 1
    assert drawn["placed_proximity_uniform"].marks > 8
    assert drawn["placed_proximity"].marks == 0  # no weights were measured
