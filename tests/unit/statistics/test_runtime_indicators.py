"""The indicators of document 004: misses of a run of the program, and intervals of 90 %."""

from __future__ import annotations

import copy

import pytest

from chaosity.design.host_plan import PlannedHost, add_references_to_points, plan_host
from chaosity.design.samples import PlanNotes
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import load_benchmark, load_experiment
from chaosity.errors import UserError
from chaosity.statistics.anova import find_anova_studies
from chaosity.statistics.estimates import Estimate, intervals_with_confidence
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import ReplicateOutcome, tidy_rows_of_derived_metrics
from machines import SimulatedHost, planned, shipped_topology

MIB = 2**20
REMOTE = "remote_memory_misses_per_run"


@pytest.fixture(scope="module")
def host() -> SimulatedHost:
    """The machine of document 004 with four L3 caches of 16 MiB."""
    parameters = {"chaosity_tasks": {"bytes": "beyond_caches"}}
    return planned(
        "xeon_e5_4620", all_points=True, experiments=["numa_runtime"], parameters=parameters
    )


@pytest.fixture(scope="module")
def records(host):
    return host.records()


@pytest.fixture(scope="module")
def table(host, records) -> Measurements:
    return host.table_with_derived_metrics(records)


def test_data_follows_the_rule_of_working_sets_if_the_config_says_so(host):
    sizes = {load["memory_bytes"] for point in host.points for load in point["loads"]}
    assert sizes == {4 * 4 * 16 * MIB}  # four times all L3 caches, for one core too
    words = host.points[0]["loads"][0]["command"]
    assert f"--bytes={256 * MIB}" in words


@pytest.mark.parametrize(("size", "noted"), [(128 * MIB, True), (256 * MIB, False)])
def test_the_plan_says_that_the_caches_hold_a_large_part_of_the_data(size, noted):
    parameters = {"chaosity_tasks": {"bytes": size}}
    config = {**read_config(), "experiments": ["numa_runtime"], "parameters": parameters}
    topology = shipped_topology("xeon_e5_4620")
    plan = plan_host(PlannedHost("h", "snc1", topology), config)
    notes = [note for note in plan.notes if "beyond_caches" in str(note)]
    assert bool(notes) == noted
    assert not noted or "128 MiB is smaller than the 256 MiB" in str(notes[0])


def test_misses_of_a_run_do_not_grow_with_the_time_of_the_measurement(host, records, table):
    key = next(key for key in records if "machine" in key[1] and "vanilla" in key[1])
    longer = copy.deepcopy(records)
    for record in longer[key]:
        for result in record["loads"][0]["counted"].values():
            for count in result.get("counts", ()):
                for name in ("count", "time_enabled_ns", "time_running_ns"):
                    count[name] *= 3
    own = {"point": key[1], "replicate": 1}
    values, after = (
        {
            metric: each.where(**own, metric=metric).rows["value"].item()
            for metric in (REMOTE, "last_level_misses_remote_memory_count")
        }
        for each in (table, host.table_with_derived_metrics(longer))
    )
    count = "last_level_misses_remote_memory_count"
    assert after[count] == pytest.approx(3 * values[count])
    assert after[REMOTE] == pytest.approx(values[REMOTE])
    # 3/4 of the lines that a run moves are remote. The core's caches hold 6 % or less, and so does
    # each of the three L3 caches of other nodes, from which a line comes instead.
    [load] = records[key][0]["point"]["loads"]
    moves = load_benchmark(load["benchmark"])["simulation"]["programs"][load["kernel"]]["moves"]
    assert values[REMOTE] == pytest.approx(0.75 * 0.83 * moves * 256 * MIB / 64, rel=0.1)


def test_a_line_that_another_cache_holds_comes_from_there(table):
    runs = table.where(initiator_kind="machine", kernel="stencil", replicate=1).rows
    found = {}
    for runtime in ("vanilla", "locality"):
        own = runs[runs["load_parameters"].str.contains(runtime)].set_index("metric")["value"]
        places = ("local_memory", "remote_memory", "remote_cache")
        found[runtime] = [own[f"{place}_misses_per_run"] for place in places]
    local, remote, cache = found["vanilla"]
    assert remote == pytest.approx(3 * local, rel=1e-3)
    # 1 - (1 - 1/16)^3, since each of the other three caches holds 1/16 of the data.
    assert cache / (local + remote + cache) == pytest.approx(0.175, rel=0.01)
    # With the locality runtime, one access in a hundred uses data of all nodes.
    shares = [
        after / before for after, before in zip(found["locality"], found["vanilla"], strict=True)
    ]
    assert shares[1:] == pytest.approx([0.01, 0.01], rel=0.1)


def test_the_speedup_of_means_is_one_value_of_mean_times(table):
    means = table.where(metric="speedup_of_means", reference=False).rows
    assert len(means) == 8 and set(means["replicate"]) == {1}
    rates = table.where(metric="runs_per_second").rows
    for _, row in means.iterrows():
        own = rates[
            (rates["kernel"] == row["kernel"])
            & (rates["load_parameters"] == row["load_parameters"])
        ]
        times = (1 / own["value"]).groupby(own["initiator_kind"]).mean()
        assert row["value"] == pytest.approx(times["pu"] / times["machine"])
    [study] = [one for one in find_anova_studies(table) if one.metric == "speedup_of_means"]
    assert (set(study.factors), study.block) == ({"runtime", "kernel"}, None)


def test_an_interval_has_the_requested_confidence_only_inside_the_block():
    sample = [10.0, 11.0, 12.0, 13.0]
    wide = Estimate.of_values(sample)
    with intervals_with_confidence(0.9):
        narrow = Estimate.of_values(sample)
        assert narrow.interval_text().startswith("90 % interval")
    assert wide.low < narrow.low < narrow.high < wide.high
    assert wide.interval_text().startswith("95 % interval")
    assert Estimate.of_values(sample) == wide


def test_a_count_without_a_counter_has_the_reason(host):
    point = next(point for point in host.points if point["relative"])
    load = point["loads"][0]["name"]
    metrics = {"runs_per_second": (2.0, None)} | {
        metric: (None, "it needs root")
        for metric in point["loads"][0]["metrics"]
        if "miss" in metric
    }
    outcome = ReplicateOutcome("valid", readings={load: metrics}, counted_seconds={load: {}})
    own = {**point, "relative": [each for each in point["relative"] if "per" in each]}
    rows = tidy_rows_of_derived_metrics(own, 1, {(own["experiment"], own["point"]): [outcome]})
    assert [(row["value"], row["reason"]) for row in rows] == [(None, "it needs root")] * 3


def test_only_a_count_can_be_divided_by_what_a_load_did():
    document = copy.deepcopy(load_experiment("numa_runtime"))
    document["relative"][2]["metric"] = "locality"
    points = planned("xeon_e5_4620", all_points=True, experiments=["numa_runtime"]).points
    with pytest.raises(UserError, match="locality is not a count"):
        add_references_to_points(document, points, PlanNotes())
