"""What was varied is found in the tidy table itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import synthetic
import synthetic_latency as latency
from scipy import stats

from chaosity.statistics.anova import analyse_variance
from chaosity.statistics.find_anova_studies import find_anova_studies
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS


def machine(**keys):
    return synthetic.Machine("h", ((0, 1), (2, 3)), {0: 2, 1: 2, 2: 1, 3: 2}, 4, 3, **keys)


@pytest.fixture(scope="module")
def found():
    return find_anova_studies(Measurements.from_table(latency.tidy(machine(), more=True)))


def of(found, experiment, load="memory"):
    return [one for one in found if (one.experiment, one.load) == (experiment, load)]


def test_kinds_of_initiators_are_analysed_apart(found):
    memory = of(found, "memory_bandwidth")
    kinds = [one.where["initiator_kind"] for one in memory]
    assert sorted(kinds) == ["l3", "node", "node", "package", "pu"]
    assert all(len(one.frame) == one.frame["value"].count() for one in memory)


def test_two_designs_of_one_experiment_are_cut_apart(found):
    nodes = [one for one in of(found, "memory_bandwidth") if one.where["initiator_kind"] == "node"]
    cuts = {tuple(one.where.values()): (one.factors, len(one.frame)) for one in nodes}
    assert cuts == {
        ("node", "triad"): (("initiator", "target"), 48),
        ("node", "same_node"): (("initiator", "kernel"), 108),
    }
    [kernels] = [one for one in nodes if "relation" in one.where]
    assert kernels.left_out == ("target",)


def test_a_column_that_follows_from_others_is_not_a_factor(found):
    [memory] = of(found, "interference")
    assert set(memory.factors) == {"drives", "placement", "storage_node"}
    assert set(memory.left_out) == {"initiator", "target"}
    [sizes] = of(found, "latency_by_size", "chase")
    assert set(sizes.factors) == {"bytes", "mode", "initiator"}


def test_corunning_loads_are_factors_where_nothing_else_separates_points(found):
    chases = {one.where["loads"]: one for one in of(found, "loaded_latency", "chase")}
    assert chases["alone"].factors == ("initiator",)
    assert set(chases["co-running"].factors) == {"initiator", "load.kernel", "load.share"}
    [traffic] = of(found, "loaded_latency", "load")
    assert set(traffic.factors) == {"initiator", "share", "kernel"}


def test_the_other_side_of_a_core_pair_is_a_factor_without_a_diagonal(found):
    [pairs] = of(found, "core_to_core", "line")
    assert set(pairs.factors) == {"responder", "initiator"}
    assert any("8 of 64 combinations" in note for note in pairs.analyse_variance_of_table().notes)


def test_local_against_remote_finds_the_ratio_of_the_synthetic_machine(found):
    [nodes] = [
        one
        for one in of(found, "memory_bandwidth")
        if one.where.get("kernel") == "triad" and one.where["initiator_kind"] == "node"
    ]
    analysis = nodes.analyse_variance_of_table("log")
    contrast = nodes.local_against_remote(analysis)
    true = float(np.exp(np.mean(np.log([0.97, 0.67, 0.67]))))  # of a node's three others
    assert (contrast.level, contrast.against) == ("remote", "local")
    assert contrast.difference.ratio == pytest.approx(true, rel=0.02)
    assert contrast.difference.ratio_low < true < contrast.difference.ratio_high
    assert nodes.percent_of_relation(analysis) > 95.0


def test_local_against_remote_by_hand():
    rows = matrix(
        {(0, 0): [10.0, 12.0], (0, 1): [5.0, 7.0], (1, 0): [6.0, 8.0], (1, 1): [20.0, 22.0]}
    )
    [study] = find_anova_studies(Measurements.from_table(rows))
    analysis = study.analyse_variance_of_table("none")
    contrast = study.local_against_remote(analysis).difference
    assert contrast.value == pytest.approx(6.5 - 16.0)
    # The replicates differ by 2 in every cell, which the block takes: nothing is left.
    assert contrast.low is None
    rows["value"] += [0.0, 0.5, 0.0, 0.2, 0.0, 0.1, 0.0, -0.3]
    [study] = find_anova_studies(Measurements.from_table(rows))
    analysis = study.analyse_variance_of_table("none")
    contrast = study.local_against_remote(analysis).difference
    error = next(term for term in analysis.terms if term.kind == "error")
    assert error.degrees_of_freedom == 3
    # Each pair of cells brings its own noise: half of the degrees of freedom each, Welch's sum.
    left = pd.Series(analysis.residuals**2).groupby(study.frame["relation"].to_numpy()).sum()
    far, near = left["other_package"] / 1.5 / 4.0, left["same_node"] / 1.5 / 4.0
    freedom = (far + near) ** 2 / (far**2 / 1.5 + near**2 / 1.5)
    half = stats.t.ppf(0.975, freedom) * (far + near) ** 0.5
    assert (contrast.low, contrast.high) == pytest.approx(
        (contrast.value - half, contrast.value + half), rel=1e-6
    )


def test_a_failed_replicate_does_not_shift_the_contrast():
    # The second block is 100 faster; one remote value of it is missing.
    values = {
        (i, j): [50.0 if i == j else 30.0, 150.0 if i == j else 130.0]
        for i in range(3)
        for j in range(3)
    }
    noise = np.random.default_rng(1).normal(0.0, 0.01, 18)
    rows = matrix(values)
    rows["value"] += noise
    rows.loc[3, ["status", "value"]] = ["failed", None]
    [study] = find_anova_studies(Measurements.from_table(rows))
    contrast = study.local_against_remote(study.analyse_variance_of_table("none")).difference
    assert contrast.value == pytest.approx(-20.0, abs=0.05)
    assert contrast.low < -20.0 < contrast.high


def test_the_interval_of_local_against_remote_holds_the_truth_in_95_percent():
    # Local cells are 2.5 times as fast and, since noise multiplies, have 2.5 times the noise.
    random = np.random.default_rng(11)
    plan = matrix({(i, j): [100.0 if i == j else 40.0] * 3 for i in range(4) for j in range(4)})
    [study] = find_anova_studies(
        Measurements.from_table(
            plan.assign(value=plan["value"] + random.normal(0.0, 1.0, len(plan)))
        )
    )
    groups = np.where(study.frame["relation"] == "same_node", "local", "remote").tolist()
    true = 40.0 - 100.0
    held = []
    for _ in range(500):
        noise = np.exp(random.normal(0.0, 0.03, len(plan)))
        frame = study.frame.assign(value=plan["value"].to_numpy(float) * noise)
        found = analyse_variance(frame, "value", study.factors, study.block, "none")
        interval = found.contrast_two_groups(groups, ("remote", "local"), "relation").difference
        held.append(interval.low <= true <= interval.high)
    assert 0.93 <= np.mean(held) <= 0.97  # with one noise for all cells it was 0.82


def matrix(values):
    """A tidy table of (initiator, target) -> replicates."""
    rows = [
        {
            "host": "h",
            "configuration": "c",
            "experiment": "e",
            "point": f"p{i}{j}",
            "replicate": k,
            "status": "valid",
            "load": "memory",
            "benchmark": "b",
            "initiator": f"node{i}",
            "initiator_kind": "node",
            "target": f"node{j}",
            "target_kind": "node",
            "relation": "same_node" if i == j else "other_package",
            "metric": "bandwidth_bytes_per_second",
            "value": value,
            "factors": "{}",
            "levels": "{}",
        }
        for (i, j), column in values.items()
        for k, value in enumerate(column, start=1)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def test_points_that_differ_in_nothing_known_are_not_replicates():
    rows = matrix({(0, 0): [1.0, 2.0], (0, 1): [3.0, 4.0]})
    twin = rows.assign(point="another " + rows["point"])
    assert (
        find_anova_studies(Measurements.from_table(pd.concat([rows, twin], ignore_index=True)))
        == []
    )


def test_failed_and_missing_values_are_skipped():
    rows = matrix({(0, 0): [1.0, 2.0], (0, 1): [3.0, 4.0]})
    assert len(find_anova_studies(Measurements.from_table(rows))) == 1
    assert find_anova_studies(Measurements.from_table(rows.assign(status="failed"))) == []
    assert find_anova_studies(Measurements.from_table(rows.iloc[:0])) == []


def test_a_single_cell_has_no_factor():
    assert find_anova_studies(Measurements.from_table(matrix({(0, 0): [1.0, 2.0]}))) == []


def test_every_study_of_a_large_machine_can_be_analysed():
    for study in find_anova_studies(Measurements.from_table(latency.tidy(latency.epyc()))):
        analysis = study.analyse_variance_of_table()
        assert analysis.terms[-1].name == "total"
        assert analysis.block == "replicate"
