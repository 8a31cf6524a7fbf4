"""Configurations of a host, compared in words and figures."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from report_inputs import measured_results, texts, write_report

from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.figure_files import FigureEntry
from chaosity.records.record_format import Point
from chaosity.report.configurations import (
    crossover_text,
    draw_figures_by_configuration,
    ratio_and_verdict_texts,
)
from chaosity.statistics.curves import CurveComparison
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, write_parquet_table
from machines import measured_host, planned, simulated

NAMES = ("memory_bandwidth", "storage_bandwidth")


@cache
def mode(name, seed):
    """The table of a server in a firmware mode, without sets of drives and with one kernel."""
    tidy = measured_host("two_packages", *NAMES, configuration=name, seed=seed).tidy()
    return tidy[(tidy["drives"].fillna(1) == 1) & tidy["kernel"].isin(["triad", None])]


def page_beside(folder, own, *others):
    """The report of a server in one mode, beside its tables in other modes."""
    place = measured_results(simulated("two_packages", NAMES), folder, lambda _: own)
    options = []
    for number, tidy in enumerate(others):
        write_parquet_table(tidy, folder / f"{number}/measurements.parquet")
        options += ["--beside", folder / f"{number}/measurements.parquet"]
    return write_report(place, *options)


def cells(page, name):
    """What the table says of a resource in each mode."""
    return texts(page, f"//table[contains(@class, 'beside')]//tr[starts-with(th, '{name}')]/td")


def older(tidy):
    """A table of an earlier version, which lacks columns."""
    tidy = tidy.drop(columns=["relation", "levels", "factors", "measured_at"])
    return tidy.reindex(columns=list(COLUMN_TYPES)).astype(COLUMN_TYPES)


def test_a_package_that_is_one_node_is_found_by_its_threads(tmp_path):
    """Its cores are named after the node. A table of an earlier version is no obstacle."""
    own, other = mode("nps4", 1).copy(), mode("nps1", 2)
    own.loc[own["initiator_kind"] == "package", ["threads", "relation"]] = [12, "same_nodes"]
    one_node = other[other["initiator_kind"] != "package"].assign(threads=12)
    page = page_beside(tmp_path, own, older(other.assign(configuration="older")), one_node)
    _, _, found = cells(page, "Memory bandwidth, one package")
    assert re.search(r"GB/s node \d to", found)


def test_verdicts_are_adjusted_for_all_ratios_of_a_configuration(tmp_path):
    """Among many ratios, a difference of 4 % has no verdict, and a difference of 50 % has."""
    other = mode("nps1", 2).copy()
    drive = (other["target_kind"] == "drive") & (other["load"] == "storage")
    other.loc[drive, "value"] *= 0.96
    other.loc[other["initiator_kind"] == "pu", "value"] *= 0.5
    page = page_beside(tmp_path, mode("nps4", 1), other)
    _, little = cells(page, "Storage bandwidth, one drive")
    assert re.search(r"0\.9[67] times", little) and "worse" not in little
    _, halved = cells(page, "Memory bandwidth, one processing unit")
    assert halved.count(", worse") == 2


def test_configurations_without_common_cells_are_reported(tmp_path):
    own, other = mode("nps4", 1), mode("nps1", 2)
    page = page_beside(tmp_path, own[own["load"] == "memory"], other[other["load"] == "storage"])
    assert "nps1 against nps4: no comparable cell" in page
    assert 'class="ratio' not in page


def test_different_numbers_of_replicates_are_both_shown():
    one = {"ratio": 1.0, "low": 0.9, "high": 1.1, "n_left": 2, "n_right": 3}
    found = ratio_and_verdict_texts({**one, "verdict": "no difference detected"})
    assert found["words"] == "no difference detected at n = 2 and 3: 1.00 times (0.90 to 1.10)"


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
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, FigureEntry], Path]:
    folder, documents = tmp_path_factory.mktemp("figures"), map(load_experiment, EXPERIMENTS)
    figures = draw_figures_by_configuration(list(documents), tables(), folder)
    return {figure.name.removeprefix("configurations_"): figure for figure in figures}, folder


def test_the_crossover_of_one_node_is_in_words(drawn: tuple[dict[str, FigureEntry], Path]) -> None:
    one_node = drawn[0]["modes_under_load_one_node"].sentence
    assert "With traffic read100, from 399 GB/s" in one_node
    assert "n = 3) on, nps0 has a lower latency than nps1." in one_node
    machine = drawn[0]["modes_under_load_machine"].sentence
    assert "no crossover is found within the measured range, up to" in machine
    assert "nps1 has a lower latency than nps0 wherever a difference is detected" in machine


def test_only_programs_with_data_in_memory_depend_on_the_mode(
    drawn: tuple[dict[str, FigureEntry], Path],
) -> None:
    assert "spmv 1.00 times" in drawn[0]["program_speed_in_caches"].sentence
    in_memory = drawn[0]["program_speed_in_memory"].sentence
    assert "nps0 as a ratio to nps1: matmul 0.95 times" in in_memory
    assert "spmv 0.71 times" in in_memory  # waits for memory for a larger share of its time


def test_a_line_for_each_mode_says_how_its_ends_differ(
    drawn: tuple[dict[str, FigureEntry], Path],
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
