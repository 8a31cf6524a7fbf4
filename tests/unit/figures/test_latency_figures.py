"""Figures of latency: sizes, curves under load, distances, pairs of cores, and tables."""

from __future__ import annotations

import csv
import itertools
import json
import re
from functools import cache

import pytest

from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.figure_files import draw_figures
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology, topology_from_json
from machines import planned
from shipped_data import PUBLISHED_TABLES
from table_rows import LATENCY, rows, sweep, table

SWEEP = PUBLISHED_TABLES / "numa_bench_epyc7a53_latency_sweep_ns.csv"
TRAFFIC = "traffic.traffic_bytes_per_second"
KIB, MIB = 2**10, 2**20


@cache
def host():
    names = ["latency_matrix", "loaded_latency"]
    levels = {"loaded_latency": {"kernel": 2}}
    config = {"experiments": names, "levels": levels, "replicates": 3}
    whole = planned("two_packages", all_points=True, **config)
    return whole.where(
        lambda point: (
            point["experiment"] == "latency_matrix"
            or point["loads"][0]["initiator"]["name"] in ("pu0", "pu16")
        )
    )


@cache
def healthy():
    return host().table(1)


def draw(measured, experiment, folder, *names, topology=None, **changes):
    """Draw the figures of these names of an experiment, changed."""
    topology = host().topology if topology is None else topology
    document = load_experiment(experiment)
    figures = [{**each, **changes} for each in document["figures"] if each["name"] in names]
    figures = [{k: v for k, v in each.items() if v is not None} for each in figures]
    files = draw_figures([{**document, "figures": figures}], measured, topology, folder)
    return files if len(files) > 1 else files[0]


def lines(folder, name):
    with (folder / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def cores(sizes, slow=lambda pu, size: 1.0, **keys):
    """Two cores of a node, each alone and both together; `slow` is what both together cost."""

    def latency(pu, size, mode):
        return size**0.5 * (slow(pu, size) if mode == "concurrent" else 1.0)

    return Measurements.from_table(sweep(latency, sizes, {0: 0, 4: 0}, **keys))


@pytest.mark.parametrize(
    ("slow", "ratios", "above"),
    [
        (lambda pu, size: 1.0, "1.00 times", []),
        (lambda pu, size: 2.0 if size in (MIB, 4 * MIB) else 1.0, "1.00 to 2.00 times", [1, 4]),
    ],
)
def test_sizes_at_which_together_differs_from_alone_are_named(slow, ratios, above, tmp_path):
    measured = cores([KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB], slow)
    said = draw(measured, "latency_by_size", tmp_path, "latency_serial_concurrent").sentence
    assert ratios in said
    assert [int(size) for size in re.findall(r"(\d+) MiB", said.split("above")[-1])][:2] == above


def test_a_core_that_is_slower_than_others_of_its_node_is_named(tmp_path):
    measured = cores([KIB, MIB, 4 * MIB], lambda pu, size: 1.5 if pu == 4 and size > KIB else 1.0)
    said = draw(measured, "latency_by_size", tmp_path, "latency_serial_concurrent").sentence
    assert re.search(r"1 initiator is slower .*processing unit 4", said)


def test_modes_without_a_common_size_are_not_compared(tmp_path):
    alone, together = cores([KIB], modes=["serial"]), cores([MIB], modes=["concurrent"])
    measured = Measurements.concatenated([alone, together])
    said = draw(measured, "latency_by_size", tmp_path, "latency_serial_concurrent").sentence
    assert "no latency was measured both with mode concurrent and with mode serial" in said.lower()


def test_the_published_sweep_has_the_slow_cores_of_its_document(tmp_path):
    with SWEEP.open(newline="") as stream:
        published = {
            (int(row["core"]), int(row["size_MB"]) * MIB, row["mode"]): row
            for row in csv.DictReader(stream)
        }

    def latency(*key):
        return float(published[key]["latency_ns"])

    nodes = {pu: int(row["cpu_node"]) for (pu, _, _), row in published.items()}
    sizes = sorted({size for _, size, _ in published})
    measured = Measurements.from_table(sweep(latency, sizes, nodes, replicates=1))
    names = ("latency_serial_concurrent", "latency_by_core")
    curves, file = draw(measured, "latency_by_size", tmp_path, *names, topology=Topology())
    assert "at 128 MiB" in curves.sentence
    assert ": processing units 1, 17, 33 and 49." in curves.sentence
    serial, _ = file.tables
    assert serial.columns[4:6] == ("1 MiB", "2 MiB") and serial.columns[-1] == "16 GiB"
    assert [row[0].text for row in serial.rows] == ["1", "9", "17", "25", "33", "41", "49", "57"]
    assert serial.rows[0][4].text == "10.5"


def test_rates_of_several_loads_of_a_name_add_up(tmp_path):
    one = healthy().where(experiment="loaded_latency")
    other = one.where(load="traffic")
    twice = Measurements.concatenated([one, other.with_columns(initiator="others")])
    draw(twice, "loaded_latency", tmp_path, "loaded_latency")
    both = max(float(row[TRAFFIC] or 0.0) for row in lines(tmp_path, "loaded_latency"))
    assert both == pytest.approx(2.0 * other.rows["value"].max(), rel=0.1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"panels": None}, "joins points of several initiators: pu0, pu16"),
        ({"kind": "lines", "x": "traffic.share", "panels": "chase.target"}, None),
        (
            {"kind": "lines", "x": "traffic.kernel", "x_scale": "log2", "combine": "median"},
            "needs numbers above zero",
        ),
        ({"kind": "lines", "x": "traffic.share", "panels": None}, "would be one mark"),
    ],
)
def test_a_curve_that_cannot_be_drawn_says_why(changes, problem, tmp_path):
    measured = healthy().where(experiment="loaded_latency")
    found = draw(measured, "loaded_latency", tmp_path, "loaded_latency", **changes).problem
    assert found is None if problem is None else problem in found


