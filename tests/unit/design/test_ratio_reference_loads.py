"""What a derived metric is a ratio to: the load that differs only in what is named."""

from __future__ import annotations

import itertools
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chaosity.design import host_plan as plan_module
from chaosity.design.even_samples_and_plan_notes import PlanNotes
from chaosity.design.find_reference_loads_of_ratios import add_reference_loads
from chaosity.design.host_plan import plan_host
from chaosity.documents import shipped_documents as config_module
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError

BANDWIDTH = "bandwidth_bytes_per_second"


@pytest.fixture
def planned(config, paper_host, monkeypatch):
    """Plans one of the experiments with a derived metric: its references by point, and the plan."""

    def plan(name, load, to, metric=BANDWIDTH, **more):
        entry = {"name": "speedup", "load": load, "metric": metric, "to": to, **more}
        document = {**load_experiment(name), "relative": [entry]}
        monkeypatch.setattr(plan_module, "load_experiment", lambda _: document)
        found = plan_host(paper_host, {**config, "experiments": [name], **PLAIN})
        answers = {
            point["point"]: one.get("to", one.get("reason"))
            for point in found.points
            for one in point["relative"]
        }
        return answers, found

    return plan


THROUGHPUT = "processing_throughput_bytes_per_second"
PLAIN = {"levels": {}}


def of(point, load):
    return {"point": point, "load": load}


def test_speedup_over_one_core_of_the_same_node(planned):
    found, _ = planned("bandwidth_scaling", "memory", {"threads": 1}, same=["target"])
    assert found["memory=node4_threads6+node4+read"] == of(
        "memory=node4_threads1+node4+read", "memory"
    )
    one = "memory=node4_threads1+node4+read"
    assert found[one] == of(one, "memory")  # a reference is its own


def test_without_it_memory_that_is_local_follows_from_the_cores_and_is_no_obstacle(planned):
    with pytest.raises(UserError) as caught:
        planned("bandwidth_scaling", "memory", {"threads": 1})
    for words in ("has 8 possible references", "memory=node1_threads1+node1+read", "same"):
        assert words in str(caught.value)
    found, _ = planned("bandwidth_scaling", "memory", {"threads": 1, "node": "node2"})
    assert found["memory=node4_threads6+node4+read"] == of(
        "memory=node2_threads1+node2+read", "memory"
    )


def test_remote_memory_relative_to_ones_own(planned):
    to = {"relation": "same_node"}
    found, _ = planned("latency_matrix", "chase", to, "latency_ns", same=["initiator"])
    assert found["chase=pu18+node0+pages-thp"] == of("chase=pu18+node3+pages-thp", "chase")
    assert len(found) == 64


def test_beside_others_relative_to_alone_and_the_other_way_round(planned):
    found, _ = planned("interference", "storage", {"placement": "alone"})
    beside = "memory=node1+node1+triad.storage=node1+node1drives2"
    assert found[beside] == of("storage=node1+node1drives2", "storage")
    # The baseline of the memory was measured for each node whose drives are read beside it.
    found, _ = planned("interference", "memory", {"drives": 0})
    assert found[beside] == of("memory=node1+node1+triad.storage=node1+none", "memory")
    other = "memory=node0+node0+triad.storage=node3+node3drives"
    assert found[other] == of("memory=node0+node0+triad.storage=node3+none", "memory")


@pytest.mark.parametrize(
    ("to", "metric", "words"),
    [
        ({"kernl": "read"}, BANDWIDTH, "no column 'kernl'; did you mean kernel?"),
        ({"kernel": "read"}, "bandwidth", f"no metric 'bandwidth'; .*allowed: {BANDWIDTH}"),
    ],
)
def test_what_there_is_not_is_refused_when_the_host_is_planned(planned, to, metric, words):
    with pytest.raises(UserError, match=words):
        planned("bandwidth_scaling", "memory", to, metric)


def test_what_the_name_of_a_design_stands_for_has_to_be_named(planned):
    with pytest.raises(UserError, match=r"cores is the name of the design, .*; name what differs"):
        planned("numa_runtime", "task", {"cores": "one_core"}, "runs_per_second")


def test_a_relation_of_the_only_load_by_package_frees_both_its_sides(planned):
    with pytest.raises(UserError, match="has 40 possible references"):
        planned("streaming_compute", "sum", {"placement": "same_package"}, THROUGHPUT)


