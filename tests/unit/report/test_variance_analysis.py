"""The analysis of variance in the report."""

from __future__ import annotations

import numpy as np
import pytest
from report_inputs import run_of

from chaosity.report.variance_analysis import analysis_sections
from chaosity.store.measurements import Measurements
from machines import measured_host
from table_rows import LATENCY, rows
from table_rows import table as tidy_table


def analyses(tidy, experiment):
    return [*analysis_sections(run_of(tidy, experiments=()), experiment)]


def test_a_matrix_is_explained_by_initiator_target_and_replicate():
    machine = measured_host("two_packages", "latency_matrix")
    table = Measurements.from_table(machine.tidy()).where(metric=LATENCY)
    [matrix] = analyses(table.rows, "latency_matrix")
    assert [(term.name, term.degrees_of_freedom) for term in matrix["terms"]] == [
        *(("initiator", 3), ("target", 3), ("initiator × target", 9)),  # noqa: RUF001
        *(("replicate", 2), ("error", 30)),
    ]
    assert sum(term.variation_percent for term in matrix["terms"]) == pytest.approx(100.0)
    assert "48 values" in matrix["remarks"]
    assert analyses(table.rows, "storage_bandwidth") == []


def test_values_without_logarithms_are_compared_by_differences():
    near = {True: 90.0, False: 144.0}
    tidy = tidy_table(rows(lambda i, j: near[i == j], range(4), range(4), LATENCY, 8, spread=0.0))
    noise = np.random.default_rng(4).normal(0.0, 1.0, len(tidy))
    [matrix] = analyses(tidy.assign(value=tidy["value"] + noise), "latency_matrix")
    assert "above local latency (95 % interval of the difference: +" in matrix["remote"]
    # The machine was made with a difference of 54 ns.
    assert abs(float(matrix["remote"].split("Remote latency is ")[1].split(" ns")[0]) - 54.0) < 1.0
    level = matrix["levels"][0]["rows"][0]
    assert (level.level, level.n) == ("pu0", 32)
    equal = tidy.assign(value=100.0 + noise)
    [same] = analyses(equal, "latency_matrix")
    assert same["sentence"].startswith("No difference is detected at n = 128.")
    start = "No difference between remote latency and local latency is detected: "
    assert same["remote"].startswith(f"{start}ratio of the means 0.99")


def test_a_single_replicate_without_error_term_has_no_test():
    machine = measured_host("one_node", "memory_bandwidth", replicates=1)
    found = analyses(machine.tidy(), "memory_bandwidth")
    kernels = next(one for one in found if "kernel" in one["title"])
    assert "Effects cannot be separated from noise" in kernels["sentence"]
    assert {term.p_value for term in kernels["terms"]} == {None}
