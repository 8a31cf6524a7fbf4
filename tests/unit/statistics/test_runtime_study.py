"""The study of document 004: two runtimes, four programs, six replicates, and its conclusion."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from chaosity.benchmarks.benchmark_templates import load_benchmark_of_each_category
from chaosity.documents.check_config import read_config
from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.variance_analysis_section import analysis_sections
from chaosity.statistics.find_anova_studies import find_anova_studies
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS

REPLICATES = 6
# How much faster than on one core, by program; the runtime's part is small beside these.
SPEEDUP = {"stencil": 6.0, "matmul": 27.0, "mergesort": 14.0, "spmv": 10.0}
# The share of accesses that are local on four nodes.
LOCAL = {"vanilla": 0.25, "locality": 0.97}
ALL, ONE = ("machine", "machine", "nodes0-3", 32), ("pu0", "pu", "node0", 1)


def experiment() -> dict:
    return load_experiment("numa_runtime")


def row(design: str, program: str, runtime: str, replicate: int, metric: str, value: float) -> dict:
    """A row of the tidy table, as the experiment's file makes them."""
    name, kind, target, threads = ALL if design == "all_cores" else ONE
    return {
        "host": "h",
        "configuration": "nps1",
        "experiment": "numa_runtime",
        "point": f"task={name}+{target}+{program}+runtime-{runtime}",
        "replicate": replicate,
        "status": "valid",
        "load": "task",
        "benchmark": "chaosity_tasks",
        "category": "task_program",
        "kernel": program,
        "initiator": name,
        "initiator_kind": kind,
        "threads": threads,
        "target": target,
        "target_kind": "nodes" if threads > 1 else "node",
        "relation": "same_nodes" if threads > 1 else "same_node",
        "metric": metric,
        "value": value,
        "factors": json.dumps({"cores": design, "runtime": runtime}),
        "levels": json.dumps({"runtime": runtime}),
    }


def measured(gain: float, noise: float = 0.02) -> pd.DataFrame:
    """The table of a machine on which `locality` is faster by so much, if it has many cores."""
    random = np.random.default_rng(4)
    rows = []
    for program, speedup in SPEEDUP.items():
        for runtime, local in LOCAL.items():
            for k in range(1, REPLICATES + 1):
                one = 3.0 * random.lognormal(0.0, noise)
                faster = (1.0 + gain) if runtime == "locality" else 1.0
                rate = 3.0 * speedup * faster * random.lognormal(0.0, noise)
                share = local * random.lognormal(0.0, 0.01)
                for design, metric, value in [
                    ("all_cores", "runs_per_second", rate),
                    ("all_cores", "speedup", rate / one),
                    ("all_cores", "locality", share),
                    ("one_core", "runs_per_second", one),
                    ("one_core", "locality", 1.0),
                ]:
                    rows.append(row(design, program, runtime, k, metric, value))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def study_of(tidy: pd.DataFrame, metric: str, kind: str = "machine"):
    """The one study of a metric on all cores, or on one."""
    found = [
        one for one in find_anova_studies(Measurements.from_table(tidy)) if one.metric == metric
    ]
    [study] = [one for one in found if one.where.get("initiator_kind", kind) == kind]
    return study


def test_the_file_asks_for_the_crossing_of_the_document():
    """Two runtimes by four programs, on all cores and on one; the programs are the benchmark's."""
    designs = experiment()["designs"]
    loads = {name: design["loads"]["task"] for name, design in designs.items()}
    benchmark = load_benchmark_of_each_category(read_config())[loads["all_cores"]["category"]]
    assert set(loads) == {"all_cores", "one_core"}
    for load in loads.values():
        assert load["kernel"] == list(benchmark.kernels) == list(SPEEDUP)
        assert load["vary"] == {"runtime": list(LOCAL)}


@pytest.mark.parametrize("metric", ["speedup", "locality", "runs_per_second"])
def test_runtime_and_program_are_the_factors(metric: str):
    study = study_of(measured(0.04), metric)
    assert set(study.factors) == {"runtime", "kernel"}
    assert (len(study.frame), study.block) == (2 * 4 * REPLICATES, "replicate")
    terms = {term.name: term for term in study.analyse_variance_of_table().terms}
    assert {"runtime", "kernel"} < set(terms)
    assert any("runtime" in name and "kernel" in name and " x " in name for name in terms)


def test_a_single_core_count_is_not_a_factor():
    tidy = measured(0.04)
    one = study_of(tidy, "runs_per_second", "pu")
    assert set(one.factors) == {"runtime", "kernel"}
    assert one.frame["value"].max() < 4.0 < study_of(tidy, "runs_per_second").frame["value"].min()
    assert not [
        one for one in find_anova_studies(Measurements.from_table(tidy)) if "cores" in one.factors
    ]


def term_of(tidy: pd.DataFrame, metric: str):
    """What is said of the runtime's effect on a metric."""
    [term] = [
        one
        for one in study_of(tidy, metric).analyse_variance_of_table().terms
        if one.name == "runtime"
    ]
    return term


def test_a_small_gain_is_significant_but_not_important_as_in_the_document():
    term = term_of(measured(0.04), "speedup")
    assert (term.significant, term.important) == (True, False)
    assert term.variation_percent < 10.0
    share = f"{term.variation_percent:.1f} % of the variation"
    assert term.sentence == f"runtime: significant (p < 0.001) but unimportant, {share}."


def test_no_gain_is_no_difference_detected():
    term = term_of(measured(0.0), "speedup")
    assert term.significant is False


def test_a_runtime_that_changes_everything_is_important():
    term = term_of(measured(0.04), "locality")
    assert (term.significant, term.important) == (True, True)
    assert term.variation_percent > 90.0


def test_the_gain_is_the_contrast_of_the_two_runtimes():
    study = study_of(measured(0.2), "speedup")
    analysis = study.analyse_variance_of_table("log")
    groups = study.frame["runtime"].tolist()
    difference = analysis.contrast_two_groups(groups, ("locality", "vanilla"), "runtime").difference
    assert difference.ratio_low < 1.2 < difference.ratio_high
    assert difference.ratio == pytest.approx(1.2, rel=0.03)


def test_the_report_has_the_table_and_the_conclusion():
    sections = analysis_sections(Measurements.from_table(measured(0.04)))["numa_runtime"]
    [speedup] = [one for one in sections if one.title.startswith("Speedup")]
    assert {"runtime", "kernel"} <= {row.name for row in speedup.terms}
    [runtime] = [row for row in speedup.terms if row.name == "runtime"]
    assert (runtime.significant, runtime.important) == (True, False)
    assert runtime.sentence.startswith("runtime: significant")
    assert "unimportant" in runtime.sentence
    assert speedup.svg is not None  # the residuals