def test_a_changed_reference_changes_the_plan_and_no_point(planned):
    _, one = planned("bandwidth_scaling", "memory", {"threads": 1}, same=["target"])
    _, other = planned("bandwidth_scaling", "memory", {"threads": 2}, same=["target"])
    assert one.points_fingerprint != other.points_fingerprint
    assert [p["definition"] for p in one.points] == [p["definition"] for p in other.points]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"load": "memroy"}, "unknown load 'memroy'; did you mean memory?"),
        ({"name": "speedup_bytes_per_second"}, "has a unit"),
        ({"name": BANDWIDTH}, "is in use"),
        ({"to": {}}, "relative.0.to"),
    ],
)
def test_a_wrong_entry_is_refused_when_the_file_is_read(tmp_path, monkeypatch, entry, words):
    document = load_experiment("bandwidth_scaling")
    good = {"name": "speedup", "load": "memory", "metric": BANDWIDTH, "to": {"threads": 1}}
    document["relative"] = [{**good, **entry}]
    (tmp_path / "bandwidth_scaling.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.setattr(config_module, "EXPERIMENTS", tmp_path)
    with pytest.raises(UserError, match=words):
        load_experiment("bandwidth_scaling")


# A study as in document 004: programs on two runtimes, on one core and on more, and their memory.
PROGRAMS, RUNTIMES, CORES = ("sort", "stencil", "matrix"), ("vanilla", "locality"), (1, 2, 4)
DOCUMENT = {
    "experiment": "study",
    "designs": {
        "all": {
            "loads": {
                "work": {
                    "category": "c",
                    "initiator": [{"each": "pu"}, {"growing": "machine"}],
                    "target": {"local_to": "work.initiator"},
                }
            }
        }
    },
}


def study_point(program, runtime, cores):
    initiator = {
        "name": f"cores{cores}",
        "kind": "pu" if cores == 1 else "machine",
        "threads": cores,
    }
    target = {"name": f"memory{cores}", "kind": "node", "relation": f"relation{cores}"}
    load = {
        "name": "work",
        "role": "work",
        "kernel": None,
        "initiator": initiator,
        "target": target,
        "levels": {"program": program, "runtime": runtime},
        "metrics": {"runs_per_second": {}},
    }
    return {
        "point": f"{program}-{runtime}-{cores}",
        "loads": [load],
        "factors": {"relation": f"relation{cores}"},
    }


def references(points, to):
    entry = {"name": "speedup", "load": "work", "metric": "runs_per_second", "to": to}
    found = add_reference_loads({**DOCUMENT, "relative": [entry]}, points, PlanNotes())
    return {
        point["point"]: one["to"]["point"] if "to" in one else None
        for point in found
        for one in point["relative"]
    }


@given(st.randoms(use_true_random=False), st.integers(1, 18), st.sampled_from(["cores", "runtime"]))
def test_a_pair_differs_in_what_is_named_and_in_nothing_else(chance, number, named):
    every = list(itertools.product(PROGRAMS, RUNTIMES, CORES))
    chosen = random.Random(chance.random()).sample(every, number)
    to = {"initiator_kind": "pu"} if named == "cores" else {"runtime": "vanilla"}
    found = references([study_point(*one) for one in chosen], to)
    for program, runtime, cores in chosen:
        wanted = (program, runtime, 1) if named == "cores" else (program, "vanilla", cores)
        expected = "{}-{}-{}".format(*wanted) if wanted in chosen else None
        assert found[f"{program}-{runtime}-{cores}"] == expected


def test_a_factor_that_names_a_side_frees_that_side_alone():
    policies = ("first_touch", "uniform_workers", "uniform_all")
    document = {
        "experiment": "placed",
        "designs": {
            "all": {
                "loads": {
                    "work": {
                        "category": "c",
                        "initiator": {"growing": "machine"},
                        "target": {"names": policies},
                    }
                }
            }
        },
        "factors": {"policy": {"level": "work.target"}},
        "relative": [
            {
                "name": "gain",
                "load": "work",
                "metric": "runs_per_second",
                "to": {"policy": "uniform_workers"},
            }
        ],
    }
    points = []
    for policy, cores in itertools.product(policies, CORES):
        point = study_point("sort", "vanilla", cores)
        [load] = point["loads"]
        target = {**load["target"], "name": policy, "kind": "policy"}
        points.append(
            {
                "point": f"{policy}-{cores}",
                "loads": [{**load, "target": target}],
                "factors": {"policy": policy},
            }
        )
    for point in add_reference_loads(document, points, PlanNotes()):
        [one] = point["relative"]
        cores = point["point"].rpartition("-")[2]
        assert one["to"]["point"] == f"uniform_workers-{cores}"
