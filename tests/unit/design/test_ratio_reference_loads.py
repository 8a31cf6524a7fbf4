"""What a derived metric is a ratio to: the load that differs only in what is named."""

from __future__ import annotations

import itertools
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chaosity.design import host_plan as plan_module
from chaosity.design.host_plan import add_references_to_points, plan_host
from chaosity.design.samples import PlanNotes
from chaosity.documents import shipped_documents as config_module
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError

BANDWIDTH = "bandwidth_bytes_per_second"


@pytest.fixture
def planned(config, paper_host, monkeypatch):
    """Plans one of the experiments with a derived metric: its references by point, and the plan."""

    def plan(name, load, to, on, metric=BANDWIDTH):
        entry = {"name": "speedup", "load": load, "metric": metric, "to": to, "same": on}
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


ONE_CORE, SAME_NODE = {"threads": 1}, ["node", "kernel"]
PLAIN = {"levels": {}}


def of(point, load):
    return {"point": point, "load": load}


def test_speedup_over_one_core_of_the_same_node(planned):
    found, _ = planned("bandwidth_scaling", "memory", ONE_CORE, SAME_NODE)
    one = "memory=node4_threads1+node4+read"
    assert found["memory=node4_threads6+node4+read"] == of(one, "memory")
    assert found[one] == of(one, "memory")  # a reference is its own


def test_several_possible_references_are_refused(planned):
    with pytest.raises(UserError) as caught:
        planned("bandwidth_scaling", "memory", ONE_CORE, ["kernel"])
    for words in ("has 8 possible references", "memory=node1_threads1+node1+read", "in `same`"):
        assert words in str(caught.value)
    found, _ = planned("bandwidth_scaling", "memory", {"threads": 1, "node": "node2"}, ["kernel"])
    assert found["memory=node4_threads6+node4+read"] == of(
        "memory=node2_threads1+node2+read", "memory"
    )


def test_remote_memory_relative_to_ones_own(planned):
    to = {"relation": "same_node"}
    found, _ = planned("latency_matrix", "chase", to, ["initiator", "pages"], "latency_ns")
    assert found["chase=pu18+node0+pages-thp"] == of("chase=pu18+node3+pages-thp", "chase")
    assert len(found) == 64


@pytest.mark.parametrize(
    ("to", "metric", "words"),
    [
        ({"kernl": "read"}, BANDWIDTH, "no column 'kernl'; did you mean kernel?"),
        ({"kernel": "read"}, "bandwidth", f"no metric 'bandwidth'; .*allowed: {BANDWIDTH}"),
    ],
)
def test_what_there_is_not_is_refused_when_the_host_is_planned(planned, to, metric, words):
    with pytest.raises(UserError, match=words):
        planned("bandwidth_scaling", "memory", to, ["kernel"], metric)


def test_a_changed_reference_changes_the_plan_and_no_point(planned):
    _, one = planned("bandwidth_scaling", "memory", ONE_CORE, SAME_NODE)
    _, other = planned("bandwidth_scaling", "memory", {"threads": 2}, SAME_NODE)
    assert one.points_fingerprint != other.points_fingerprint
    assert [p["definition"] for p in one.points] == [p["definition"] for p in other.points]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"load": "memroy"}, "unknown load 'memroy'; did you mean memory?"),
        ({"name": "speedup_bytes_per_second"}, "has a unit"),
        ({"name": BANDWIDTH}, "is in use"),
        ({"to": {}}, "relative.0.to"),
        ({"same": []}, "relative.0.same"),
    ],
)
def test_a_wrong_entry_is_refused_when_the_file_is_read(tmp_path, monkeypatch, entry, words):
    document = load_experiment("bandwidth_scaling")
    good = {
        "name": "speedup",
        "load": "memory",
        "metric": BANDWIDTH,
        "to": ONE_CORE,
        "same": SAME_NODE,
    }
    document["relative"] = [{**good, "same": SAME_NODE, **entry}]
    (tmp_path / "bandwidth_scaling.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.setattr(config_module, "EXPERIMENTS_FOLDER", tmp_path)
    with pytest.raises(UserError, match=words):
        load_experiment("bandwidth_scaling")


# A study as in document 004: programs on two runtimes, on one core and on more, and their memory.
PROGRAMS, RUNTIMES, CORES = ("sort", "stencil", "matrix"), ("vanilla", "locality"), (1, 2, 4)


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


def references(points, to, on):
    entry = {"name": "speedup", "load": "work", "metric": "runs_per_second", "to": to, "same": on}
    document = {"experiment": "study", "relative": [entry]}
    found = add_references_to_points(document, points, PlanNotes())
    return {
        point["point"]: one["to"]["point"] if "to" in one else None
        for point in found
        for one in point["relative"]
    }


@given(st.randoms(use_true_random=False), st.integers(1, 18), st.sampled_from(["cores", "runtime"]))
def test_a_pair_agrees_in_what_is_named(chance, number, named):
    every = list(itertools.product(PROGRAMS, RUNTIMES, CORES))
    chosen = random.Random(chance.random()).sample(every, number)
    to = {"initiator_kind": "pu"} if named == "cores" else {"runtime": "vanilla"}
    on = ["program", "runtime" if named == "cores" else "threads"]
    found = references([study_point(*one) for one in chosen], to, on)
    for program, runtime, cores in chosen:
        wanted = (program, runtime, 1) if named == "cores" else (program, "vanilla", cores)
        expected = "{}-{}-{}".format(*wanted) if wanted in chosen else None
        assert found[f"{program}-{runtime}-{cores}"] == expected
