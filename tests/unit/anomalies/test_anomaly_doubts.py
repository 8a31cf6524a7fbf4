"""Which anomalies of a host are findings, and which are only suspicions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from chaosity.anomalies.anomaly_results import (
    Findings,
    adjust_confidence_and_add_doubt,
    without_disturbed_replicates,
)
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.store.measurements import Measurements
from machines import planned

SLOW, OTHER = "drive-0000-11-00-0", "drive-0000-21-00-0"


def measured(**slow):
    """A host and its table of one kernel, without sets of drives: anomalies of their own."""
    faults = [
        {"fault": "slow_drive", "drive": drive, "remaining": remaining}
        for drive, remaining in slow.items()
    ]
    names = ["memory_bandwidth", "storage_bandwidth"]
    host = planned("two_packages", None, faults, experiments=names)
    table = host.table(1)
    sets = table.rows["target_kind"].str.startswith(("all_of", "first_of"))
    return host, table.select(~sets & table.rows["kernel"].fillna("triad").eq("triad")).rows


def findings(host, tidy):
    return analyse_host(Measurements.from_table(tidy), host.component_facts)


def components(anomalies):
    return [one.components for one in anomalies]


def test_a_disturbed_replicate_counts_only_if_a_load_has_no_other():
    host, tidy = measured()
    healthy = findings(host, tidy)
    some = (tidy["replicate"] == 1) & (tidy["order"] % 4 == 0)
    disturbed = tidy.assign(
        value=tidy["value"].where(~some, 0.5 * tidy["value"]),
        remarks=tidy["remarks"].where(~some, "disturbed"),
    )
    found = findings(host, disturbed)
    assert found.anomalies == healthy.anomalies == ()
    kept = without_disturbed_replicates(Measurements.from_table(disturbed)).rows
    assert len(kept) == len(disturbed) - some.sum() and kept["remarks"].isna().all()
    alone = disturbed[disturbed["replicate"] == 1]
    assert len(without_disturbed_replicates(Measurements.from_table(alone)).rows) == len(alone)


@pytest.fixture(scope="module")
def slow():
    return measured(**{SLOW: 0.5})


@pytest.mark.parametrize(("remark", "first"), [("disturbed", 1), ("imprecise", 2)])
def test_an_anomaly_of_disturbed_or_mostly_imprecise_records_is_a_suspicion(slow, remark, first):
    host, tidy = slow
    own = tidy["target"] == SLOW
    assert components(findings(host, tidy).anomalies) == [(SLOW,)]
    once = tidy.assign(remarks=np.where(own & (tidy["replicate"] == 1), remark, None))
    assert components(findings(host, once).anomalies) == [(SLOW,)]
    most = tidy.assign(remarks=np.where(own & (tidy["replicate"] >= first), remark, None))
    found = findings(host, most)
    assert (found.anomalies, components(found.suspicions)) == ((), [(SLOW,)])
    assert "disturbed or imprecise" in found.suspicions[0].doubt
    assert found.suspicions[0].advice.startswith("Measure it again before anything else.")


def test_remarks_on_other_values_leave_a_finding_as_it_is(slow):
    host, tidy = slow
    others = tidy["load"] == "storage"
    remarked = tidy.assign(
        remarks=np.where(
            others & (tidy["target"] != SLOW) & (tidy["replicate"] < 2), "disturbed", None
        )
    )
    assert components(findings(host, remarked).anomalies) == [(SLOW,)]


def test_an_interval_that_includes_zero_is_never_a_finding(slow):
    host, tidy = slow
    (clear,) = findings(host, tidy).anomalies
    rows = Measurements.from_table(tidy)
    assert adjust_confidence_and_add_doubt(clear, 1, rows, unusable=False).doubt == ""
    for low in (0.0, -0.1):
        doubted = adjust_confidence_and_add_doubt(
            replace(clear, loss_percent_low=low), 1, rows, unusable=False
        )
        assert doubted.doubt == "The interval of the loss includes zero."


def test_the_false_alarm_rate_is_that_of_all_tests_of_the_host(slow):
    host, tidy = slow
    (clear,) = findings(host, tidy).anomalies
    rows, chance = Measurements.from_table(tidy), replace(clear, p_value=0.002)
    assert adjust_confidence_and_add_doubt(chance, 4, rows, unusable=False).doubt == ""
    doubted = adjust_confidence_and_add_doubt(chance, 6, rows, unusable=False)
    assert doubted.doubt.startswith(
        "By chance, 1.2 % of healthy hosts show such a loss in one of 6"
    )
    assert doubted.confidence == pytest.approx(0.988)


def test_results_are_unusable_if_half_of_the_records_are_disturbed(slow):
    host, tidy = slow
    numbers = tidy.groupby("point").ngroup() + tidy["replicate"]
    almost = findings(host, tidy.assign(remarks=np.where(numbers % 5 < 2, "disturbed", None)))
    assert almost.unusable == ""
    found = findings(host, tidy.assign(remarks=np.where(numbers % 5 < 3, "disturbed", None)))
    assert found.verdict.endswith(found.unusable)
    assert "other programs disturbed 60 % of the measurements" in found.unusable
    assert "Stop other programs on the host" in found.unusable
    assert (found.anomalies, components(found.suspicions)) == ((), [(SLOW,)])


def test_results_are_unusable_if_half_of_the_intervals_include_zero():
    host, tidy = measured()
    random = np.random.default_rng(3)
    wild = tidy.assign(value=tidy["value"] * np.exp(random.normal(0.0, 1.5, len(tidy))))
    found = findings(host, wild)
    assert "of the values have intervals wider than ±100 %" in found.unusable
    assert found.anomalies == ()


def test_disturbed_replicates_next_to_others_make_no_results_unusable():
    host, tidy = measured()
    some = (tidy["replicate"] == 1) & (tidy["order"] % 3 > 0)
    pairs = tidy[tidy["replicate"] <= 2]
    disturbed = pairs.assign(
        value=pairs["value"].where(~some, 0.1 * pairs["value"]),
        remarks=pairs["remarks"].where(~some, "disturbed"),
    )
    assert findings(host, disturbed).unusable == ""


def test_findings_of_earlier_versions_can_be_read(slow):
    found = findings(*slow)
    old = json.loads(json.dumps(found.to_json()))
    assert Findings.from_json(old) == Findings.from_json(json.loads(json.dumps(old)))
    for name in ("suspicions", "unusable"):
        del old[name]
    for one in old["anomalies"]:
        del one["p_value"], one["doubt"]
    read = Findings.from_json(old)
    assert (components(read.anomalies), read.suspicions) == ([(SLOW,)], ())
    assert read.anomalies[0].doubt == ""