def test_distances_are_compared_with_the_measurement(tmp_path):
    measured = healthy()
    names = ("latency_by_node", "latency_by_distance")
    right = draw(measured, "latency_matrix", tmp_path, *names)
    assert all("in 0 of " in file.sentence for file in right)
    found = {(row["initiator"], row["target"]): row for row in lines(tmp_path, names[0])}
    slit = sorted({float(row["distance"]) for row in found.values()})
    assert float(found["pu0", "node3"]["distance"]) == slit[-1] and len(slit) == 3
    assert len(lines(tmp_path, names[1])) == 16
    turned = measured.rows["distance"].replace({slit[1]: slit[2], slit[2]: slit[1]})
    wrong = draw(measured.with_columns(distance=turned), "latency_matrix", tmp_path, *names)
    assert all("contradicts the measurement" in file.sentence for file in wrong)
    equal = draw(measured.with_columns(distance=10.0), "latency_matrix", tmp_path, names[1])
    assert "All pairs have the same distance (10)" in equal.sentence


def test_cores_stand_by_node_and_l3_domain(tmp_path):
    """Two nodes whose units are numbered in turn, each with its L3 domains in turn."""
    domains = enumerate(("0,4", "2,6", "1,3,5,7"))
    nodes = ((0, "0,2,4,6"), (1, "1,3,5,7"))
    topology = topology_from_json(
        {
            "nodes": [{"os_index": n, "package": n, "cpus": cpus} for n, cpus in nodes],
            "l3_domains": [{"index": number, "cpus": cpus} for number, cpus in domains],
        }
    )
    pairs = itertools.permutations(range(8), 2)
    lines_of_pairs = [
        rows(lambda i, j: 50.0, [a % 2], [a % 2], LATENCY, experiment="core_to_core", load="line",
             point=f"line=pu{a}+pu{b}", initiator=f"pu{a}",
             factors=json.dumps({"responder": f"pu{b}"}))
        for a, b in pairs
    ]  # fmt: skip
    measured = Measurements.from_table(table(*lines_of_pairs))
    draw(measured, "core_to_core", tmp_path, "core_to_core", topology=topology)
    found = lines(tmp_path, "core_to_core")
    for column in ("responder", "initiator"):
        order = list(dict.fromkeys(row[column] for row in found))
        assert order == ["pu0", "pu4", "pu2", "pu6", "pu1", "pu3", "pu5", "pu7"]
