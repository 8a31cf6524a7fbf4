"""Test figures that show several firmware modes of the simulated server of document 001."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.figure_files import FigureFile
from chaosity.records.record_format import Point
from chaosity.report.configurations import (
    crossover_text,
    draw_figures_by_configuration,
)
from chaosity.statistics.curves import CurveComparison
from chaosity.store.measurements import Measurements
from machines import planned

EXPERIMENTS = ["modes_under_load", "program_speed", "latency_by_size", "l3_domain_bandwidth"]
TRAFFIC = "traffic_bytes_per_second"


def is_drawn(point: Point) -> bool:
    """Return whether a point is in a figure of all modes; of traffic, only such that only reads."""
    if point["experiment"] == "latency_by_size":
        return point["factors"]["mode"] == "serial" and "pages-thp" in point["point"]
    return point["experiment"] != "modes_under_load" or (
        point["factors"]["traffic_of"] == "idle" or "+read100+" in point["point"]
    )


@cache
def tables() -> dict[str, Measurements]:
    """The tables of the server in two modes."""
    found = {}
    for mode in ("nps1", "nps0"):
        host = planned(
            "epyc_9575f",
            f"epyc_9575f_{mode}",
            name="turin",
            all_points=True,
            experiments=EXPERIMENTS,
            replicates=3,
        )
        found[mode] = host.where(is_drawn).table(1)
    return found


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, FigureFile], Path]:
    folder, documents = tmp_path_factory.mktemp("figures"), map(load_experiment, EXPERIMENTS)
    figures = draw_figures_by_configuration(list(documents), tables(), folder)
    return {figure.name.removeprefix("configurations_"): figure for figure in figures}, folder


def test_the_crossover_of_one_node_is_in_words(drawn: tuple[dict[str, FigureFile], Path]) -> None:
    one_node = drawn[0]["modes_under_load_one_node"].sentence
    assert "With traffic read100, from 399 GB/s" in one_node
    assert "n = 3) on, nps0 has a lower latency than nps1." in one_node
    machine = drawn[0]["modes_under_load_machine"].sentence
    assert "no crossover is found within the measured range, up to" in machine
    assert "nps1 has a lower latency than nps0 wherever a difference is detected" in machine


def test_only_programs_with_data_in_memory_depend_on_the_mode(
    drawn: tuple[dict[str, FigureFile], Path],
) -> None:
    assert "spmv 1.00 times" in drawn[0]["program_speed_in_caches"].sentence
    in_memory = drawn[0]["program_speed_in_memory"].sentence
    assert "nps0 as a ratio to nps1: matmul 0.95 times" in in_memory
    assert "spmv 0.71 times" in in_memory  # waits for memory for a larger share of its time


def test_a_line_for_each_mode_says_how_its_ends_differ(
    drawn: tuple[dict[str, FigureFile], Path],
) -> None:
    sentence = drawn[0]["latency_levels"].sentence
    assert "nps0 as a ratio to nps1: 16 KiB 1.00 times" in sentence
    assert ", 512 MiB 1.7" in sentence and sentence.count(" times ") == 2


def test_what_is_not_known_is_said() -> None:
    names = ("nps1", "nps2")
    none = CurveComparison(4e11, (3, 3))
    expected = "no difference between nps1 and nps2 is detected within the measured range, up to"
    assert crossover_text(none, names, TRAFFIC) == f"{expected} 400 GB/s (n = 3)"
    gap = CurveComparison(4e11, (3, 2), reason="the points are far apart")
    expected = "nps1 and nps2 cannot be compared, since the points are far apart"
    assert crossover_text(gap, names, TRAFFIC) == expected
