"""``chaosity explain`` prints the numbers from which its values can be computed again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import records_by_hand
from machines import refusal_by_chaosity, run_chaosity

POINT = "memory=node0+node1+triad"
METRICS = {
    "bandwidth_bytes_per_second": {"progress": True, "at_most": None},
    "latency_p99_of_block_means_ns": {
        **{"progress": True, "key": "blocks", "quantile": 0.5},
        "formerly": "latency_p99_ns",
    },
    "runs_per_second": {"event": "done", "key": "runs", "scale": 2.0},
    "misses": {"counter": "remote"},
    "path_bytes_per_second": {"by_node": {"amount": "by_node", "time": "ns"}},
}


def load(name: str, scale: float) -> dict[str, Any]:
    """A load of three samples; the last one is not counted with another load."""
    lines: list[dict[str, object]] = [
        {"event": "sample", "begin": i, "end": i + 1, "amount": 100.0 * scale + i, "blocks": blocks}
        | {"by_node": {"1": 30 + i}, "ns": {"1": 4 * scale}}
        for i, blocks in enumerate([{"98.5": 2}, {"99.5": 4, "97.0": 1}, {"120.25": 5}])
    ]
    lines.append({"event": "done", "runs": 21 * scale})
    target = {"name": "node1", "kind": "node", "nodes": [1], "drives": [], "relation": "x"}
    count = {"cpu": 0, "count": 300, "time_enabled_ns": 1000, "time_running_ns": 500}
    return records_by_hand.load(
        name,
        role=name,
        target={**target, "by_node": {"1": {"relation": "same_package"}}},
        metrics=METRICS,
        outputs={"stdout": "\n".join(map(json.dumps, lines)), "stderr": ""},
        command=["tool", "--name=a b"],
        environment={"A": "1"},
        program={"version": "tool 1", "path": "/tool"},
        counted={"remote": {"counts": [count, {**count, "cpu": 1, "sign": -1, "count": 100}]}},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of a point with three replicates; the records have a metric's former name."""
    plan = records_by_hand.point(POINT, loads=[load("memory", 1.0)])
    records_by_hand.write_point(tmp_path, plan)
    check = {"name": "quiet", "passed": False, "decisive": False, "detail": "3 % taken"}
    verdict = {"status": "valid", "reason": None, "checks": [check]}
    for replicate, scale in enumerate((1.0, 1.1, 1.3), start=1):
        own = load("memory", scale)
        own["metrics"] = {source.get("formerly", name): source for name, source in METRICS.items()}
        record = records_by_hand.record(plan, replicate, loads=[own], verdict=verdict)
        records_by_hand.write_record(tmp_path, record, POINT, replicate)
    return tmp_path


def explain(folder: Path, *arguments: str) -> str:
    return run_chaosity("explain", folder, POINT, *arguments)


def test_the_names_nearest_to_an_unknown_point_are_offered(folder: Path):
    for name in (POINT[::-1], "?"):
        said = refusal_by_chaosity("explain", folder, name)
        assert f"there is no point {name}; use {POINT}." in said


def shown_values(text: str) -> list[float]:
    """The values of the replicates."""
    return [float(value) for value in re.findall(r"replicate \d+, valid: .*\((\S+)\)$", text, re.M)]


def test_a_quantile_follows_from_its_counts_though_the_record_has_the_former_name(folder: Path):
    text = explain(folder, "--metric", "latency_p99_of_block_means_ns", "--samples")
    counts = re.findall(r"value (\S+): (\d+) blocks", text)[:4]
    values = sorted(float(value) for value, number in counts for _ in range(int(number)))
    assert len(values) == 12
    assert shown_values(text)[0] == values[5]
    assert "inputs: 12 blocks in the samples of the window, 3 below the value, 4 at" in text


def test_a_number_of_the_tool_follows_from_its_output(folder: Path):
    text = explain(folder, "--metric", "runs_per_second")
    assert "formula: the number in the tool's output: event done, key runs, scale 2.0" in text
    inputs = [2.0 * float(value) for value in re.findall(r"inputs: (\S+)", text)]
    assert shown_values(text) == inputs


def test_a_counters_value_follows_from_its_counts(folder: Path):
    text = explain(folder, "--metric", "misses", "--replicate", "2")
    units = re.findall(r"(-?\d) x (\d+), enabled (\d+) ns, running (\d+) ns", text)
    total = sum(int(a) * int(b) * int(c) / int(d) for a, b, c, d in units)
    assert shown_values(text) == [total]


def test_the_value_of_a_node_follows_from_amount_and_time(folder: Path):
    text = explain(folder, "--metric", "path_bytes_per_second", "--replicate", "2")
    [(amount, time)] = re.findall(r"node 1: (\S+) in (\S+) units of the sample's time", text)
    assert "x threads, 2; a sample across" in text
    assert shown_values(text) == pytest.approx([float(amount) / float(time) * 2])


def test_a_record_of_an_early_version_without_roles_is_explained(folder: Path):
    whole = explain(folder, "--metric", "bandwidth")
    for path in (folder / f"points/e/{POINT}.json", *folder.glob(f"e/{POINT}/*.json")):
        document = json.loads(path.read_text())
        for load in document["loads"]:
            del load["role"]
        path.write_text(json.dumps(document))
    assert explain(folder, "--metric", "bandwidth") == whole


def test_loads_that_share_a_name_are_reported_apart_by_their_initiators(folder: Path):
    """As chases on each core at once: their loads have numbers, and the table has one name."""
    paths = [folder / f"points/e/{POINT}.json", *folder.glob(f"e/{POINT}/*.json")]
    for path in paths:
        document = json.loads(path.read_text())
        records_point = [document["point"]] if "verdict" in document else []
        for part in (document, *records_point):
            for load in list(part["loads"]):
                twin = json.loads(json.dumps(load)) | {"name": "memory2", "command": ["second"]}
                twin["initiator"]["name"] = "node7"
                part["loads"].append(twin)
        path.write_text(json.dumps(document))
    text = explain(folder, "--metric", "bandwidth", "--replicate", "1")
    assert text.count("replicate 1, valid") == 2
    assert "node0 -> node1" in text
    assert "node7 -> node1" in text
    assert "command of memory2: A=1 second" in text


def test_a_value_of_zero_is_a_value(folder: Path):
    """A load that stays on its node has no remote misses."""
    for path in folder.glob(f"e/{POINT}/rep*.json"):
        record = json.loads(path.read_text())
        for count in record["loads"][0]["counted"]["remote"]["counts"]:
            count["count"] = 0
        path.write_text(json.dumps(record))
    assert shown_values(explain(folder, "--metric", "misses")) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("path", ["node 0 ->", " -> node 0", "->"])
def test_a_path_without_one_of_its_places_is_refused(folder: Path, path: str):
    assert "name both places, such as 'node 0 -> node 1'" in refusal_by_chaosity(
        "explain", folder, "--", path
    )
